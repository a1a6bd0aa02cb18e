// SPDX-License-Identifier: Apache-2.0
//
// A device that serves a number of requests at a time, each for a time drawn from a distribution.
// It may be slowed down or stall at given times:
//
//   slow-down   requests that start meanwhile take `percent` of their time (300: three times)
//   stall       nothing progresses; requests in service continue afterwards
//   channels    another number of channels
//
// What it does with more requests than it has channels depends on the device:
//
//   channels    the others wait, first come, first served; none given: there are always enough
//   seek        a disk: each request also takes 2 * seek / (depth + 2), because the seek to the
//               next request is shorter the more requests there are to choose from (at most
//               seek_depth)
//   stalls      a log-structured device: nothing progresses for stall_for, every stall_every
//   clump       requests are released `clump` at a time, every clump_every, as by a throttle in the
//               block layer
//
// A gate in front of it passes a number of requests in each interval and makes the others wait for
// a later one, as the block layer of Linux throttles: completions then arrive in clumps. The start
// of the intervals is random.
//
// finish() returns when a request that starts now will be done. All disturbances are known in
// advance, so nothing has to be moved later. The caller limits the number in service.
#pragma once

#include <cstdint>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/rng.h"
#include "weir/base/time.h"

namespace weir::sim {

struct ServiceTime {
  enum class Kind : std::uint8_t { kConstant, kUniform, kExponential };

  Kind kind = Kind::kConstant;
  Nanoseconds base = std::chrono::milliseconds{16};  // the mean for an empty request
  Nanoseconds per_mib{0};                            // additional time per MiB
  std::uint32_t spread_permille = 100;               // uniform: maximum deviation to either side

  // At least one nanosecond.
  Nanoseconds draw(Bytes size, Rng& rng) const;
};

struct Disturbance {
  static constexpr std::uint32_t kStall = UINT32_MAX;
  static constexpr std::uint32_t kChannels = UINT32_MAX - 1;

  Nanoseconds at{0};
  Nanoseconds length{0};
  std::uint32_t percent = kStall;  // of the usual time
  std::uint32_t channels = 0;      // with kChannels
};

struct Gate {
  std::uint32_t count = 0;  // in each interval; 0: no gate
  Nanoseconds every = std::chrono::milliseconds{100};
};

struct StoreSpec {
  std::uint32_t slots = 16;  // of the target in front of it
  std::uint32_t channels = 0;
  Nanoseconds seek{0};
  std::uint32_t seek_depth = 32;
  Nanoseconds stall_every{0};
  Nanoseconds stall_for{0};
  std::uint32_t clump = 0;
  Nanoseconds clump_every{0};
  ServiceTime service = {};
  Gate gate = {};
  std::vector<Disturbance> disturbances = {};
};

class Store {
 public:
  // REQUIRES: the spec outlives it.
  Store(const StoreSpec& spec, Rng rng);

  Instant finish(Instant start, Bytes size);

 private:
  Instant pass_gate(Instant start);
  Nanoseconds time_of(Instant start, Bytes size);
  Instant begin(Instant start);
  Instant end_of(Instant begin, Nanoseconds time) const;
  std::size_t channels_at(Instant time) const;

  const StoreSpec& spec_;
  bool is_plain_;  // every request takes its service time: no gate, queue, seek, stall or slow-down
  Rng rng_;
  std::vector<Instant> free_at_;  // of each channel, a heap with the earliest first
  std::vector<Instant> ends_;     // of requests in the device, the same; for `seek`
  Instant opened_;                // when the last clump is released, and its size
  std::uint32_t released_ = 0;
  Instant interval_{};  // of the gate, the latest that a request passes in
  std::uint32_t passed_ = 0;
};

}  // namespace weir::sim
