// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/rate_limiter.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

constexpr std::string_view kWhere = "rate limiter";

}  // namespace

Result<std::optional<LimiterSpec>> LimiterSpec::refilled_in(Tokens size, Tokens one_time_burst,
                                                            Nanoseconds refill_time) {
  if (size == Tokens{0} || refill_time == Nanoseconds{0}) return std::nullopt;
  if (refill_time < Nanoseconds{0}) {
    return fail(std::errc::invalid_argument, kWhere, "negative refill time",
                "give the time in which an empty bucket fills, or 0 for no limit");
  }
  const LimiterSpec spec{size, one_time_burst, Rate(size, refill_time)};
  if (const auto checked = spec.check(); !checked) return tl::unexpected(checked.error());
  return spec;
}

Result<void> LimiterSpec::check() const {
  if (size == Tokens{0}) {
    return fail(std::errc::invalid_argument, kWhere, "bucket of size 0",
                "omit the bucket for no limit");
  }
  if (!BucketShape::fits(rate, size)) {
    return fail(std::errc::value_too_large, kWhere, "bucket takes more than 100 years to fill",
                "lower its size or raise its rate");
  }
  return {};
}

LimiterBucket::LimiterBucket(const LimiterSpec& spec, Instant now)
    : shape_(spec.rate, spec.size),
      bucket_(TokenBucket::full(shape_, now)),
      burst_initial_(spec.one_time_burst),
      burst_left_(spec.one_time_burst) {}

Result<LimiterBucket> LimiterBucket::restore(const State& state, Instant now) {
  if (const auto checked = state.spec.check(); !checked) return tl::unexpected(checked.error());
  // Half the timeline on either side leaves room for the arithmetic that follows.
  if (state.one_time_burst_left > state.spec.one_time_burst ||
      state.zero_part >= state.spec.rate.tokens() || state.zero_age > kTimelineHalf / 2 ||
      state.zero_age < -kTimelineHalf / 2) {
    return fail(std::errc::invalid_argument, kWhere, "saved bucket is inconsistent",
                "start with a new bucket");
  }
  LimiterBucket bucket(state.spec, now);
  bucket.bucket_ = TokenBucket({now - state.zero_age, state.zero_part});
  bucket.burst_left_ = state.one_time_burst_left;
  return bucket;
}

LimiterBucket::State LimiterBucket::save(Instant now) const {
  const TokenBucket::ZeroPoint zero = bucket_.zero_point();
  // A debt longer than the timeline, or a zero point too far in the past, is clamped.
  const Nanoseconds age = std::clamp(now - zero.at, -kTimelineHalf / 2, kTimelineHalf / 2);
  return {{size(), burst_initial_, rate()}, burst_left_, age, zero.part};
}

Instant LimiterBucket::ready_at(Tokens n) const {
  const Tokens rest = beyond_burst(n);
  if (rest == Tokens{0} || rest > size()) return Instant::min();
  return bucket_.ready_at(rest, shape_);
}

void LimiterBucket::consume(Tokens n, Instant now) {
  const Tokens rest = beyond_burst(n);
  burst_left_ -= n - rest;
  bucket_.charge(rest, shape_, now);
}

void LimiterBucket::give_back(Tokens n, Instant now) {
  if (burst_left_ > Tokens{0}) {
    const Tokens to_burst = std::min(n, burst_initial_ - burst_left_);
    burst_left_ += to_burst;
    n -= to_burst;
  }
  bucket_.give_back(n, shape_);
  // Tokens above the depth would move the zero point further and further, eventually out of
  // the timeline.
  Spill lost;
  bucket_.trim(shape_, now, lost);
}

void LimiterBucket::replace(const LimiterSpec& spec, Instant now) {
  const BucketShape shape(spec.rate, spec.size);
  if (shape != shape_) bucket_.rescale(shape_, shape, now);
  shape_ = shape;
  if (burst_initial_ > Tokens{0}) {
    const auto left = static_cast<unsigned __int128>(burst_left_.count()) *
                      spec.one_time_burst.count() / burst_initial_.count();
    burst_left_ = Tokens{static_cast<std::uint64_t>(left)};
  }
  burst_initial_ = spec.one_time_burst;
}

