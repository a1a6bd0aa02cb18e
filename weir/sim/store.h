// SPDX-License-Identifier: Apache-2.0
//
// A device that serves a number of requests at a time, each for a time drawn from a distribution.
// It may be slowed down or stall at given times:
//
//   slow-down   requests that start meanwhile take `percent` of their time (300: three times)
//   stall       nothing progresses; requests in service continue afterwards
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

  Nanoseconds at{0};
  Nanoseconds length{0};
  std::uint32_t percent = kStall;  // of the usual time
};

struct StoreSpec {
  std::uint32_t slots = 16;
  ServiceTime service;
  std::vector<Disturbance> disturbances;
};

class Store {
 public:
  // REQUIRES: the spec outlives it.
  Store(const StoreSpec& spec, Rng rng) : spec_(spec), rng_(rng) {}

  Instant finish(Instant start, Bytes size);

 private:
  const StoreSpec& spec_;
  Rng rng_;
};

}  // namespace weir::sim
