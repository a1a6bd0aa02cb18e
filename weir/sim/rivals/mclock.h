// SPDX-License-Identifier: Apache-2.0
//
// mClock: reservation, weight and limit of each job, by three tags of its first request.
//
// Source: Gulati, Merchant, Varman, "mClock: Handling Throughput Variability for Hypervisor I/O
// Scheduling", OSDI 2010, whose text was not available; so the implementation by Ceph was used
// instead (github.com/ceph/dmclock, src/dmclock_server.h), of which the parts about tags were read.
//
//   on arrival     R = max(R' + c/r, t)   L = max(L' + c/l, t)   P = max(P' + c/w, least P)
//   constraint     if the smallest R is not after now: that job
//   weight         otherwise, of the jobs with L not after now, that with the smallest P, and its
//                  R goes back by c/r: service beyond its reservation does not count
//
// R' is the tag of the job's previous request, c the cost, r, l and w reservation, limit and
// weight.
//
// Deviations: only the first request of a job has tags, as in Ceph's default (DelayedTagCalc). A
// job that was idle gets the smallest P of the waiting jobs, where the paper moves the tags of all
// the others instead; the order is the same. c is the cost of the request, where the paper counts
// a large request as several.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weir/base/heap.h"
#include "weir/sim/rival.h"

namespace weir::sim {

struct MclockShare {
  std::optional<Rate> reservation = std::nullopt;
  std::optional<Rate> limit = std::nullopt;
  std::uint64_t weight = 1;
};

// The reservations of the jobs, their nodes as weight, no limit. If no job has one, each gets half
// of what it is entitled to by its nodes.
std::vector<MclockShare> mclock_shares(const RivalSetup& setup);

class Mclock final : public Rival {
 public:
  Mclock(RivalSetup setup, std::vector<MclockShare> shares);

  // The tags of the first request of a job, for tests. REQUIRES: the job has a request.
  struct Tags {
    std::int64_t reservation = 0;  // ns
    std::int64_t limit = 0;        // ns
    std::uint64_t weight = 0;      // cost / weight, with kFraction bits after the point
  };
  static constexpr unsigned kFraction = 20;
  Tags tags(std::uint32_t job) const { return entries_[job].tags; }

 private:
  struct Entry {
    MclockShare share;
    Tags tags;
    bool is_new = true;
    Job job = 0;
    HeapHook by_reservation;
    HeapHook by_limit;  // in waiting_ or in ready_
  };

  void arrived(Job job, const Request& request, Instant now) override;
  Choice choose(Instant now) override;
  void started(Job job, Request& request, Instant now) override;
  void tag_first(Entry& entry);
  void enter(Entry& entry, Instant now);
  void admit_to_ready(Instant now);

  std::vector<Entry> entries_;
  bool by_weight_ = false;  // the phase of the last choice
  Heap<Entry, std::int64_t, &Entry::by_reservation> reserved_;
  Heap<Entry, std::int64_t, &Entry::by_limit> waiting_;  // for their limits
  Heap<Entry, std::uint64_t, &Entry::by_limit> ready_;   // by P
};

}  // namespace weir::sim
