// SPDX-License-Identifier: Apache-2.0
//
// Group epochs: all servers prefer the requests of one group of clients at a time, such as one rack
// or one network, and take turns over the groups together. Clients whose work is spread over many
// servers then get all of them at once, instead of a fraction of each with gaps in between.
//
//   server 1   | rack A ......... | rack B ......... | rack A ...
//   server 2   | rack A ......... | rack B ......... | rack A ...
//                                 ^ next epoch: all have signalled, or the timeout has passed
//
// It is an EpochUse, driven by an EpochParticipant. For each group, each server submits whether it
// has requests, for how many epochs the group has waited, and how long its turn should last. From
// the sums all servers make the same choice: of the groups with requests, the one that has waited
// longest. So no group waits longer than one turn of each other group. Clients without a group form
// the last group.
//
// It is only a preference: whenever the group has no request that may run, others run. An epoch
// ends before its length has passed when the group has no requests left and others wait. With
// `quiesce` a server starts no request between the end of an epoch and the next (except on the
// high-priority head), and signals when its running requests are done: so no request of one epoch
// runs into the next. A quiet phase lasts at most `quiet_max`; and since all servers are quiet
// together, epochs of several servers do not end early.
//
// A server that is cut off takes turns alone, based on its own waiting requests. If servers have
// different groups, no group is preferred, and is_mixed() is true. REQUIRES: a policy with rules on
// the regular head, with the same number of groups; under other policies no group is preferred.
// Time is an argument. One owner, no locks.
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
  // For each group, in the order of RuleOptions::groups, the length of its turn.
  std::vector<Nanoseconds> lengths;
  Nanoseconds rest_length = std::chrono::milliseconds{100};  // of clients without a group
  bool quiesce = false;
  Nanoseconds quiet_max = std::chrono::milliseconds{50};
  // A number computed from the groups: servers with different numbers do not take turns.
  std::uint32_t meaning = 0;
};

// Keeps the data within the guaranteed size (kEpochDataGuaranteed).
inline constexpr std::size_t kGroupsMax = 128;
inline constexpr Nanoseconds kGroupLengthMin = std::chrono::milliseconds{1};
inline constexpr Nanoseconds kGroupLengthMax = std::chrono::seconds{10};

class GroupEpochs final : public EpochUse {
 public:
  // REQUIRES: the Target outlives it; at most kGroupsMax groups, lengths within their bounds.
  GroupEpochs(Target& target, GroupOptions options);

  EpochBytes ready(Instant now) override;
  Instant ready_at(Instant now) override;
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;
  bool is_done_early(Instant now) override;
  void tick(Instant now) override;
  Instant next_wake() const override;

  // The preferred group; none: no request waits, or the servers do not agree. The number of groups
  // stands for clients without a group.
  std::optional<std::uint32_t> preferred() const { return preferred_; }
  // No request of the regular head is started until the next epoch.
  bool is_quiet() const { return is_held_; }
  bool is_mixed() const { return is_mixed_; }
  // The last epoch was shared with other servers; false: this server takes turns alone.
  bool is_in_step() const { return is_in_step_; }
  // Number of quiet phases that lasted too long, because running requests here or on another server
  // did not complete in time.
  std::uint64_t ragged() const { return ragged_; }
  // The number of turns of each group, clients without a group last.
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
  std::vector<std::int64_t> waited_;  // number of epochs, for each group with requests
  std::vector<std::uint64_t> turns_;
  std::optional<std::uint32_t> preferred_;
  Instant began_ = Instant::min();
  Nanoseconds length_{0};
  std::optional<Instant> quiet_since_;  // none: the epoch has not ended
  bool is_held_ = false;
  bool is_in_step_ = false;
  bool is_mixed_ = false;
  std::int64_t servers_ = 1;  // in the last epoch
  std::uint64_t ragged_ = 0;
};

}  // namespace weir
