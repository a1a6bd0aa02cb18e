// SPDX-License-Identifier: Apache-2.0
//
// A mutex that clang checks: members name the mutex that guards them, and clang's -Wthread-safety
// rejects code that uses them without holding it.
//
//   host::Mutex mutex_;
//   std::string trouble_ ABSL_GUARDED_BY(mutex_);
//   void add(Line line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
//
//   const host::MutexLock lock(mutex_);            until the end of the scope
//   while (!is_answered_) answered_.wait(lock);    a loop, since lambdas are not checked
//
// Uses std::mutex: the thread sanitizer does not know Abseil's mutex unless Abseil was built with
// it, which Debian's was not. Use it for state that several threads read and change; pass work to
// another thread with a Mailbox.
#pragma once

#include <condition_variable>
#include <mutex>

#include <absl/base/thread_annotations.h>

#include "weir/base/time.h"

namespace weir::host {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Temporarily, in the middle of a scope.
  void unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

 private:
  friend class Condition;
  mutable std::unique_lock<std::mutex> lock_;
};

// Waits may end spuriously: the caller checks again.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }
  void wait(const MutexLock& lock) { condition_.wait(lock.lock_); }
  void wait_for(const MutexLock& lock, Nanoseconds most) { condition_.wait_for(lock.lock_, most); }

 private:
  std::condition_variable condition_;
};

}  // namespace weir::host
