// SPDX-License-Identifier: Apache-2.0
//
// SFQ(D): start-time fair queueing with at most D requests at the device.
//
// Source: Jin, Chase, Kaur, "Interposed Proportional Sharing for a Storage Service Utility",
// SIGMETRICS 2004, and Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996, for the tags:
//
//   S = max(v, F')     F = S + c/w     v = S of the request dispatched last; the smallest S is next
//
// While a job has requests, S of the next is F of the one before, since v is never above the
// smallest S that waits. When nothing is queued or running, v becomes the largest F.
//
// The automatic depth follows SFQ(D2) of Xu and Zhao, "IBIS: Interposed Big-data I/O Scheduler",
// HPDC 2016: an integral controller that keeps the latency of the device at a reference,
// D += K (reference - latency). The full text of that paper was not available, so its constants are
// not used: here the reference is one and a half times the smallest mean latency of any window so
// far, a window is 100 ms, and K moves D by half of the relative error.
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/heap.h"
#include "weir/sim/rival.h"

namespace weir::sim {

class SfqD final : public Rival {
 public:
  enum class Depth : std::uint8_t { kFixed, kAutomatic };
  static constexpr Nanoseconds kWindow = std::chrono::milliseconds{100};

  // At most `depth` at the device, by weight = nodes.
  SfqD(RivalSetup setup, std::uint32_t depth, Depth kind);

  std::uint32_t depth() const { return depth_; }
  // S of the first request of a job, with kFraction bits after the point.
  static constexpr unsigned kFraction = 20;
  std::uint64_t first_start(std::uint32_t job) const { return entries_[job].start; }

 private:
  struct Entry {
    std::uint64_t start = 0;
    std::uint64_t finish = 0;
    Job job = 0;
    HeapHook hook;
  };

  void arrived(Job job, const Request& request, Instant now) override;
  Choice choose(Instant now) override;
  void started(Job job, Request& request, Instant now) override;
  void finished(Job job, const Request& request, Instant now) override;
  void adapt(Instant now);

  std::vector<Entry> entries_;
  std::uint32_t depth_;
  std::uint32_t depth_max_;
  Depth kind_;
  double level_;  // the depth before it is rounded down
  std::uint64_t virtual_time_ = 0;
  std::uint64_t latest_finish_ = 0;
  // Of the current window.
  Instant window_end_ = Instant{} + kWindow;
  Nanoseconds latency_sum_{0};
  std::uint64_t latencies_ = 0;
  Nanoseconds least_latency_ = Nanoseconds::max();
  Heap<Entry, std::uint64_t, &Entry::hook> queue_;
};

}  // namespace weir::sim
