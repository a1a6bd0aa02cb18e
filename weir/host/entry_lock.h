// SPDX-License-Identifier: Apache-2.0
//
// A lock that its users try: a loop that finds it taken leaves its work for the holder and
// continues. Only rare callers wait for it.
//
//   if (!lock.try_lock()) ...leave the work where the holder looks for it, and try once more...
//   lock.unlock();           then look for work that was left meanwhile
//
// try_lock() and unlock() are totally ordered with all other sequentially consistent operations: a
// thread that has left work and then finds the lock taken can rely on the holder to look for work
// after that. A mutex promises this only if it is locked. Not recursive. Use Mutex (mutex.h)
// wherever threads may wait.
//
// Members name it as their guard, which clang checks. Where there is only one thread, or where
// clang cannot follow who has locked it, the code says so:
//
//   lock_.assert_alone();   no other thread exists that could lock it
//   lock_.assert_taken();   a caller of this function holds it
#pragma once

#include <atomic>
#include <cstdint>

#include <absl/base/thread_annotations.h>

#include "weir/base/assert.h"

namespace weir::host {

class ABSL_LOCKABLE EntryLock {
 public:
  EntryLock() = default;
  EntryLock(const EntryLock&) = delete;
  EntryLock& operator=(const EntryLock&) = delete;

  bool try_lock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kTaken);
  }
  // Waits until it is free.
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (try_lock()) return;
    while (state_.exchange(kAwaited) != kFree) state_.wait(kAwaited);
  }
  void unlock() ABSL_UNLOCK_FUNCTION() {
    if (state_.exchange(kFree) == kAwaited) state_.notify_one();
  }

  void assert_alone() const ABSL_ASSERT_EXCLUSIVE_LOCK() {
    WEIR_ASSERT(state_.load(std::memory_order_relaxed) == kFree);
  }
  void assert_taken() const ABSL_ASSERT_EXCLUSIVE_LOCK() {
    WEIR_ASSERT(state_.load(std::memory_order_relaxed) != kFree);
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kAwaited = 2;  // taken, and a thread may wait

  std::atomic<std::uint32_t> state_ = kFree;
};

}  // namespace weir::host
