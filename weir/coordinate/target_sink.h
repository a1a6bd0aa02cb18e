// SPDX-License-Identifier: Apache-2.0
//
// A Target as what the limits of a cluster act on (slice_sink.h): the rules of its policy, the load
// of their classes, and slices as commands of the Target, so a trace contains them. Only rules of
// the regular head have slices.
//
// No state of its own. The owner of the Target calls it, on the thread of the Target.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weir/coordinate/slice_sink.h"
#include "weir/target/target.h"

namespace weir {

class TargetSink final : public SliceSink {
 public:
  // REQUIRES: it outlives this object.
  explicit TargetSink(Target& target) : target_(target) {}

  bool has_rules() const override { return rules() != nullptr; }
  std::vector<SlicedRule> sliced_rules() const override;
  std::vector<SlicedLoad> loads(Nanoseconds time) const override;
  void set_slices(std::span<const ClassSlice> slices, Instant now) override {
    target_.set_slices(slices, now);
  }
  bool has_rule(std::string_view name) const override;
  Result<void> check_rules(std::span<const RuleChange> changes) const override {
    return target_.check_rules(changes);
  }
  Result<void> apply_rules(std::span<const RuleChange> changes, Instant now) override {
    return target_.apply_rules(changes, now);
  }
  std::uint64_t restarts() const override { return target_.policy_switches(); }

 private:
  const RuleView* rules() const { return target_.rules(Head::kRegular); }

  Target& target_;
};

}  // namespace weir
