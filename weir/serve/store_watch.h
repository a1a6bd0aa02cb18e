// SPDX-License-Identifier: Apache-2.0
//
// Detects stores that hang. A disk or a file server that hangs never completes its operations, and
// requests that wait for it would hold the slots of their service for ever, so that exports on
// other stores would stop too. A store with operations in progress that has completed none for
// kHungAfter counts as hung:
//
//   - its running requests return their slots to the service, so other exports continue;
//   - further requests to it are kept here, in order, and hold no slot;
//   - each kHungAfter one of them is tried, since only part of the store may hang.
//
// The first operation that it completes ends this state: kept requests go to the store, at most
// `slots` at a time in addition to those not completed, while new requests hold slots as usual.
// Each loop watches its own operations of a store, and is told when the store completes those of
// other loops. Pure: time is an argument. One owner.
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

  // The store starts the operation, or has completed it.
  void started(StoreOperation& operation, Instant now);
  void finished(StoreOperation& operation, Instant now);

  // Another loop's watch of the same store saw it complete an operation then.
  void heard(Instant at);

  // When to call check(); kNever while the store has no operations.
  Instant wakes_at() const;
  // Whether the store has completed nothing for another kHungAfter. If so, give_up() returns its
  // operations, one after the other, and try_one() the one to try; nullptr: none.
  bool check(Instant now);
  StoreOperation* give_up();
  StoreOperation* try_one();

  bool is_hung() const { return is_hung_; }
  // Operations not completed since it hangs, and kept ones.
  std::uint32_t given_up() const { return given_up_; }
  std::uint32_t kept() const { return kept_count_; }
  // All operations not completed, including one that is tried now.
  std::uint32_t unfinished() const { return given_up_ + working_count_; }
  // Time since it last completed an earlier operation. REQUIRES: is_hung().
  Nanoseconds silence(Instant now) const { return now - silent_since_; }

  void keep(StoreOperation& operation);
  // A kept request that is no longer needed.
  void drop(StoreOperation& operation);
  // A kept request that may go to the store now; nullptr: none.
  StoreOperation* resume();

 private:
  using List = Ring<StoreOperation, &StoreOperation::watch>;
  StoreOperation* take();

  std::uint32_t slots_;
  bool is_hung_ = false;
  Instant silent_since_;  // when the store became busy, or last completed an operation
  Instant quiet_since_;   // the same, or when check() last found that it hangs
  List working_;          // operations in the store
  List given_up_list_;    // also in the store, but without a slot
  List kept_;             // in order
  std::uint32_t working_count_ = 0;
  std::uint32_t given_up_ = 0;
  std::uint32_t kept_count_ = 0;
};

}  // namespace weir::serve
