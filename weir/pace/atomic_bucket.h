// SPDX-License-Identifier: Apache-2.0
//
// A token bucket of one word that any number of threads may take from without a lock. Its zero
// point is a whole nanosecond, so each take is rounded against the taker: it costs up to 1 ns of
// the rate too much and never too little. A take of n tokens at rate r is therefore charged at most
// 1 + r / (n * 10^9) times its price: 0.1 % more for single tokens at a million a second. If that
// matters, take several tokens at once or use TokenBucket under a mutex.
//
// A take that loses a race starts again from the state that the winner left, so the order of
// takes is the order of the successful exchanges. The word guards no other memory: relaxed
// ordering is enough.
#pragma once

#include <atomic>
#include <cstdint>

#include "weir/base/time.h"
#include "weir/pace/token_bucket.h"

namespace weir {

// Tokens that spilled from an AtomicBucket, for owners that need this number. Thread-safe.
class AtomicSpill {
 public:
  // Whole tokens since the last call; a fraction is kept for the next call. Never too many.
  Tokens collect(const BucketShape& shape);

 private:
  friend class AtomicBucket;
  std::atomic<std::uint64_t> ns_{0};
};

class AtomicBucket {
 public:
  // Starts full.
  AtomicBucket(const BucketShape& shape, Instant now)
      : zero_ns_(ns_of(now) - static_cast<std::int64_t>(shape.depth_span_.ns)) {}

  // Takes n tokens, or takes nothing and returns false. More than the depth is taken from a full
  // bucket and leaves a debt.
  bool take(Tokens n, const BucketShape& shape, Instant now) {
    return take_over(n, shape, now, nullptr);
  }
  // The same; tokens that spilled before now are added to `spill` (only on success: a refused take
  // finds no full bucket).
  bool take(Tokens n, const BucketShape& shape, Instant now, AtomicSpill& spill) {
    return take_over(n, shape, now, &spill);
  }
  // The first instant at which take(n) succeeds if nothing else is taken.
  Instant ready_at(Tokens n, const BucketShape& shape) const;
  // Moves tokens above the depth at `now` to `spill`.
  void trim(const BucketShape& shape, Instant now, AtomicSpill& spill);

 private:
  bool take_over(Tokens n, const BucketShape& shape, Instant now, AtomicSpill* spill);

  // The depth is rounded down, so a price of nearly the depth may exceed it by a fraction of a
  // nanosecond; like any larger price it is then taken from a full bucket.
  static std::int64_t need_ns(std::int64_t cost, const BucketShape& shape) {
    return cost < depth_ns(shape) ? cost : depth_ns(shape);
  }
  static std::int64_t depth_ns(const BucketShape& shape) {
    return static_cast<std::int64_t>(shape.depth_span_.ns);
  }

  std::atomic<std::int64_t> zero_ns_;
};
static_assert(sizeof(AtomicBucket) == 8);

inline bool AtomicBucket::take_over(Tokens n, const BucketShape& shape, Instant now,
                                    AtomicSpill* spill) {
  const std::int64_t cost = shape.span_ns_up(n);
  const std::int64_t need = need_ns(cost, shape);
  const std::int64_t rim = ns_of(now) - depth_ns(shape);
  std::int64_t zero = zero_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const std::int64_t start = zero < rim ? rim : zero;
    if (start > ns_of(now) - need) return false;
    if (zero_ns_.compare_exchange_weak(zero, start + cost, std::memory_order_relaxed)) {
      if (spill != nullptr && zero < rim) {
        spill->ns_.fetch_add(static_cast<std::uint64_t>(rim - zero), std::memory_order_relaxed);
      }
      return true;
    }
  }
}

}  // namespace weir
