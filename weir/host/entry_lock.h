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
// after that. A mutex promises this only if it is locked. Not recursive. clang does not check what
// it guards, because a server with one loop has no need to lock; use Mutex (mutex.h) wherever
// threads may wait.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir::host {

class EntryLock {
 public:
  EntryLock() = default;
  EntryLock(const EntryLock&) = delete;
  EntryLock& operator=(const EntryLock&) = delete;

  bool try_lock() {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kTaken);
  }
  // Waits until it is free.
  void lock() {
    if (try_lock()) return;
    while (state_.exchange(kAwaited) != kFree) state_.wait(kAwaited);
  }
  void unlock() {
    if (state_.exchange(kFree) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kAwaited = 2;  // taken, and a thread may wait

  std::atomic<std::uint32_t> state_ = kFree;
};

}  // namespace weir::host
