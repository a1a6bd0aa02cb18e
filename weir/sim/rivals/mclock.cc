// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rivals/mclock.h"

#include <algorithm>
#include <utility>

namespace weir::sim {
namespace {

constexpr std::int64_t kNone = INT64_MAX;

// The time in which a rate serves a cost.
std::int64_t time_of(std::uint64_t cost, Rate rate) {
  using Wide = unsigned __int128;
  return static_cast<std::int64_t>(Wide{cost} * rate.time_ns() / rate.tokens());
}

}  // namespace

std::vector<MclockShare> mclock_shares(const RivalSetup& setup) {
  const bool has_reserves = std::any_of(setup.reserves.begin(), setup.reserves.end(),
                                        [](const auto& reserve) { return reserve.has_value(); });
  std::vector<MclockShare> shares(setup.nodes.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (!has_reserves) {
      shares[i].reservation = setup.share_of(i, 1, 2);
    } else if (i < setup.reserves.size()) {
      shares[i].reservation = setup.reserves[i];
    }
    shares[i].weight = setup.nodes[i];
  }
  return shares;
}

Mclock::Mclock(RivalSetup setup, std::vector<MclockShare> shares)
    : Rival(std::move(setup)), entries_(shares.size()) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].share = shares[i];
    entries_[i].job = static_cast<Job>(i);
  }
}

void Mclock::tag_first(Entry& entry) {
  const Request& request = first_of(entry.job);
  const std::uint64_t cost = cost_of(request);
  const std::int64_t at = ns_of(since(request));
  const auto next = [&](std::int64_t last, const std::optional<Rate>& rate, std::int64_t without) {
    if (!rate) return without;
    return entry.is_new ? at : std::max(last + time_of(cost, *rate), at);
  };
  entry.tags.reservation = next(entry.tags.reservation, entry.share.reservation, kNone);
  entry.tags.limit = next(entry.tags.limit, entry.share.limit, 0);
  entry.tags.weight += (cost << kFraction) / entry.share.weight;
  entry.is_new = false;
}

void Mclock::enter(Entry& entry, Instant now) {
  if (entry.share.reservation) reserved_.push(entry, entry.tags.reservation);
  if (entry.tags.limit <= ns_of(now)) {
    ready_.push(entry, entry.tags.weight);
  } else {
    waiting_.push(entry, entry.tags.limit);
  }
}

void Mclock::arrived(Job job, const Request& request, Instant now) {
  if (&first_of(job) != &request) return;  // its tags follow from those before it
  Entry& entry = entries_[job];
  tag_first(entry);
  // A job cannot save unused service.
  if (!ready_.empty()) entry.tags.weight = std::max(entry.tags.weight, ready_.top_key());
  enter(entry, now);
}

void Mclock::admit_to_ready(Instant now) {
  while (!waiting_.empty() && waiting_.top_key() <= ns_of(now)) {
    Entry& entry = waiting_.pop();
    ready_.push(entry, entry.tags.weight);
  }
}

Rival::Choice Mclock::choose(Instant now) {
  admit_to_ready(now);
  if (!reserved_.empty() && reserved_.top_key() <= ns_of(now)) {
    by_weight_ = false;
    return {.job = reserved_.top().job};
  }
  if (!ready_.empty()) {
    by_weight_ = true;
    return {.job = ready_.top().job};
  }
  std::int64_t until = waiting_.empty() ? kNone : waiting_.top_key();
  if (!reserved_.empty()) until = std::min(until, reserved_.top_key());
  return {.until = instant_at(until)};
}

void Mclock::started(Job job, Request& request, Instant now) {
  Entry& entry = entries_[job];
  if (entry.by_reservation.is_linked()) reserved_.erase(entry);
  if (ready_.contains(entry)) {
    ready_.erase(entry);
  } else {
    waiting_.erase(entry);
  }
  if (by_weight_ && entry.share.reservation) {
    entry.tags.reservation -= time_of(cost_of(request), *entry.share.reservation);
  }
  if (is_empty(job)) return;
  tag_first(entry);
  enter(entry, now);
}

}  // namespace weir::sim
