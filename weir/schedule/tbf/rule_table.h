// SPDX-License-Identifier: Apache-2.0
//
// The rules of a Tbf and what their limits are as buckets. A rule that is started for both heads
// has one RuleState, so that its classes have one bucket.
//
//   table.apply(command, now)    the lists change; limits that change are noted as Pace::next
//   table.commit()               once the buckets of all classes have been reshaped
//
// Between the two, queues leave the places that depend on the old limits.
//
// A rule with scope=cluster is limited by this server's slice of it. Nothing is granted that other
// servers might be granted too: the depth is one token and what comes in during depth_time, or the
// slice's part of burst=; without a slice the rate is the least there is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <absl/container/flat_hash_map.h>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/command.h"
#include "weir/classify/rule_list.h"
#include "weir/schedule/rule_engine.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class RuleTable {
 public:
  RuleTable(FieldSet type, const RuleOptions& options);

  const RuleList& list(Head head) const { return *lists_[index(head)]; }
  // The rule of a layer that is in force for these attributes; nullptr if there is none.
  const Rule* match(const Attributes& attributes, Head head, unsigned layer) const {
    return list(head).has_layer(layer) ? list(head).match(attributes, layer) : nullptr;
  }
  // REQUIRES: the rule is in a list.
  RuleState& state_of(const Rule& rule) const { return *state_of_.at(&rule); }

  struct Change {
    FieldSet by;           // fields by which the command's rule has classes
    bool rebinds = false;  // queues may have other classes now
  };
  // On all heads it names, or on none.
  Result<Change> apply(const RuleCommand& command, Instant now);
  // False if nothing changes by it.
  bool set_slice(const Rule& rule, Pace& pace, const Slice& slice) const;

  // Whether limits are noted that are not in force yet.
  bool is_changing() const;
  // They are in force from now on. Whether a request takes from other buckets than before.
  bool commit();

  // A class of the rule has gone.
  void forget_if_unused(RuleState& state);

 private:
  Shapes shapes_of(const Rule& rule, const Slice& slice) const;
  RuleState& make_state(const Rule& rule, Head head, Instant now);
  void stop(const RuleCommand& command);
  FieldSet start(const RuleCommand& command, Instant now);
  FieldSet change(const RuleCommand& command, Instant now);
  // Grows with everything that can change which rule is in force for a request.
  std::uint64_t generation() const {
    return list(Head::kRegular).generation() + list(Head::kHigh).generation() + states_made_;
  }

  RuleOptions options_;
  std::array<std::unique_ptr<RuleList>, 2> lists_;
  absl::flat_hash_map<const RuleState*, std::unique_ptr<RuleState>> states_;
  absl::flat_hash_map<const Rule*, RuleState*> state_of_;
  std::uint64_t states_made_ = 0;
  bool default_limits_;  // off under sharing, until somebody changes `default`
};

}  // namespace weir::tbf
