// SPDX-License-Identifier: Apache-2.0
//
// How other threads reach the one that owns a loop: letters in a bounded box, and a descriptor that
// becomes readable when there are some.
//
//   any thread    if (box.put(std::move(letter)) != Put::kDone) ... nobody will read it ...
//   any thread    if (!box.put_always(std::move(letter))) ... the box is closed ...
//   the owner     ring reads box.fd() --> for (Letter& letter : box.take()) ...
//   the owner     for (Letter& letter : box.close()) ... the last ones ...
//
// The descriptor (an eventfd) is written to only when the box was empty, so a burst of letters
// wakes the loop once and costs it one read. A box that is closed takes nothing more: whatever was
// put before is in take() or in close(), once, and in the order in which it was put.
//
// The bound is for senders that have none of their own and can lose a letter. put_always() is for
// those that a flood of others must not lock out, and whose own number is bounded: a thread that
// waits for the answer, one letter for each open connection.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/eventfd.h>

#include "weir/base/assert.h"
#include "weir/base/result.h"
#include "weir/host/fd.h"

namespace weir::host {

// Closed on exec. Reading it waits until it is written to, so it is for a ring to read.
Result<Fd> make_wake_fd();

enum class Put : std::uint8_t { kDone, kFull, kClosed };

template <class Letter>
class Mailbox {
 public:
  Mailbox(Fd wake_fd, std::size_t letters_max)
      : wake_fd_(std::move(wake_fd)), letters_max_(letters_max) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Unless it is done the letter is dropped.
  [[nodiscard]] Put put(Letter letter) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Put::kClosed;
    if (letters_.size() >= letters_max_) return Put::kFull;
    add(std::move(letter));
    return Put::kDone;
  }
  // However many wait. False if the box is closed; then the letter is dropped.
  [[nodiscard]] bool put_always(Letter letter) {
    const std::lock_guard lock(mutex_);
    if (!closed_) add(std::move(letter));
    return !closed_;
  }

  int fd() const { return wake_fd_.get(); }

  std::vector<Letter> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(letters_, {});
  }
  std::vector<Letter> close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(letters_, {});
  }

 private:
  // REQUIRES: the mutex is held.
  void add(Letter letter) {
    letters_.push_back(std::move(letter));
    if (letters_.size() > 1) return;
    const int failed = eventfd_write(wake_fd_.get(), 1);
    WEIR_ASSERT(failed == 0, errno);
  }

  Fd wake_fd_;
  const std::size_t letters_max_;
  std::mutex mutex_;
  std::vector<Letter> letters_;
  bool closed_ = false;
};

}  // namespace weir::host
