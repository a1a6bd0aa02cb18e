// SPDX-License-Identifier: Apache-2.0
//
// What the limits of a cluster act on, on one server: it has the rules with scope=cluster, knows
// how much their classes could use, and paces them by their slices.
//
//   TargetSink (target_sink.h)            requests are scheduled here
//   JobLimits (weir/lustre/job_limits.h)  a Lustre server schedules them, by rules
//
//   ClusterRules --loads()--> demand ... slices --set_slices()--> sink
//
// One owner, no locks; time is an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/limits.h"
#include "weir/classify/rule_spec.h"
#include "weir/schedule/rule_view.h"
#include "weir/schedule/slice.h"

namespace weir {

// A rule with scope=cluster; its limits in kMilli.
struct SlicedRule {
  std::string rule;
  std::optional<std::int64_t> ops;
  std::optional<std::int64_t> bytes;
  FieldSet by;
};

// What a class could use: measured from the counters of its load, unless the sink knows better.
struct SlicedLoad : ClassLoad {
  struct Demand {
    std::int64_t ops = 0;  // in kMilli
    std::int64_t bytes = 0;
  };

  std::optional<Demand> demand = {};

  bool wants_any() const {
    return waiting > 0 || (demand && (demand->ops > 0 || demand->bytes > 0));
  }
};

class SliceSink {
 public:
  SliceSink() = default;
  SliceSink(const SliceSink&) = delete;
  SliceSink& operator=(const SliceSink&) = delete;
  virtual ~SliceSink() = default;

  // False while there can be no rules, as under a policy without them.
  virtual bool has_rules() const = 0;
  virtual std::vector<SlicedRule> sliced_rules() const = 0;
  // Waiting requests count up to what the whole limit allows in `time`.
  virtual std::vector<SlicedLoad> loads(Nanoseconds time) const = 0;
  // From now on; unknown rules and classes are ignored.
  virtual void set_slices(std::span<const ClassSlice> slices, Instant now) = 0;

  virtual bool has_rule(std::string_view name) const = 0;
  // Whether apply_rules() would succeed.
  virtual Result<void> check_rules(std::span<const RuleChange> changes) const = 0;
  // All or none.
  virtual Result<void> apply_rules(std::span<const RuleChange> changes, Instant now) = 0;
  // How often all rules were lost, by a change of policy.
  virtual std::uint64_t restarts() const = 0;
};

// The limit in kMilli; none if the rule has no such limit, or is not a rule of the cluster.
std::optional<std::int64_t> slice_limit(const Limits& limits, bool is_bytes);

}  // namespace weir
