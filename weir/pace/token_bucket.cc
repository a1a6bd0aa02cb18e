// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/token_bucket.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;
using SignedWide = __int128;

constexpr std::uint64_t kSpanMax = static_cast<std::uint64_t>(kTimelineHalf.count());

BucketSpan divide(Wide parts, std::uint64_t count) {
  const Wide ns = parts / count;
  if (ns >= kSpanMax) return {kSpanMax, 0};
  return {static_cast<std::uint64_t>(ns), static_cast<std::uint64_t>(parts % count)};
}

SignedWide floor_divide(SignedWide a, SignedWide b) {
  const SignedWide quotient = a / b;
  return a % b < 0 ? quotient - 1 : quotient;
}

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? INT64_MAX : INT64_MIN;
}

}  // namespace

bool BucketShape::fits(Rate rate, Tokens depth) {
  const Wide parts = Wide{depth.count()} * rate.time_ns();
  return parts <=
         Wide{rate.tokens()} * static_cast<std::uint64_t>(Nanoseconds{kFillTimeMax}.count());
}

BucketShape::BucketShape(Rate rate, Tokens depth, Nanoseconds slack)
    : rate_(rate),
      depth_(depth),
      token_(divide(rate.time_ns(), rate.tokens())),
      depth_span_(divide(Wide{depth.count()} * rate.time_ns(), rate.tokens())),
      full_(depth_span_),
      reciprocal_(UINT64_MAX / rate.tokens()) {
  WEIR_ASSERT(depth.count() > 0);
  WEIR_ASSERT(fits(rate, depth), rate.tokens(), rate.time_ns(), depth.count());
  WEIR_ASSERT(slack >= Nanoseconds{0} && slack <= kSlackMax, slack.count());
  if (depth_span_.part != 0) full_ = {depth_span_.ns + 1, rate.tokens() - depth_span_.part};
  full_.ns += static_cast<std::uint64_t>(slack.count());
  // Both products of span() and their sum must stay in range: n * token_.ns below kSpanMax / 2,
  // and n * token_.part / tokens <= n * 1 is below that too.
  const std::uint64_t by_ns = kSpanMax / 2 / std::max<std::uint64_t>(token_.ns, 1);
  const std::uint64_t by_part = UINT64_MAX / std::max<std::uint64_t>(token_.part, 1);
  narrow_max_ = Tokens{std::min({by_ns, by_part, kSpanMax / 2})};
}

BucketSpan BucketShape::span_wide(Tokens n) const {
  return divide(Wide{n.count()} * rate_.time_ns(), rate_.tokens());
}

Tokens Spill::collect() {
  const Tokens spilled{whole_};
  whole_ = 0;
  return spilled;
}

void Spill::reshape(const BucketShape& from, const BucketShape& to) {
  part_ = static_cast<std::uint64_t>(Wide{part_} * to.rate().time_ns() / from.rate().time_ns());
}

void TokenBucket::charge(Tokens n, const BucketShape& shape, Instant now) {
  const TokenBucket start = trimmed(shape, now);
  const BucketSpan cost = shape.span(n);
  if (start.zero_ns_ > INT64_MAX - static_cast<std::int64_t>(cost.ns) - 1) {
    zero_ns_ = INT64_MAX;
    part_ = 0;
    return;
  }
  *this = start.plus(cost, shape);
}

void TokenBucket::give_back(Tokens n, const BucketShape& shape) {
  const BucketSpan cost = shape.span(n);
  zero_ns_ = saturating_add(zero_ns_, -static_cast<std::int64_t>(cost.ns));
  if (part_ >= cost.part) {
    part_ -= cost.part;
  } else {
    zero_ns_ = saturating_add(zero_ns_, -1);
    part_ += shape.rate_.tokens() - cost.part;
  }
}

// The balance in 1/time_ns() tokens: whole tokens are multiples of rate.time_ns(). A debt is
// counted up to kSpanMax of time, which keeps the product in 128 bits.
SignedWide TokenBucket::balance_parts(const BucketShape& shape, Instant now) const {
  const TokenBucket held = trimmed(shape, now);
  const SignedWide ns = std::max(SignedWide{ns_of(now)} - held.zero_ns_, -SignedWide{kSpanMax});
  return ns * static_cast<SignedWide>(shape.rate_.tokens()) - static_cast<SignedWide>(held.part_);
}

