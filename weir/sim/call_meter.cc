// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/call_meter.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weir::sim {

CallMeter::CallMeter(Stopwatch stopwatch) : stopwatch_(std::move(stopwatch)) {
  if (!stopwatch_.now) return;
  std::array<Nanoseconds, kReadings> empty{};
  for (Nanoseconds& one : empty) {
    const Nanoseconds begin = stopwatch_.now();
    one = stopwatch_.now() - begin;
  }
  auto* const middle = empty.begin() + kReadings / 2;
  std::nth_element(empty.begin(), middle, empty.end());
  reading_ = *middle;
  switches_ = stopwatch_.switches();
}

void CallMeter::add(Nanoseconds spent) {
  batch_ += spent - reading_;
  if (++in_batch_ < kBatch) return;
  const std::uint64_t switches = stopwatch_.switches();
  if (switches == switches_) {
    spent_ += batch_;
    measured_ += in_batch_;
  }
  switches_ = switches;
  batch_ = Nanoseconds{0};
  in_batch_ = 0;
}

std::optional<Nanoseconds> CallMeter::estimate() const {
  if (measured_ == 0) return std::nullopt;
  using Wide = __int128;
  const Wide all = Wide{spent_.count()} * calls_ / measured_;
  return Nanoseconds{static_cast<std::int64_t>(std::max(all, Wide{0}))};
}

}  // namespace weir::sim
