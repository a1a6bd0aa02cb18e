// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/store.h"

#include <algorithm>
#include <cmath>

namespace weir::sim {
namespace {

constexpr double kMib = 1024 * 1024;

// Above 0, at most 1.
double draw_fraction(Rng& rng) { return (static_cast<double>(rng.next() >> 11) + 1) * 0x1p-53; }

}  // namespace

Nanoseconds ServiceTime::draw(Bytes size, Rng& rng) const {
  std::int64_t mean = base.count();
  if (per_mib > Nanoseconds{0}) {
    mean += std::llround(static_cast<double>(per_mib.count()) *
                         (static_cast<double>(size.count()) / kMib));
  }
  std::int64_t time = mean;
  if (kind == Kind::kUniform) {
    const auto spread =
        static_cast<std::int64_t>(static_cast<double>(mean) * spread_permille / 1000);
    time = rng.between(mean - spread, mean + spread);
  } else if (kind == Kind::kExponential) {
    time = std::llround(-std::log(draw_fraction(rng)) * static_cast<double>(mean));
  }
  return Nanoseconds{std::max<std::int64_t>(time, 1)};
}

Instant Store::finish(Instant start, Bytes size) {
  Nanoseconds time = spec_.service.draw(size, rng_);
  for (const Disturbance& slow : spec_.disturbances) {
    const Instant begin{slow.at};
    if (slow.percent != Disturbance::kStall && start >= begin && start < begin + slow.length) {
      time = std::max(time * slow.percent / 100, Nanoseconds{1});
    }
  }
  Instant end = start + time;
  // Stalls are in order of time: each may push the end into the next.
  for (const Disturbance& stall : spec_.disturbances) {
    const Instant begin{stall.at};
    if (stall.percent != Disturbance::kStall || end <= begin || start >= begin + stall.length) {
      continue;
    }
    end += begin + stall.length - std::max(start, begin);
  }
  return end;
}

}  // namespace weir::sim
