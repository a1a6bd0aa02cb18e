// SPDX-License-Identifier: Apache-2.0
//
// The token bucket that paces everything in Weir. It fills at a rate up to its depth, and each
// request takes its cost. No timer refills it: its whole state is the time at which its balance is
// (was, will be) zero, and the balance at any `now` follows from that.
//
//        zero                     now            balance = (now - zero) * rate, at most depth
//   -------|------------------------|-----> t    take n:  zero += n / rate
//          |<- balance / rate ----->|            debt:    zero > now
//
// n / rate is rarely a whole number of nanoseconds, so zero has two words: whole nanoseconds, and a
// fraction in units of 1/rate ns. Nothing is rounded while the rate stays the same. Worked example,
// 3 tokens per second, one token = 333,333,333 1/3 ns:
//
//   take 1: zero += 333,333,333 ns, part 1/3     take 1: ... part 2/3     take 1: exactly 1 s later
//
// The rate and depth are in a separate BucketShape, which many buckets share and which contains
// precomputed constants, so that a take needs no division.
//
// Time: `now` is an argument, within kTimelineHalf of zero. If `now` steps back, the bucket looks
// emptier until time has caught up; it never gains tokens. Not thread-safe: see AtomicBucket.
#pragma once

#include <cstdint>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"

namespace weir {

// A duration on the bucket's own scale: ns + part / rate.tokens().
struct BucketSpan {
  std::uint64_t ns = 0;
  std::uint64_t part = 0;
};

class BucketShape {
 public:
  // An empty bucket must be full again within this time.
  static constexpr Nanoseconds kFillTimeMax = std::chrono::hours{24 * 365 * 100};
  static bool fits(Rate rate, Tokens depth);

  // With a slack the bucket holds the tokens of that time in addition to its depth, so that a taker
  // that is late by no more loses nothing: depth 1 at 100 tokens a second and a slack of 10 ms hold
  // 2 tokens, and in any time t at most 100 t + 2 are taken. REQUIRES: depth > 0, fits(rate,
  // depth), 0 <= slack <= kSlackMax.
  static constexpr Nanoseconds kSlackMax = std::chrono::seconds{1};
  BucketShape(Rate rate, Tokens depth, Nanoseconds slack = Nanoseconds{0});

  Rate rate() const { return rate_; }
  Tokens depth() const { return depth_; }
  // Empty to full, rounded up.
  Nanoseconds fill_time() const { return Nanoseconds{static_cast<std::int64_t>(full_.ns)}; }
  // The time in which n tokens arrive, rounded up.
  Nanoseconds time_for(Tokens n) const { return Nanoseconds{span_ns_up(n)}; }

  bool operator==(const BucketShape& other) const {
    return rate_ == other.rate_ && depth_ == other.depth_ && full_.ns == other.full_.ns;
  }

 private:
  friend class TokenBucket;
  friend class AtomicBucket;
  friend class Spill;
  friend class AtomicSpill;

  // The time in which n tokens arrive; saturates at kTimelineHalf.
  BucketSpan span(Tokens n) const;
  BucketSpan span_wide(Tokens n) const;
  // The same in whole nanoseconds, rounded up.
  std::int64_t span_ns_up(Tokens n) const {
    const BucketSpan exact = span(n);
    return static_cast<std::int64_t>(exact.ns) + (exact.part != 0 ? 1 : 0);
  }

  Rate rate_;
  Tokens depth_;
  BucketSpan token_;       // one token
  BucketSpan depth_span_;  // depth tokens
  BucketSpan full_;  // now - full_ is the zero point of a full bucket: {ceil, -part}, with slack
  std::uint64_t reciprocal_;  // about 2^64 / rate.tokens()
  Tokens narrow_max_;         // span() of up to so many tokens fits into 64-bit products
};

// Tokens that spilled from a full bucket: rate x time without a take. An owner that needs this
// number keeps a Spill beside the bucket and passes it to trim() or take().
class Spill {
 public:
  // Whole tokens since the last call; the fraction is kept for the next call.
  Tokens collect();
  // Call together with TokenBucket::reshape, since the fraction is in the shape's own unit.
  void reshape(const BucketShape& from, const BucketShape& to);

 private:
  friend class TokenBucket;
  std::uint64_t whole_ = 0;
  std::uint64_t part_ = 0;  // in 1/rate.time_ns() token
};

class TokenBucket {
 public:
  struct ZeroPoint {
    Instant at;
    std::uint64_t part = 0;
    bool operator==(const ZeroPoint&) const = default;
  };

  static TokenBucket full(const BucketShape& shape, Instant now) {
    return TokenBucket({now - shape.fill_time(), shape.full_.part});
  }
  static TokenBucket empty(Instant now) { return TokenBucket({now, 0}); }
  explicit TokenBucket(ZeroPoint zero) : zero_ns_(ns_of(zero.at)), part_(zero.part) {}

