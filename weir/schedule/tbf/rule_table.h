// SPDX-License-Identifier: Apache-2.0
//
// The rules of a Tbf and their limits as buckets. A rule that is started for both heads has one
// RuleState, so that its classes have one bucket.
//
//   table.apply(command, now)    changes the lists; changed limits are stored in Pace::next
//   table.commit()               after the buckets of all classes have been reshaped
//
// Between the two, queues leave the places that depend on the old limits.
//
// A rule with scope=cluster is limited by this server's slice. Nothing is granted that other
// servers might be granted too: the depth is one token and depth_time of the rate, or the slice's
// fraction of burst=; without a slice the rate is the minimum. A reservation is divided in the same
// proportion as its limit.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

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
  // The rule of a layer that applies to these attributes; nullptr if there is none.
  const Rule* match(const Attributes& attributes, Head head, unsigned layer) const {
    return list(head).has_layer(layer) ? list(head).match(attributes, layer) : nullptr;
  }
  // REQUIRES: the rule is in a list.
  RuleState& state_of(const Rule& rule) const { return *state_of_.at(&rule); }

  struct Change {
    FieldSet by;           // fields that the rule of the command needs to know, besides the type
    bool rebinds = false;  // queues may have other classes now
  };
  // On all heads that it names, or on none.
  Result<Change> apply(const RuleCommand& command, Instant now);
  // False if it changes nothing.
  bool set_slice(const Rule& rule, Pace& pace, const Slice& slice);

  // All reservations are this fraction of what their rules say. Returns whether any changes.
  // REQUIRES: scale from 1 to kReserveScaleOne.
  bool set_reserve_scale(std::uint32_t scale);
  std::uint32_t reserve_scale() const { return reserve_scale_; }
  // What a class with these limits reserves, before it is scaled: in a cluster the part that its
  // slice is of the limit. REQUIRES: the limits have a reservation.
  Rate reserve_rate(const Limits& limits, const Slice& slice) const;
  // Whether any rule has a reservation, or a weight.
  bool has_reserves() const { return has_reserves_; }
  bool has_weights() const { return has_weights_; }

  // Whether the rule `default` limits requests.
  bool default_limits() const { return default_limits_; }

  // Whether there are new limits that are not in effect yet.
  bool is_changing() const;
  // Puts them into effect. Returns whether requests take from other buckets than before.
  bool commit();

  // A class of the rule was removed.
  void forget_if_unused(RuleState& state);

 private:
  Shapes shapes_of(const Rule& rule, const Slice& slice) const;
  std::optional<ReserveShape> reserve_of(const Limits& limits, const Slice& slice) const;
  bool reshape(const Rule& rule, Pace& pace);
  RuleState& make_state(const Rule& rule, Head head, Instant now);
  void note_keys();
  void stop(const RuleCommand& command);
  FieldSet start(const RuleCommand& command, Instant now);
  FieldSet change(const RuleCommand& command, Instant now);
  // Increases with everything that can change which rule applies to a request.
  std::uint64_t generation() const {
    return list(Head::kRegular).generation() + list(Head::kHigh).generation() + states_made_ +
           reserves_changed_;
  }

  RuleOptions options_;
  std::array<std::unique_ptr<RuleList>, 2> lists_;
  absl::flat_hash_map<const RuleState*, std::unique_ptr<RuleState>> states_;
  absl::flat_hash_map<const Rule*, RuleState*> state_of_;
  std::uint64_t states_made_ = 0;
  std::uint64_t reserves_changed_ = 0;  // classes got or lost a reservation
  std::uint32_t reserve_scale_ = kReserveScaleOne;
  bool has_reserves_ = false;
  bool has_weights_ = false;
  bool default_limits_;  // false under sharing, until `default` is changed
};

}  // namespace weir::tbf
