// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rivals/io_latency.h"

#include <algorithm>
#include <utility>

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanoseconds kCheckMin = milliseconds{100};
constexpr Nanoseconds kCheckMax = seconds{1};
constexpr Nanoseconds kPause = milliseconds{500};
constexpr Nanoseconds kForgotten = seconds{5};
constexpr std::uint64_t kGoodSamples = 5;

}  // namespace

std::vector<Nanoseconds> latency_targets_by_nodes(const RivalSetup& setup) {
  using Wide = unsigned __int128;
  const std::uint64_t most = *std::max_element(setup.nodes.begin(), setup.nodes.end());
  const auto service = static_cast<std::uint64_t>(Wide{setup.slots} * setup.capacity.time_ns() /
                                                  setup.capacity.tokens());
  std::vector<Nanoseconds> targets;
  targets.reserve(setup.nodes.size());
  for (const std::uint64_t nodes : setup.nodes) {
    targets.emplace_back(static_cast<std::int64_t>(Wide{2} * service * most / nodes));
  }
  return targets;
}

IoLatency::IoLatency(RivalSetup setup, std::vector<Nanoseconds> targets)
    : Rival(std::move(setup)), groups_(targets.size()) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].job = static_cast<Job>(i);
    groups_[i].target = targets[i];
    groups_[i].window = std::clamp(targets[i] * 16, kCheckMin, kCheckMax);
  }
}

void IoLatency::place(Group& group) {
  const bool may_run = !is_empty(group.job) && running_of(group.job) < group.depth;
  if (may_run == group.hook.is_linked()) return;
  if (may_run) {
    queue_.push(group, static_cast<std::uint64_t>(ns_of(since(first_of(group.job)))));
  } else {
    queue_.erase(group);
  }
}

void IoLatency::arrived(Job job, const Request& /*request*/, Instant now) {
  tick(now);
  follow_cookie(groups_[job]);
  place(groups_[job]);
}

Rival::Choice IoLatency::choose(Instant /*now*/) {
  if (queue_.empty()) return {};
  return {.job = queue_.top().job};
}

void IoLatency::started(Job job, Request& /*request*/, Instant /*now*/) {
  queue_.erase(groups_[job]);
  place(groups_[job]);
}

void IoLatency::finished(Job job, const Request& request, Instant now) {
  tick(now);
  Group& group = groups_[job];
  group.recent.latency += now - since(request);
  ++group.recent.count;
  if (now - group.window_start >= group.window) {
    group.window_start = now;
    check(group, now);
  }
  follow_cookie(group);
  place(group);
}

void IoLatency::check(Group& group, Instant now) {
  const Sum recent = std::exchange(group.recent, Sum{});
  if (recent.meets(group.target) && cookie_ == kCookie) return;
  group.since_change.add(recent);
  samples_ += group.since_change.count - group.samples;
  group.samples = group.since_change.count;
  if (now - changed_ < kPause) return;
  if (group.since_change.meets(group.target) && recent.meets(group.target)) {
    if (group.since_change.count < kGoodSamples) return;
    if (missed_by_ == &group) {
      changed_ = now;
      change_cookie(true);
    }
  } else if (missed_target_ == Nanoseconds{0} || missed_target_ >= group.target) {
    changed_ = now;
    if (missed_by_ == nullptr || missed_target_ > group.target) {
      missed_target_ = group.target;
      missed_by_ = &group;
    }
    change_cookie(false);
  }
  group.since_change = Sum{};
}

void IoLatency::change_cookie(bool up) {
  const auto depth = static_cast<std::int64_t>(setup().slots);
  const std::int64_t below = kCookie - cookie_;
  if (up) {
    const std::int64_t step = below > depth ? 1 : std::max<std::int64_t>(depth >> 4, 1);
    cookie_ = std::min(cookie_ + step, kCookie);
  } else if (below <= depth) {
    cookie_ -= std::max<std::int64_t>(depth >> 2, 1);
  } else if (below < 2 * depth) {
    --cookie_;
  }
}

void IoLatency::follow_cookie(Group& group) {
  if (cookie_ == group.cookie) return;
  const bool down = cookie_ < group.cookie;
  group.cookie = cookie_;
  if (down) {
    if (missed_target_ == Nanoseconds{0} || group.target <= missed_target_) return;
    if (group.samples <= std::max<std::uint64_t>(samples_ / 20, 1)) return;
  }
  if (!down && cookie_ == kCookie) {
    group.depth = kNoLimit;
    return;
  }
  const std::uint32_t depth = std::min(group.depth, setup().slots);
  group.depth = down ? std::max(depth / 2, 1U)
                     : std::min(depth + std::max(setup().slots >> 4, 1U), setup().slots);
}

void IoLatency::tick(Instant now) {
  while (now >= next_tick_) {
    next_tick_ += seconds{1};
    if (cookie_ == kCookie) continue;
    if (missed_by_ == nullptr) {
      change_cookie(true);
    } else if (now - changed_ >= kForgotten) {
      missed_by_ = nullptr;
    }
  }
}

}  // namespace weir::sim