Tokens TokenBucket::level(const BucketShape& shape, Instant now) const {
  const SignedWide parts = balance_parts(shape, now);
  if (parts <= 0) return Tokens{0};
  const SignedWide whole = parts / static_cast<SignedWide>(shape.rate_.time_ns());
  return std::min(Tokens{static_cast<std::uint64_t>(whole)}, shape.depth_);
}

Tokens TokenBucket::debt(const BucketShape& shape, Instant now) const {
  const SignedWide parts = balance_parts(shape, now);
  if (parts >= 0) return Tokens{0};
  const SignedWide owed = -floor_divide(parts, static_cast<SignedWide>(shape.rate_.time_ns()));
  return Tokens{owed > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(owed)};
}

void TokenBucket::trim(const BucketShape& shape, Instant now, Spill& spill) {
  const TokenBucket rim = full(shape, now);
  if (!before(rim)) return;
  const SignedWide ns = std::min(SignedWide{rim.zero_ns_} - zero_ns_, SignedWide{kSpanMax});
  const SignedWide over = ns * static_cast<SignedWide>(shape.rate_.tokens()) +
                          static_cast<SignedWide>(rim.part_) - static_cast<SignedWide>(part_);
  const Wide parts = static_cast<Wide>(over) + spill.part_;
  const Wide whole = parts / shape.rate_.time_ns() + spill.whole_;
  spill.whole_ = whole > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(whole);
  spill.part_ = static_cast<std::uint64_t>(parts % shape.rate_.time_ns());
  *this = rim;
}

// Sets zero to now - parts, given in 1/rate.tokens() ns, with nothing above the depth.
void TokenBucket::set_age_parts(SignedWide parts, const BucketShape& shape, Instant now) {
  const auto count = static_cast<SignedWide>(shape.rate_.tokens());
  const SignedWide ns = floor_divide(parts, count);
  const SignedWide part = parts - ns * count;
  // Tokens above the depth are trimmed below and a debt ends with the timeline, so both can
  // be bounded.
  const SignedWide age =
      std::clamp(ns, -SignedWide{kSpanMax}, static_cast<SignedWide>(shape.full_.ns));
  zero_ns_ = ns_of(now) - static_cast<std::int64_t>(age) - (part != 0 ? 1 : 0);
  part_ = part == 0 ? 0 : static_cast<std::uint64_t>(count - part);
  *this = trimmed(shape, now);
}

void TokenBucket::reshape(const BucketShape& from, const BucketShape& to, Instant now) {
  const auto from_time = static_cast<SignedWide>(from.rate_.time_ns());
  const auto to_time = static_cast<SignedWide>(to.rate_.time_ns());
  const SignedWide balance = balance_parts(from, now);
  const SignedWide whole = floor_divide(balance, from_time);
  const SignedWide fraction = balance - whole * from_time;
  // A debt of more than 2^64 tokens counts as 2^64.
  const SignedWide held = std::max(whole, -static_cast<SignedWide>(UINT64_MAX));
  set_age_parts(held * to_time + fraction * to_time / from_time, to, now);
}

void TokenBucket::rescale(const BucketShape& from, const BucketShape& to, Instant now) {
  const SignedWide balance = balance_parts(from, now);
  if (balance <= 0) return reshape(from, to, now);
  // balance * to.depth / from.depth, whole tokens and the fraction separately to stay in 128 bits:
  // whole * to.depth = q * from.depth + r, fraction * to.depth = s * from.time + t
  const Wide from_time = from.rate_.time_ns();
  const Wide to_time = to.rate_.time_ns();
  const Wide from_depth = from.depth_.count();
  const Wide to_depth = to.depth_.count();
  const Wide whole = static_cast<Wide>(balance) / from_time * to_depth;
  const Wide fraction = static_cast<Wide>(balance) % from_time * to_depth;
  const Wide rest = (whole % from_depth + fraction / from_time) * to_time +
                    fraction % from_time * to_time / from_time;
  set_age_parts(static_cast<SignedWide>(whole / from_depth * to_time + rest / from_depth), to, now);
}

}  // namespace weir
