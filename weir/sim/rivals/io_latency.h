// SPDX-License-Identifier: Apache-2.0
//
// The io.latency controller of Linux cgroups: every group has a target for the mean latency of its
// requests. If a group misses its target, groups with a higher target may have fewer requests in
// flight; otherwise requests are served in order of arrival.
//
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst ("IO Latency") and block/blk-iolatency.c,
// by which this is a model of one level of groups on a rotational device:
//
//   window         of a group: 16 x its target, from 100 ms to 1 s; at its end the mean of arrival
//                  to completion is compared with the target
//   missed         the common cookie goes down by a quarter of the depth, and a group with a higher
//                  target that did more than 5 % of the requests halves its depth, at least 1
//   met            the cookie goes up by a sixteenth, if the group is the one that missed; a group
//                  adds a sixteenth to its depth, and has no limit when the cookie is back
//   pause          500 ms between changes; after 5 s without one every second counts as met
//
// The depth starts from the number of slots, where Linux has the length of the queue of the device.
// Not modelled: the delay of tasks for requests that are issued as root.
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/heap.h"
#include "weir/sim/rival.h"

namespace weir::sim {

// Twice the mean service time for the job with most nodes; for others inversely by their nodes.
std::vector<Nanoseconds> latency_targets_by_nodes(const RivalSetup& setup);

class IoLatency final : public Rival {
 public:
  IoLatency(RivalSetup setup, std::vector<Nanoseconds> targets);

  // How many requests of the job may be in flight, for tests; kNoLimit: any number.
  static constexpr std::uint32_t kNoLimit = UINT32_MAX;
  std::uint32_t depth_of(std::uint32_t job) const { return groups_[job].depth; }

 private:
  struct Sum {
    Nanoseconds latency{0};
    std::uint64_t count = 0;

    void add(const Sum& other) {
      latency += other.latency;
      count += other.count;
    }
    bool meets(Nanoseconds target) const {
      return count == 0 || latency / static_cast<std::int64_t>(count) <= target;
    }
  };

  struct Group {
    Nanoseconds target{0};
    Nanoseconds window{0};
    Instant window_start{};
    Sum recent;        // of this window
    Sum since_change;  // of all windows since the last change
    std::uint64_t samples = 0;
    std::uint32_t depth = kNoLimit;
    std::int64_t cookie = kCookie;
    Job job = 0;
    HeapHook hook;
  };

  static constexpr std::int64_t kCookie = 1'000'000;

  void arrived(Job job, const Request& request, Instant now) override;
  Choice choose(Instant now) override;
  void started(Job job, Request& request, Instant now) override;
  void finished(Job job, const Request& request, Instant now) override;
  void check(Group& group, Instant now);
  void change_cookie(bool up);
  void follow_cookie(Group& group);
  void tick(Instant now);
  void place(Group& group);

  std::vector<Group> groups_;
  std::int64_t cookie_ = kCookie;
  Instant changed_{};
  Nanoseconds missed_target_{0};
  const Group* missed_by_ = nullptr;
  std::uint64_t samples_ = 0;
  Instant next_tick_ = Instant{} + std::chrono::seconds{1};
  Heap<Group, std::uint64_t, &Group::hook> queue_;  // by arrival of their first request
};

}  // namespace weir::sim