RateLimiter::RateLimiter(const std::optional<LimiterSpec>& bytes,
                         const std::optional<LimiterSpec>& ops, Instant now) {
  if (bytes) bytes_.emplace(*bytes, now);
  if (ops) ops_.emplace(*ops, now);
}

Result<RateLimiter> RateLimiter::restore(const State& state, Instant now) {
  RateLimiter limiter({}, {}, now);
  for (const TokenKind kind : {TokenKind::kBytes, TokenKind::kOps}) {
    const auto& saved = kind == TokenKind::kBytes ? state.bytes : state.ops;
    if (!saved) continue;
    auto bucket = LimiterBucket::restore(*saved, now);
    if (!bucket) return tl::unexpected(bucket.error());
    limiter.bucket(kind) = *bucket;
  }
  limiter.block_ = state.block;
  limiter.reconsider(now);
  return limiter;
}

RateLimiter::State RateLimiter::save(Instant now) const {
  State state;
  if (bytes_) state.bytes = bytes_->save(now);
  if (ops_) state.ops = ops_->save(now);
  state.block = block_;
  return state;
}

bool RateLimiter::admits(Tokens n, TokenKind kind, Instant now) {
  const auto& limit = bucket(kind);
  if (!limit || limit->ready_at(n) <= now) return true;
  block_ = {kind, n};
  blocked_until_ = limit->ready_at(n);
  return false;
}

void RateLimiter::take(Tokens n, TokenKind kind, Instant now) {
  auto& limit = bucket(kind);
  if (!limit) return;
  limit->consume(n, now);
  if (limit->debt_paid_at() <= now) return;
  block_ = {kind, Tokens{0}};
  blocked_until_ = limit->debt_paid_at();
}

bool RateLimiter::consume(Tokens n, TokenKind kind, Instant now) {
  if (is_blocked() || !admits(n, kind, now)) return false;
  take(n, kind, now);
  return true;
}

bool RateLimiter::consume_op(Bytes bytes, Instant now) {
  // Checking both before taking from either has the same effect as taking the operation and giving
  // it back on refusal, without rounding through the one-time burst.
  const Tokens size{bytes.count()};
  if (is_blocked() || !admits(Tokens{1}, TokenKind::kOps, now) ||
      !admits(size, TokenKind::kBytes, now)) {
    return false;
  }
  take(Tokens{1}, TokenKind::kOps, now);
  take(size, TokenKind::kBytes, now);
  return true;
}

void RateLimiter::manual_replenish(Tokens n, TokenKind kind, Instant now) {
  if (auto& limit = bucket(kind)) limit->give_back(n, now);
  reconsider(now);
}

void RateLimiter::update_bucket(const BucketUpdate& update, TokenKind kind, Instant now) {
  auto& limit = bucket(kind);
  switch (update.action) {
    case BucketUpdate::Action::kKeep:
      return;
    case BucketUpdate::Action::kDisable:
      limit.reset();
      return;
    case BucketUpdate::Action::kReplace:
      WEIR_ASSERT(update.spec.has_value());
      if (limit && update.fill == BucketUpdate::Fill::kSame) {
        limit->replace(*update.spec, now);
      } else {
        limit.emplace(*update.spec, now);
      }
      return;
  }
}

void RateLimiter::update_buckets(const BucketUpdate& bytes, const BucketUpdate& ops, Instant now) {
  update_bucket(bytes, TokenKind::kBytes, now);
  update_bucket(ops, TokenKind::kOps, now);
  reconsider(now);
}

void RateLimiter::reconsider(Instant now) {
  if (!block_) return;
  const auto& limit = bucket(block_->kind);
  if (!limit) {
    blocked_until_ = now;
  } else if (block_->need == Tokens{0}) {
    blocked_until_ = limit->debt_paid_at();
  } else {
    blocked_until_ = limit->ready_at(block_->need);
  }
}

Result<void> RateLimiter::unblock(Instant now) {
  if (!block_) {
    return fail(std::errc::operation_not_permitted, kWhere, "unblock called while not blocked",
                "call it only after its timer has fired");
  }
  if (now < blocked_until_) {
    return fail(std::errc::resource_unavailable_try_again, kWhere, "unblock called too early",
                "wait until blocked_until()");
  }
  block_.reset();
  blocked_until_ = kNever;
  return {};
}

}  // namespace weir