  // Takes n tokens, or takes nothing and returns false. More than the depth is taken from a full
  // bucket and leaves a debt, so that no size waits for ever. n = 0 succeeds unless there is debt.
  bool take(Tokens n, const BucketShape& shape, Instant now);
  // The same; tokens that spilled before now are added to `spill`.
  bool take(Tokens n, const BucketShape& shape, Instant now, Spill& spill) {
    trim(shape, now, spill);
    return take(n, shape, now);
  }
  bool can_take(Tokens n, const BucketShape& shape, Instant now) const {
    return ready_at(n, shape) <= now;
  }
  // The first instant at which take(n) succeeds if nothing else is taken; may be in the past.
  // kNever only beyond the end of the timeline.
  Instant ready_at(Tokens n, const BucketShape& shape) const;

  // Takes n tokens whatever the balance; may leave a debt. Saturates at the end of the timeline.
  void charge(Tokens n, const BucketShape& shape, Instant now);
  // Reverts a take of n. Tokens above the depth are lost.
  void give_back(Tokens n, const BucketShape& shape);

  // Whole tokens available, 0 if in debt; and tokens owed, rounded up, 0 if not in debt.
  Tokens level(const BucketShape& shape, Instant now) const;
  Tokens debt(const BucketShape& shape, Instant now) const;

  // Moves tokens above the depth at `now` to `spill`.
  void trim(const BucketShape& shape, Instant now, Spill& spill);

  // Another rate or depth from now on. Keeps the balance (including fractions of a token, to 1/rate
  // ns, rounded against the taker), but at most the new depth.
  void reshape(const BucketShape& from, const BucketShape& to, Instant now);
  // The same, but keeps the fill ratio: half full stays half full. A debt stays unchanged.
  void rescale(const BucketShape& from, const BucketShape& to, Instant now);

  ZeroPoint zero_point() const { return {instant_at(zero_ns_), part_}; }
  bool operator==(const TokenBucket&) const = default;

 private:
  // This bucket without tokens above the depth at `now`.
  TokenBucket trimmed(const BucketShape& shape, Instant now) const {
    const TokenBucket rim = full(shape, now);
    return before(rim) ? rim : *this;
  }
  bool before(const TokenBucket& other) const {
    return zero_ns_ < other.zero_ns_ || (zero_ns_ == other.zero_ns_ && part_ < other.part_);
  }
  TokenBucket plus(BucketSpan span, const BucketShape& shape) const;
  std::int64_t ceil_ns() const { return zero_ns_ + (part_ != 0 ? 1 : 0); }
  __int128 balance_parts(const BucketShape& shape, Instant now) const;
  void set_age_parts(__int128 parts, const BucketShape& shape, Instant now);

  std::int64_t zero_ns_;
  std::uint64_t part_;  // in 1/rate.tokens() ns, less than one
};
static_assert(sizeof(TokenBucket) == 16);

// ---- hot path ----

inline BucketSpan BucketShape::span(Tokens n) const {
  if (n.count() == 1) return token_;
  if (n > narrow_max_) [[unlikely]] {
    return span_wide(n);
  }
  // n * token_.part / rate.tokens() by a multiplication with the reciprocal, whose result is at
  // most one too small. None of it depends on the bucket, so it overlaps with the take before.
  const std::uint64_t count = rate_.tokens();
  const std::uint64_t parts = n.count() * token_.part;
  std::uint64_t whole =
      static_cast<std::uint64_t>((static_cast<unsigned __int128>(parts) * reciprocal_) >> 64);
  std::uint64_t part = parts - whole * count;
  if (part >= count) part -= count, ++whole;
  return {n.count() * token_.ns + whole, part};
}

inline TokenBucket TokenBucket::plus(BucketSpan span, const BucketShape& shape) const {
  TokenBucket sum = *this;
  sum.zero_ns_ += static_cast<std::int64_t>(span.ns);
  const std::uint64_t room = shape.rate_.tokens() - part_;  // to the next whole nanosecond
  if (span.part >= room) {
    sum.zero_ns_ += 1;
    sum.part_ = span.part - room;
  } else {
    sum.part_ += span.part;
  }
  return sum;
}

inline Instant TokenBucket::ready_at(Tokens n, const BucketShape& shape) const {
  const BucketSpan need = n <= shape.depth_ ? shape.span(n) : shape.depth_span_;
  // The zero point of a large debt may be near the end of the timeline.
  if (zero_ns_ > INT64_MAX - static_cast<std::int64_t>(need.ns) - 2) return kNever;
  return instant_at(plus(need, shape).ceil_ns());
}

inline bool TokenBucket::take(Tokens n, const BucketShape& shape, Instant now) {
  const TokenBucket start = trimmed(shape, now);
  const BucketSpan cost = shape.span(n);
  // A zero point at or before now needs no guard against overflow: spans are bounded.
  if (start.ceil_ns() > ns_of(now)) return false;
  const TokenBucket end = start.plus(cost, shape);
  if (n <= shape.depth_) {
    if (end.ceil_ns() > ns_of(now)) return false;
  } else if (start.plus(shape.depth_span_, shape).ceil_ns() > ns_of(now)) {
    return false;
  }
  *this = end;
  return true;
}

}  // namespace weir
