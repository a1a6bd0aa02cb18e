// SPDX-License-Identifier: Apache-2.0
//
// Detects stores that hang. A disk or a file server that hangs never completes its operations, and
// requests that wait for it would hold the slots of their service for ever, so that exports on
// other stores would stop too. A store with operations in progress that has completed none for
// kHungAfter counts as hung:
//
//   - its running requests return their slots to the service, so other exports continue;
//   - further requests to it are kept here, in their order, and hold no slot;
//   - each kHungAfter one of them is tried, since only a part of the store may hang.
//
// The first operation that it finishes ends this: what was kept goes to the store, at most `slots`
// at a time besides what it did not finish, while new requests hold slots as ever. Pure: time is
// given. One owner.
#pragma once

#include <chrono>
#include <cstdint>

#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/serve/store.h"

namespace weir::serve {

class StoreWatch {
 public:
  static constexpr Nanoseconds kHungAfter = std::chrono::seconds{1};

  explicit StoreWatch(std::uint32_t slots = 1) : slots_(slots) {}

  // The store works on it, and has finished it.
  void started(StoreOperation& operation, Instant now);
  void finished(StoreOperation& operation, Instant now);

  // When to call check(); kNever while the store has nothing to do.
  Instant wakes_at() const;
  // Whether the store has finished nothing for another kHungAfter. If so, give_up() gives what it
  // works on, one after the other, and try_one() the one to be tried; nullptr: there is none.
  bool check(Instant now);
  StoreOperation* give_up();
  StoreOperation* try_one();

  bool is_hung() const { return is_hung_; }
  // What it was given and has not finished since it hangs, and what is kept.
  std::uint32_t given_up() const { return given_up_; }
  std::uint32_t kept() const { return kept_count_; }
  // All that it was given and has not finished, one that is tried now included.
  std::uint32_t unfinished() const { return given_up_ + working_count_; }
  // For how long it has finished nothing, of what it was given before. REQUIRES: is_hung().
  Nanoseconds silence(Instant now) const { return now - silent_since_; }

  void keep(StoreOperation& operation);
  // One that is kept and not wanted any longer.
  void drop(StoreOperation& operation);
  // One that was kept and may go to the store now; nullptr: there is none.
  StoreOperation* resume();

 private:
  using List = Ring<StoreOperation, &StoreOperation::watch>;
  StoreOperation* take();

  std::uint32_t slots_;
  bool is_hung_ = false;
  Instant silent_since_;  // the store began to work, or finished something
  Instant quiet_since_;   // the same, or check() found that it hangs
  List working_;          // the store works on these
  List given_up_list_;    // and on these, which hold no slot
  List kept_;             // in their order
  std::uint32_t working_count_ = 0;
  std::uint32_t given_up_ = 0;
  std::uint32_t kept_count_ = 0;
};

}  // namespace weir::serve
