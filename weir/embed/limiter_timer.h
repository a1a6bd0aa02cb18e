// SPDX-License-Identifier: Apache-2.0
//
// A RateLimiter that wakes its user: the limiter, the monotonic clock and a timerfd, for any event
// loop that can wait for a file descriptor.
//
//   auto limiter = LimiterTimer::create(bytes, ops);
//   epoll_ctl(loop, EPOLL_CTL_ADD, limiter->fd(), ...);
//   if (limiter->consume_op(Bytes{4096})) { ...do the I/O... }   // refused: go back to the loop
//   // on an event of fd():
//   limiter->event_handler();                                     // then try again
//
// The timer is armed exactly while the limiter is blocked, for the time at which the refused
// request will fit, and again whenever a change moves that time. It has no thread: nothing happens
// unless the loop calls it. Not thread-safe. Every call that needs the time reads the clock.
#pragma once

#include <optional>

#include "weir/base/result.h"
#include "weir/host/timer_fd.h"
#include "weir/pace/rate_limiter.h"

namespace weir::embed {

class LimiterTimer {
 public:
  // The timer is created even if nothing is limited yet, since a later update may need it when no
  // descriptor is available any more.
  static Result<LimiterTimer> create(const std::optional<LimiterSpec>& bytes,
                                     const std::optional<LimiterSpec>& ops);
  // Continues from a saved state, as if `age` had passed since it was saved.
  static Result<LimiterTimer> restore(const RateLimiter::State& state,
                                      Nanoseconds age = Nanoseconds{0});
  RateLimiter::State save() const;

  // Readable when event_handler() is due.
  int fd() const { return timer_.fd(); }
  // Unblocks. Fails, without a change, if no event is pending.
  Result<void> event_handler();

  // As in RateLimiter; reads the clock.
  bool consume(Tokens n, TokenKind kind);
  bool consume_op(Bytes bytes);
  void manual_replenish(Tokens n, TokenKind kind);
  void update_buckets(const BucketUpdate& bytes, const BucketUpdate& ops);

  bool is_blocked() const { return limiter_.is_blocked(); }
  const RateLimiter& limiter() const { return limiter_; }

 private:
  LimiterTimer(const RateLimiter& limiter, host::TimerFd timer);
  void arm_if_moved();

  RateLimiter limiter_;
  host::TimerFd timer_;
  Instant armed_for_ = kNever;
};

}  // namespace weir::embed
