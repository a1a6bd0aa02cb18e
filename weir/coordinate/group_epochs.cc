// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/group_epochs.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir {
namespace {

// The data: the number of servers and the sum of their meanings, then three values for each group.
constexpr std::size_t kServers = 0;
constexpr std::size_t kMeaning = 1;
constexpr std::size_t kHead = 2;
constexpr std::size_t kWaiting = 0;  // queues with requests
constexpr std::size_t kWaited = 1;   // epochs
constexpr std::size_t kLength = 2;   // in microseconds
constexpr std::size_t kPlaces = 3;
static_assert((kHead + (kGroupsMax + 1) * kPlaces) * sizeof(std::int64_t) <= kEpochDataGuaranteed);

constexpr std::int64_t kWaitedMax = 1'000'000;
// An epoch lasts at least this fraction of its length.
constexpr std::int64_t kLeastPart = 10;

std::int64_t place(std::span<const std::int64_t> data, std::size_t group, std::size_t what) {
  return data[kHead + group * kPlaces + what];
}

}  // namespace

GroupEpochs::GroupEpochs(Target& target, GroupOptions options)
    : target_(target),
      options_(std::move(options)),
      waited_(options_.lengths.size() + 1),
      turns_(options_.lengths.size() + 1) {
  WEIR_ASSERT(options_.lengths.size() <= kGroupsMax, options_.lengths.size());
}

Nanoseconds GroupEpochs::length_of(std::size_t group) const {
  return group < options_.lengths.size() ? options_.lengths[group] : options_.rest_length;
}

bool GroupEpochs::has_requests(std::uint32_t group) const {
  const RuleView* const rules = target_.rules(Head::kRegular);
  return rules != nullptr && rules->group_queues(group) > 0;
}

// The group of the last turn is last in order, and a server that missed the turns taken meanwhile
// does not influence the next one.
EpochVector GroupEpochs::data(bool knows_turns) const {
  EpochVector data(kHead + waited_.size() * kPlaces);
  data[kServers] = 1;
  data[kMeaning] = options_.meaning;
  const RuleView* const rules = target_.rules(Head::kRegular);
  for (std::uint32_t group = 0; group < waited_.size(); ++group) {
    std::int64_t* const places = &data[kHead + group * kPlaces];
    places[kWaiting] = rules == nullptr ? 0 : rules->group_queues(group);
    places[kWaited] = knows_turns && preferred_ != group ? waited_[group] + 1 : 0;
    places[kLength] = length_of(group) / std::chrono::microseconds{1};
  }
  return data;
}

EpochBytes GroupEpochs::ready(Instant /*now*/) { return pack_vector(data(is_in_step_)); }

// The end of an epoch: with `quiesce` no request starts, and running requests complete. A server
// that is alone does not need this.
Instant GroupEpochs::ready_at(Instant now) {
  if (!options_.quiesce || !is_in_step_) return now;
  if (!quiet_since_) {
    quiet_since_ = now;
    hold(true, now);
  }
  if (target_.running(Head::kRegular) == 0) return now;
  return std::max(now, quiet_end());
}

void GroupEpochs::hold(bool on, Instant now) {
  is_held_ = on;
  if (!on) quiet_since_.reset();
  target_.hold(on, now);
}

void GroupEpochs::tick(Instant now) {
  if (is_held_ && now >= quiet_end()) {
    ++ragged_;
    is_held_ = false;  // the epoch has still ended
    target_.hold(false, now);
  }
  if (is_in_step_) return;
  if (now < began_ + length_ && !is_done_early(now)) return;
  const EpochVector own = data(true);
  begin(choose(own), own, now);
}

// Alone, only while requests wait for a turn.
Instant GroupEpochs::next_wake() const {
  if (is_held_) return quiet_end();
  return is_in_step_ || target_.queued() == 0 ? kNever : began_ + length_;
}

// All servers choose the same, because they have the same data.
GroupEpochs::Choice GroupEpochs::choose(std::span<const std::int64_t> reduced) {
  // The data of a leader is not trusted.
  servers_ = std::clamp<std::int64_t>(reduced[kServers], 1, kEpochMembersMax);
  is_mixed_ = reduced.size() != kHead + waited_.size() * kPlaces || reduced[kServers] != servers_ ||
              reduced[kMeaning] != servers_ * options_.meaning;
  Choice choice{.group = std::nullopt, .length = options_.rest_length};
  if (is_mixed_) return choice;
  std::int64_t longest = -1;
  for (std::uint32_t group = 0; group < waited_.size(); ++group) {
    const std::int64_t waited = place(reduced, group, kWaited);
    if (place(reduced, group, kWaiting) == 0 || waited <= longest) continue;
    longest = waited;
    choice.group = group;
  }
  if (!choice.group) return choice;
  const std::chrono::microseconds length{place(reduced, *choice.group, kLength) / servers_};
  choice.length = std::clamp<Nanoseconds>(length, kGroupLengthMin, kGroupLengthMax);
  return choice;
}

void GroupEpochs::begin(const Choice& choice, std::span<const std::int64_t> reduced, Instant now) {
  for (std::uint32_t group = 0; group < waited_.size() && !is_mixed_; ++group) {
    const bool waits = place(reduced, group, kWaiting) > 0 && choice.group != group;
    waited_[group] = waits ? std::min(waited_[group] + 1, kWaitedMax) : 0;
  }
  preferred_ = choice.group;
  length_ = choice.length;
  began_ = now;
  if (preferred_) ++turns_[*preferred_];
  target_.prefer_group(preferred_, now);
  hold(false, now);
}

Nanoseconds GroupEpochs::start_epoch(std::int64_t /*epoch*/, EpochView reduced, Instant now) {
  if (!std::exchange(is_in_step_, true)) std::fill(waited_.begin(), waited_.end(), 0);
  EpochVector sums = unpack_vector(reduced);
  if (sums.size() < kHead) sums.assign(kHead, 0);  // a server without groups: no group is preferred
  begin(choose(sums), sums, now);
  return length_;
}

void GroupEpochs::alone(std::int64_t /*error*/, Instant now) {
  is_in_step_ = false;
  hold(false, now);
  tick(now);
}

bool GroupEpochs::is_done_early(Instant now) {
  if (is_mixed_ || now < began_ + length_ / kLeastPart) return false;
  if (options_.quiesce && is_in_step_ && servers_ > 1) return false;
  if (preferred_ && has_requests(*preferred_)) return false;
  for (std::uint32_t group = 0; group < waited_.size(); ++group) {
    if (has_requests(group)) return true;
  }
  return false;
}

}  // namespace weir
