// SPDX-License-Identifier: Apache-2.0
//
// Wakes a loop that sleeps, and costs almost nothing while it does not:
//
//   any thread   leave something for the loop, then bell.ring()
//   the loop     bell.fall_asleep(); look for work that was left; wait if there is none;
//                bell.wake_up()
//
// The descriptor is written at most once for each sleep. What a thread leaves must be visible
// before ring(): store it with a sequentially consistent operation, or under a mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "weir/host/fd.h"
#include "weir/host/mailbox.h"

namespace weir::serve {

class Doorbell {
 public:
  explicit Doorbell(host::Fd wake_fd) : wake_(std::move(wake_fd)) {}

  void ring() {
    if (!is_asleep_.exchange(false)) return;
    rung_.fetch_add(1, std::memory_order_relaxed);
    wake_.set();
  }

  // ---- for the loop ----
  void fall_asleep() { is_asleep_.store(true); }
  void wake_up() { is_asleep_.store(false, std::memory_order_relaxed); }
  int fd() const { return wake_.fd(); }

  // How often the loop was woken.
  std::uint64_t rung() const { return rung_.load(std::memory_order_relaxed); }

 private:
  host::Wake wake_;
  std::atomic<bool> is_asleep_ = false;
  std::atomic<std::uint64_t> rung_ = 0;
};

}  // namespace weir::serve
