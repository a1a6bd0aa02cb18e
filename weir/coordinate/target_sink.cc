// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/target_sink.h"

namespace weir {

std::vector<SlicedRule> TargetSink::sliced_rules() const {
  std::vector<SlicedRule> sliced;
  if (rules() == nullptr) return sliced;
  for (const Rule* const rule : rules()->rules(Head::kRegular).rules()) {
    const Limits& limits = rule->limits();
    if (limits.scope != Scope::kCluster) continue;
    sliced.push_back({.rule = rule->name(),
                      .ops = slice_limit(limits, false),
                      .bytes = slice_limit(limits, true),
                      .by = rule->by()});
  }
  return sliced;
}

std::vector<SlicedLoad> TargetSink::loads(Nanoseconds time) const {
  std::vector<SlicedLoad> loads;
  if (rules() == nullptr) return loads;
  for (ClassLoad& load : rules()->cluster_loads(time)) {
    loads.push_back({{std::move(load)}, std::nullopt});
  }
  return loads;
}

bool TargetSink::has_rule(std::string_view name) const {
  return rules() != nullptr && rules()->rules(Head::kRegular).find(name) != nullptr;
}

}  // namespace weir
