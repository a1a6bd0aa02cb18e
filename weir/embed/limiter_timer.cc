// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/limiter_timer.h"

#include "weir/host/clock.h"

namespace weir::embed {

LimiterTimer::LimiterTimer(const RateLimiter& limiter, host::TimerFd timer)
    : limiter_(limiter), timer_(std::move(timer)) {
  arm_if_moved();
}

Result<LimiterTimer> LimiterTimer::create(const std::optional<LimiterSpec>& bytes,
                                          const std::optional<LimiterSpec>& ops) {
  for (const auto& spec : {bytes, ops}) {
    if (!spec) continue;
    if (const auto checked = spec->check(); !checked) return tl::unexpected(checked.error());
  }
  auto timer = host::TimerFd::create();
  if (!timer) return tl::unexpected(timer.error());
  return LimiterTimer(RateLimiter(bytes, ops, host::now()), std::move(*timer));
}

Result<LimiterTimer> LimiterTimer::restore(const RateLimiter::State& state, Nanoseconds age) {
  auto limiter = RateLimiter::restore(state, host::now() - age);
  if (!limiter) return tl::unexpected(limiter.error());
  auto timer = host::TimerFd::create();
  if (!timer) return tl::unexpected(timer.error());
  return LimiterTimer(*limiter, std::move(*timer));
}

RateLimiter::State LimiterTimer::save() const { return limiter_.save(host::now()); }

Result<void> LimiterTimer::event_handler() {
  if (!timer_.acknowledge()) {
    return fail(std::errc::resource_unavailable_try_again, "rate limiter", "no event is pending",
                "call event_handler() only when fd() is readable");
  }
  armed_for_ = kNever;
  return limiter_.unblock(host::now());
}

bool LimiterTimer::consume(Tokens n, TokenKind kind) {
  const bool taken = limiter_.consume(n, kind, host::now());
  arm_if_moved();
  return taken;
}

bool LimiterTimer::consume_op(Bytes bytes) {
  const bool taken = limiter_.consume_op(bytes, host::now());
  arm_if_moved();
  return taken;
}

void LimiterTimer::manual_replenish(Tokens n, TokenKind kind) {
  limiter_.manual_replenish(n, kind, host::now());
  arm_if_moved();
}

void LimiterTimer::update_buckets(const BucketUpdate& bytes, const BucketUpdate& ops) {
  limiter_.update_buckets(bytes, ops, host::now());
  arm_if_moved();
}

void LimiterTimer::arm_if_moved() {
  if (limiter_.blocked_until() == armed_for_) return;
  armed_for_ = limiter_.blocked_until();
  timer_.arm(armed_for_);
}

}  // namespace weir::embed
