// SPDX-License-Identifier: Apache-2.0
//
// How threads in Weir communicate: messages (letters) in a mailbox, and a descriptor that becomes
// readable when there are some. A letter is a value, or a function for the owner to call.
//
//   any thread    if (box.put(std::move(letter)) != Put::kDone) ... it was not accepted ...
//   any thread    if (!box.put_always(std::move(letter))) ... the box is closed ...
//   the owner     box.wait(until);  for (Letter& letter : box.take()) ...
//   the owner     for (Letter& letter : box.close()) ... the last ones ...
//
// Owners that also wait for other descriptors (an IoLoop, poll, Asio) include box.fd() and read it
// (box.clear()) before they take. The descriptor (an eventfd) is written only when the box was
// empty, so a burst of letters wakes the owner once and costs it one read. A closed mailbox accepts
// no letters: every earlier letter is returned by take() or close(), once, and in order.
//
// The bound is for senders that have no bound of their own and can lose a letter. put_always() is
// for senders that must not be locked out by a flood, and whose number is bounded: a thread that
// waits for the answer, one letter for each open connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/mutex.h"

namespace weir::host {

// Closed on exec. Reading it blocks until it is written, so it is for IoLoop::await_wake().
Result<Fd> make_wake_fd();

// A descriptor that any thread can make readable: a mailbox for a single signal, such as an order
// to stop.
class Wake {
 public:
  explicit Wake(Fd fd) : fd_(std::move(fd)) {}

  void set() const;
  // REQUIRES: it is readable, or the caller may block.
  void clear() const;
  // Waits until it is set, or until that time; does not clear it. Returns whether it is set.
  bool wait(Instant until) const;
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

enum class Put : std::uint8_t { kDone, kFull, kClosed };

template <class Letter>
class Mailbox {
 public:
  // Without a bound, only put_always() can be used.
  explicit Mailbox(Fd wake_fd, std::size_t letters_max = 0)
      : wake_(std::move(wake_fd)), letters_max_(letters_max) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // The letter is dropped unless the result is kDone.
  [[nodiscard]] Put put(Letter letter) {
    const MutexLock lock(mutex_);
    if (closed_) return Put::kClosed;
    if (letters_.size() >= letters_max_) return Put::kFull;
    add(std::move(letter));
    return Put::kDone;
  }
  // Ignores the bound. False if the box is closed; then the letter is dropped.
  [[nodiscard]] bool put_always(Letter letter) {
    const MutexLock lock(mutex_);
    if (!closed_) add(std::move(letter));
    return !closed_;
  }

  int fd() const { return wake_.fd(); }
  void clear() const { wake_.clear(); }
  // Waits until there is a letter, or until that time.
  void wait(Instant until) const {
    if (wake_.wait(until)) wake_.clear();
  }

  std::vector<Letter> take() {
    const MutexLock lock(mutex_);
    return std::exchange(letters_, {});
  }
  std::vector<Letter> close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    return std::exchange(letters_, {});
  }

 private:
  void add(Letter letter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    letters_.push_back(std::move(letter));
    if (letters_.size() == 1) wake_.set();
  }

  const Wake wake_;
  const std::size_t letters_max_;
  Mutex mutex_;
  std::vector<Letter> letters_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weir::host
