// SPDX-License-Identifier: Apache-2.0
//
// How long the requests of a queue waited in the last minute, and for what: the figures behind an
// explanation (explain.h).
//
// A Target keeps sums of delays by cause. WaitHistory keeps samples of them, so that the delays of
// the last minute are a difference of two sums; a queue that is younger is counted from its
// beginning.
//
// Values; not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "weir/base/time.h"
#include "weir/control/snapshot.h"

namespace weir::control {

// What happened to requests since a time up to a minute ago.
struct WaitSpan {
  DelaySums delays{};
  std::uint64_t requests = 0;  // that left their queue, and those that wait now
  std::uint64_t arrived = 0;
  std::uint64_t waiting = 0;  // now
  Instant from = kNever;      // kNever: no queue is measured
  DeviceSums device{};        // of the job; nothing if the class has none

  std::uint64_t wait_ns() const;  // the sum
  std::uint64_t wait_each() const { return requests == 0 ? 0 : wait_ns() / requests; }
  std::uint64_t device_each() const {
    return device.requests == 0 ? 0 : device.ns / device.requests;
  }
};

// Samples of earlier waits, to compute those of the last minute.
struct WaitHistory {
  struct OfService {
    Instant at{};  // of the clock of its Target
    std::vector<WaitView> waits = {};
    std::vector<DeviceSums> devices = {};  // of the job of each
  };
  using Sample = std::vector<OfService>;
  static constexpr std::size_t kSamplesMax = 13;
  static constexpr Nanoseconds kWindow = std::chrono::seconds{60};

  void add(Sample sample);
  // Of this queue since up to a minute ago. `device` is that of its job now.
  WaitSpan since(std::size_t service, const WaitView& now, const DeviceSums& device,
                 Instant at) const;

  std::deque<Sample> samples;
};

}  // namespace weir::control
