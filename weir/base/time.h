// SPDX-License-Identifier: Apache-2.0
//
// Time as a value. An Instant is a point in time of a clock without now(), so code below host/ can
// only use the time that it is given, and runs the same with a real clock and with a simulated one.
//
// Resolution is one nanosecond in 64 bits. Instants must stay within +-kTimelineHalf of zero (146
// years), which leaves room to add or subtract any span up to that length without overflow.
#pragma once

#include <chrono>
#include <cstdint>

namespace weir {

using Nanoseconds = std::chrono::nanoseconds;

struct Timeline {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = Nanoseconds;
  using time_point = std::chrono::time_point<Timeline, duration>;
  static constexpr bool is_steady = true;
};

using Instant = Timeline::time_point;

inline constexpr Nanoseconds kTimelineHalf{std::int64_t{1} << 62};

// Later than any event: the answer to "when?" for something that will not happen by itself.
inline constexpr Instant kNever = Instant::max();

constexpr Instant instant_at(std::int64_t ns) { return Instant{Nanoseconds{ns}}; }
constexpr std::int64_t ns_of(Instant t) { return t.time_since_epoch().count(); }

}  // namespace weir
