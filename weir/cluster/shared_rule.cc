// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/shared_rule.h"

#include <algorithm>

#include "weir/base/quote.h"
#include "weir/classify/rule_keys.h"
#include "weir/coordinate/slices.h"

namespace weir::cluster {
namespace {

std::int64_t milli_of(Rate rate) {
  const std::uint64_t tokens = tokens_in(rate, std::chrono::seconds{kMilli}).count();
  const auto most = static_cast<std::uint64_t>(kSliceLimitMax);
  return static_cast<std::int64_t>(std::clamp<std::uint64_t>(tokens, 1, most));
}

}  // namespace

std::pair<std::string, std::string> SharedRule::parts(std::string_view key) {
  const std::size_t slash = std::min(key.find('/'), key.size());
  return {std::string(key.substr(0, slash)),
          std::string(key.substr(std::min(slash + 1, key.size())))};
}

std::string SharedRule::parent(std::string_view key) {
  return std::string(key.substr(0, std::min(key.rfind('/'), key.size())));
}

std::string SharedRule::print() const {
  std::string text;
  for (const RuleChange& change : changes) text += weir::print(change) + "\n";
  return text;
}

Result<SharedRule> read_shared_rule(std::string_view key, std::string_view value) {
  SharedRule rule;
  std::tie(rule.service, rule.name) = SharedRule::parts(key);
  while (!value.empty()) {
    const std::string_view line = value.substr(0, value.find('\n'));
    value.remove_prefix(std::min(line.size() + 1, value.size()));
    if (line.empty()) continue;
    auto change = parse_rule(line);
    const bool fits = change && change->name == rule.name && !change->is_old_form &&
                      change->verb == (rule.changes.empty() ? Verb::kStart : Verb::kChange);
    if (!fits) {
      return fail(std::errc::invalid_argument, "rule " + quote(key) + " in etcd",
                  quote(line) + " is not a valid command for this rule",
                  "stop the rule: weir cluster rule stop");
    }
    rule.changes.push_back(*std::move(change));
  }
  if (rule.changes.empty()) {
    return fail(std::errc::invalid_argument, "rule " + quote(key) + " in etcd", "is empty");
  }
  return rule;
}

Result<RuleChange> shared_change(RuleChange change) {
  const std::string text = print(change);
  if (change.heads != Heads::kBoth) {
    return fail(std::errc::invalid_argument, quote(text), "applies to one priority only",
                "rules of the cluster apply to both: omit reg and hp");
  }
  if (change.is_old_form) {
    return fail(std::errc::invalid_argument, quote(text), "does not name the field of its list",
                "name the field and the rate, as in weir-rules(7)");
  }
  if (text.find('\n') != std::string::npos) {
    return fail(std::errc::invalid_argument, quote(text), "has more than one line");
  }
  if (change.name == "default") {
    return fail(std::errc::operation_not_permitted, "rule 'default'",
                "cannot be a rule of the cluster: each server has its own");
  }
  RuleKeys& keys = change.keys;
  if (keys.scope && *keys.scope != Scope::kCluster) {
    return fail(std::errc::invalid_argument, quote(text), "is not a rule of the cluster",
                "start it on one server: weir rule start");
  }
  if (change.verb != Verb::kStart) return change;
  if (!keys.rate && !keys.bps) {
    return fail(std::errc::invalid_argument, quote(text), "has no limit",
                "give rate= or bps=, the limit for all servers together");
  }
  keys.scope = Scope::kCluster;
  if (auto checked = with_keys({}, keys, change.verb).check(); !checked) {
    return fail(std::errc::invalid_argument, quote(text), checked.error().what,
                checked.error().hint);
  }
  return change;
}

SharedRule with_change(SharedRule rule, const RuleChange& change) {
  const auto is_overtaken = [&](const RuleChange& earlier) {
    return covers(change.keys, earlier.keys);
  };
  rule.changes.erase(std::remove_if(rule.changes.begin() + 1, rule.changes.end(), is_overtaken),
                     rule.changes.end());
  rule.changes.push_back(change);
  return rule;
}

void add_limits(const SharedRule& rule, SliceLimits& limits) {
  RuleKeys keys;
  for (const RuleChange& change : rule.changes) merge_keys(keys, change.keys, change.verb);
  if (keys.rate) limits[rule.key() + "/ops"] = std::int64_t{*keys.rate} * kMilli;
  if (keys.bps) limits[rule.key() + "/bytes"] = milli_of(*keys.bps);
}

}  // namespace weir::cluster
