// SPDX-License-Identifier: Apache-2.0
//
// Group epochs: all servers prefer the requests of one group of clients at a time, say of one rack
// or one network, and take turns over the groups together. Clients whose work is spread over many
// servers then get all of them at once, instead of a part of each with gaps in between.
//
//   server 1   | rack A ......... | rack B ......... | rack A ...
//   server 2   | rack A ......... | rack B ......... | rack A ...
//                                 ^ next epoch: all have signalled, or the timeout has passed
//
// It is an EpochUse, to be driven by an EpochParticipant. Each server hands in, for each group,
// whether it has requests, for how many epochs the group has waited, and how long it should last;
// from the sums all of them choose the same: of the groups with requests the one that has waited
// longest. So no group waits for longer than all others take for a turn each. Clients of no group
// are a group, too, the last.
//
// It is a preference and not a wall: whenever the group has nothing that may run, others do. An
// epoch ends before its length has passed when the group has nothing left and others wait. With
// `quiesce` no server starts a request between the end of an epoch and the next (those of the
// high-priority head excepted), and signals when what it had begun is done: so nothing of one epoch
// runs into the next. Nobody is quiet for longer than `quiet_max`, whomever it waits for; and since
// all are quiet together, several servers keep to the length.
//
// A server that is cut off takes turns alone, by what waits at itself. Where servers have different
// groups nobody is preferred, and is_mixed() says so. REQUIRES: a policy with rules on the regular
// head, with as many groups; under others nobody is preferred. Time is given. One owner, no
// locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/vectors.h"
#include "weir/target/target.h"

namespace weir {

struct GroupOptions {
  // For each group, in the order of RuleOptions::groups, how long it is preferred in a row.
  std::vector<Nanoseconds> lengths;
  Nanoseconds rest_length = std::chrono::milliseconds{100};  // of clients of no group
  bool quiesce = false;
  Nanoseconds quiet_max = std::chrono::milliseconds{50};
  // One number for what the groups are: servers that differ in it do not take turns.
  std::uint32_t meaning = 0;
};

// So that all places of the data are guaranteed to a scheduler (kEpochDataGuaranteed).
inline constexpr std::size_t kGroupsMax = 128;
inline constexpr Nanoseconds kGroupLengthMin = std::chrono::milliseconds{1};
inline constexpr Nanoseconds kGroupLengthMax = std::chrono::seconds{10};

class GroupEpochs final : public EpochUse {
 public:
  // The Target outlives it. REQUIRES: at most kGroupsMax groups, lengths within their bounds.
  GroupEpochs(Target& target, GroupOptions options);

  EpochBytes ready(Instant now) override;
  Instant ready_at(Instant now) override;
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;
  bool is_done_early(Instant now) override;
  void tick(Instant now) override;
  Instant next_wake() const override;

  // Who is preferred; none: nobody waits, or the servers do not agree. The number of groups stands
  // for clients of none.
  std::optional<std::uint32_t> preferred() const { return preferred_; }
  // Nothing of the regular head is begun until the next epoch.
  bool is_quiet() const { return is_held_; }
  bool is_mixed() const { return is_mixed_; }
  // The last epoch was one of all; false: it takes turns alone.
  bool is_in_step() const { return is_in_step_; }
  // Quiet phases that lasted too long: what ran here, or another server, was not done in time.
  std::uint64_t ragged() const { return ragged_; }
  // How often each was preferred, clients of no group last.
  const std::vector<std::uint64_t>& turns() const { return turns_; }

 private:
  struct Choice {
    std::optional<std::uint32_t> group;
    Nanoseconds length;
  };

  EpochVector data(bool knows_turns) const;
  Choice choose(std::span<const std::int64_t> reduced);
  void begin(const Choice& choice, std::span<const std::int64_t> reduced, Instant now);
  bool has_requests(std::uint32_t group) const;
  void hold(bool on, Instant now);
  Instant quiet_end() const { return *quiet_since_ + options_.quiet_max; }
  Nanoseconds length_of(std::size_t group) const;

  Target& target_;
  GroupOptions options_;
  std::vector<std::int64_t> waited_;  // epochs, of each group with requests
  std::vector<std::uint64_t> turns_;
  std::optional<std::uint32_t> preferred_;
  Instant began_ = Instant::min();
  Nanoseconds length_{0};
  std::optional<Instant> quiet_since_;  // none: the epoch is not over
  bool is_held_ = false;
  bool is_in_step_ = false;
  bool is_mixed_ = false;
  std::int64_t servers_ = 1;  // in the last epoch
  std::uint64_t ragged_ = 0;
};

}  // namespace weir
