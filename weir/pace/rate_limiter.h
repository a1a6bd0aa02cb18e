// SPDX-License-Identifier: Apache-2.0
//
// The device rate limiter: operations and bytes, each with its own bucket, for an event loop that
// must know when to try again. The design is Firecracker's; docs/design/token-bucket.md lists the
// errors of its published description, which are corrected here.
//
//   consume ----fits-----> taken
//      |  \--more than the whole bucket--> taken at once; blocked until the excess is paid
//      '------does not fit-------------> refused; blocked until it will fit
//   blocked: both kinds refuse everything until unblock(), which is due at blocked_until()
//
// Example: 1000 bytes per second, size 1000. consume(1000) is taken, consume(100) is refused and
// blocks for 100 ms. consume(3000) on a full bucket is taken and blocks for 2 s; the time blocked
// pays the excess, so the bucket is then empty, not full.
//
// Pure: it does not own a timer. embed/limiter_timer.h pairs it with a timerfd. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/pace/token_bucket.h"

namespace weir {

enum class TokenKind : std::uint8_t { kBytes, kOps };

// The configuration of one bucket: `size` tokens deep, filled at `rate`, and `one_time_burst` extra
// tokens, spent first and never refilled.
struct LimiterSpec {
  Tokens size;
  Tokens one_time_burst;
  Rate rate;

  // Refilled from empty in `refill_time`. None, meaning no limit, if size or refill time is 0.
  // Fails if the time is negative or longer than BucketShape::kFillTimeMax.
  static Result<std::optional<LimiterSpec>> refilled_in(Tokens size, Tokens one_time_burst,
                                                        Nanoseconds refill_time);
  // Fails if the size is 0 or takes longer than BucketShape::kFillTimeMax to fill.
  Result<void> check() const;
  bool operator==(const LimiterSpec&) const = default;
};

// One of the limiter's two buckets.
class LimiterBucket {
 public:
  // The state of a bucket, independent of any clock: a paused machine keeps its budget.
  struct State {
    LimiterSpec spec;
    Tokens one_time_burst_left;
    Nanoseconds zero_age{};  // how long before the moment of saving its balance was zero
    std::uint64_t zero_part = 0;
    bool operator==(const State&) const = default;
  };

  // REQUIRES: spec.check().
  LimiterBucket(const LimiterSpec& spec, Instant now);
  static Result<LimiterBucket> restore(const State& state, Instant now);
  State save(Instant now) const;

  Tokens size() const { return shape_.depth(); }
  Rate rate() const { return shape_.rate(); }
  // Empty to full, rounded up to a nanosecond.
  Nanoseconds refill_time() const { return shape_.fill_time(); }
  Tokens budget(Instant now) const { return bucket_.level(shape_, now); }
  Tokens one_time_burst() const { return burst_initial_; }
  Tokens one_time_burst_left() const { return burst_left_; }
  bool operator==(const LimiterBucket&) const = default;

 private:
  friend class RateLimiter;

  // When consume(n) would succeed: at once if n exceeds the size.
  Instant ready_at(Tokens n) const;
  // REQUIRES: ready_at(n) <= now. May leave a debt, which is paid at debt_paid_at().
  void consume(Tokens n, Instant now);
  Instant debt_paid_at() const { return bucket_.ready_at(Tokens{0}, shape_); }
  void give_back(Tokens n, Instant now);
  void replace(const LimiterSpec& spec, Instant now);
  // The tokens that n tokens need from the bucket itself, after the one-time burst.
  Tokens beyond_burst(Tokens n) const { return n > burst_left_ ? n - burst_left_ : Tokens{0}; }

  BucketShape shape_;
  TokenBucket bucket_;
  Tokens burst_initial_;
  Tokens burst_left_;
};

// A change to one bucket of a running limiter.
struct BucketUpdate {
  enum class Action : std::uint8_t { kKeep, kDisable, kReplace };
  enum class Fill : std::uint8_t { kSame, kFull };

  static BucketUpdate keep() { return {}; }
  static BucketUpdate disable() { return {Action::kDisable, {}, {}}; }
  // Keeps the fill ratio of bucket and burst (a debt stays unchanged), so that frequent updates do
  // not defeat the limit, unless Fill::kFull. A bucket that was disabled starts full.
  static BucketUpdate replace(const LimiterSpec& spec, Fill fill = Fill::kSame) {
    return {Action::kReplace, spec, fill};
  }

  Action action = Action::kKeep;
  std::optional<LimiterSpec> spec;
  Fill fill = Fill::kSame;
};

class RateLimiter {
 public:
  struct State {
    // The refused request that blocks, or nothing if a debt blocks.
    struct Block {
      TokenKind kind;
      Tokens need;
      bool operator==(const Block&) const = default;
    };
    std::optional<LimiterBucket::State> bytes;
    std::optional<LimiterBucket::State> ops;
    std::optional<Block> block;
    bool operator==(const State&) const = default;
  };

  // A kind without a spec is not limited. Both buckets start full.
  RateLimiter(const std::optional<LimiterSpec>& bytes, const std::optional<LimiterSpec>& ops,
              Instant now);
  // No time passes between save and restore. Fails if the state is not valid.
  static Result<RateLimiter> restore(const State& state, Instant now);
  State save(Instant now) const;

  // Takes n tokens, or takes nothing, returns false and is blocked. n = 0 passes unless blocked.
  bool consume(Tokens n, TokenKind kind, Instant now);
  // One operation and its bytes: both or neither.
  bool consume_op(Bytes bytes, Instant now);
  // Gives back n tokens: to the one-time burst while some of it is left, up to its initial size,
  // the rest to the bucket, up to its size.
  void manual_replenish(Tokens n, TokenKind kind, Instant now);
  void update_buckets(const BucketUpdate& bytes, const BucketUpdate& ops, Instant now);

  bool is_blocked() const { return block_.has_value(); }
  // When unblock() is due; kNever when not blocked. Changes with any of the calls above.
  Instant blocked_until() const { return is_blocked() ? blocked_until_ : kNever; }
  // Call at that time. Fails if not blocked, or too early.
  Result<void> unblock(Instant now);

  const std::optional<LimiterBucket>& bytes() const { return bytes_; }
  const std::optional<LimiterBucket>& ops() const { return ops_; }

  bool operator==(const RateLimiter&) const = default;

 private:
  std::optional<LimiterBucket>& bucket(TokenKind kind) {
    return kind == TokenKind::kBytes ? bytes_ : ops_;
  }
  // Whether n tokens can be taken now; blocks if not.
  bool admits(Tokens n, TokenKind kind, Instant now);
  void take(Tokens n, TokenKind kind, Instant now);
  void update_bucket(const BucketUpdate& update, TokenKind kind, Instant now);
  // Checks the block again after a change; its end may be earlier or later.
  void reconsider(Instant now);

  std::optional<LimiterBucket> bytes_;
  std::optional<LimiterBucket> ops_;
  std::optional<State::Block> block_;
  Instant blocked_until_ = kNever;
};

}  // namespace weir
