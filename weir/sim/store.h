// SPDX-License-Identifier: Apache-2.0
//
// A device that serves so many requests at a time, each for a while that is drawn from a
// distribution. It may be slowed down or stand still at given times:
//
//   slow-down   what is started meanwhile takes `percent` of its time (300: three times as long)
//   stall       nothing moves; what is in service goes on afterwards where it stopped
//
// finish() says when a request that is started now will be done. It knows all disturbances ahead,
// so nothing has to be moved later. The caller limits how many are in service.
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
  Nanoseconds per_mib{0};                            // and what each MiB adds to it
  std::uint32_t spread_permille = 100;               // uniform: so far to either side

  // At least a nanosecond.
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
  // The spec must outlive it.
  Store(const StoreSpec& spec, Rng rng) : spec_(spec), rng_(rng) {}

  Instant finish(Instant start, Bytes size);

 private:
  const StoreSpec& spec_;
  Rng rng_;
};

}  // namespace weir::sim
