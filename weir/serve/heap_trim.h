// SPDX-License-Identifier: Apache-2.0
//
// Decides when to return free pages of the heap to the kernel: when the memory of connections
// has fallen by kFallen since its maximum, and the last time was kPause ago. A wave of
// connections or requests leaves holes of its size; without this they would stay resident in
// addition to everything that --memory allows later. Not more often, because it stops the
// loop (weir/host/heap.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "weir/base/time.h"

namespace weir::serve {

class HeapTrim {
 public:
  static constexpr std::uint64_t kFallen = std::uint64_t{8} << 20;
  static constexpr Nanoseconds kPause = std::chrono::seconds{5};

  // Whether to trim now. `held`: bytes of the heap that connections hold.
  bool is_due(std::uint64_t held, Instant now) {
    most_ = std::max(most_, held);
    wakes_at_ = kNever;
    if (most_ - held < kFallen) return false;
    if (now < next_) {
      wakes_at_ = next_;
      return false;
    }
    most_ = held;
    next_ = now + kPause;
    return true;
  }
  // When is_due() becomes true if nothing changes.
  Instant wakes_at() const { return wakes_at_; }

 private:
  std::uint64_t most_ = 0;  // maximum since the last trim
  Instant next_{};
  Instant wakes_at_ = kNever;
};

}  // namespace weir::serve
