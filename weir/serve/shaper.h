// SPDX-License-Identifier: Apache-2.0
//
// Computes when a simulated slow device would complete operations. Each operation takes its share
// of the device's time, one after the other; latency is added and overlaps:
//
//   start = max(now, free);  free = start + 1/iops or bytes/bandwidth, whichever is longer
//   done  = free + latency
//
// With 2000 iops and 1 ms, operations that arrive at once are done after 1.5, 2.0, 2.5 ... ms.
// Fractions of a nanosecond are carried, so a million operations take their exact time. A change of
// shape applies to later operations. Pure: time is an argument.
#pragma once

#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"
#include "weir/serve/options.h"

namespace weir::serve {

class Shaper {
 public:
  explicit Shaper(const Shape& shape) : shape_(shape) {}

  // When an operation of this many bytes that arrives now is done.
  Instant done_at(Bytes bytes, Instant now);
  // Earlier results stay valid; later operations use the new speed.
  void reshape(const Shape& shape, Instant now);

 private:
  // The time of one resource of the device, with its remainder.
  struct Lane {
    Instant free = Instant::min();
    std::uint64_t remainder = 0;
    void take(std::uint64_t tokens, const Rate& rate, Instant now);
  };

  Shape shape_;
  Lane ops_;
  Lane bytes_;
};

}  // namespace weir::serve
