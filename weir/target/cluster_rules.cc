// SPDX-License-Identifier: Apache-2.0
#include "weir/target/cluster_rules.h"

#include <algorithm>

namespace weir {
namespace {

std::int64_t milli_per_second(Rate rate) {
  const std::uint64_t tokens = tokens_in(rate, std::chrono::seconds{kMilli}).count();
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min<std::uint64_t>(
                                      tokens, static_cast<std::uint64_t>(kSliceLimitMax))),
                                  1, kSliceLimitMax);
}

}  // namespace

// Rules come, go and change at any time; here they are looked at once an epoch.
void ClusterRules::follow_rules(Instant now) {
  for (Ruled& ruled : rules_) ruled.is_listed = false;
  Tbf* const tbf = gate_.tbf(Head::kRegular);
  if (tbf != nullptr) {
    for (const Rule* const rule : tbf->rules(Head::kRegular).rules()) {
      const Limits& limits = rule->limits();
      if (limits.scope != Scope::kCluster) continue;
      auto found = std::find_if(rules_.begin(), rules_.end(), [&](const Ruled& ruled) {
        return ruled.gauge.rule() == rule->name();
      });
      if (found == rules_.end()) {
        rules_.push_back({.gauge = RuleGauge(rule->name(), now), .ops = {}, .bytes = {}});
        found = rules_.end() - 1;
      }
      found->is_listed = true;
      found->ops.reset();
      found->bytes.reset();
      if (const std::uint32_t rate = limits.rate_in_force(); rate > 0) {
        found->ops = slices_.open(prefix_ + rule->name() + "/ops", std::int64_t{rate} * kMilli);
      }
      if (limits.bps) {
        found->bytes =
            slices_.open(prefix_ + rule->name() + "/bytes", milli_per_second(*limits.bps));
      }
    }
  }
  for (const Ruled& ruled : rules_) {
    if (ruled.is_listed) continue;
    if (ruled.ops) slices_.close(*ruled.ops);
    if (ruled.bytes) slices_.close(*ruled.bytes);
  }
  std::erase_if(rules_, [](const Ruled& ruled) { return !ruled.is_listed; });
}

EpochBytes ClusterRules::ready(Instant now) {
  follow_rules(now);
  if (Tbf* const tbf = gate_.tbf(Head::kRegular)) {
    for (Ruled& ruled : rules_) {
      const RuleGauge::Demand demand = ruled.gauge.measure(*tbf, now);
      if (ruled.ops) slices_.set_demand(*ruled.ops, demand.ops);
      if (ruled.bytes) slices_.set_demand(*ruled.bytes, demand.bytes);
    }
  }
  return slices_.demand();
}

Nanoseconds ClusterRules::start_epoch(std::int64_t /*epoch*/, EpochView /*reduced*/, Instant now) {
  apply(now);
  return epoch_;
}

void ClusterRules::alone(std::int64_t /*error*/, Instant now) { apply(now); }

std::optional<Rate> ClusterRules::rate_of(std::optional<SliceMember::ClassIndex> index,
                                          Instant now) const {
  if (!index) return std::nullopt;
  const auto slice = static_cast<std::uint64_t>(slices_.slice(*index, now));
  return Rate(Tokens{slice}, std::chrono::seconds{kMilli});
}

void ClusterRules::apply(Instant now) {
  Tbf* const tbf = gate_.tbf(Head::kRegular);
  if (tbf == nullptr) return;
  for (const Ruled& ruled : rules_) {
    tbf->set_slice(ruled.gauge.rule(),
                   {.ops = rate_of(ruled.ops, now), .bytes = rate_of(ruled.bytes, now)}, now);
  }
}

Instant ClusterRules::next_apply(Instant now) const {
  return slices_.lease_end() > now ? slices_.lease_end() : kNever;
}

}  // namespace weir
