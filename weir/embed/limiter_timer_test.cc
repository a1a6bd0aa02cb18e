// SPDX-License-Identifier: Apache-2.0
//
// Uses the real clock: waits for events, never for a time to pass, so on a slow machine these tests
// are slow but do not fail.
#include "weir/embed/limiter_timer.h"

#include <cerrno>
#include <optional>

#include <gtest/gtest.h>
#include <poll.h>

#include "weir/host/clock.h"

namespace weir::embed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::optional<LimiterSpec> spec(std::uint64_t size, Nanoseconds refill_time) {
  return *LimiterSpec::refilled_in(Tokens{size}, Tokens{0}, refill_time);
}

// Waits for the descriptor as an event loop would.
bool wait_readable(int fd, int timeout_ms) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  int ready;
  do {
    ready = poll(&wait, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

TEST(LimiterTimer, WakesWhoWasRefusedWhenTheRequestFits) {
  auto limiter = *LimiterTimer::create(spec(1000, milliseconds{20}), {});
  EXPECT_FALSE(wait_readable(limiter.fd(), 0));
  ASSERT_TRUE(limiter.consume_op(Bytes{1000}));
  ASSERT_FALSE(limiter.consume_op(Bytes{400}));
  EXPECT_TRUE(limiter.is_blocked());
  ASSERT_TRUE(wait_readable(limiter.fd(), -1));
  EXPECT_TRUE(limiter.event_handler());
  EXPECT_FALSE(limiter.is_blocked());
  EXPECT_TRUE(limiter.consume_op(Bytes{400}));
}

TEST(LimiterTimer, AnEventThatIsNotPendingIsAnErrorAndChangesNothing) {
  auto limiter = *LimiterTimer::create(spec(1000, seconds{1000}), {});
  EXPECT_EQ(limiter.event_handler().error().message(),
            "rate limiter: no event is pending; call event_handler() only when fd() is readable");
  ASSERT_TRUE(limiter.consume(Tokens{1000}, TokenKind::kBytes));
  ASSERT_FALSE(limiter.consume(Tokens{1000}, TokenKind::kBytes));
  EXPECT_FALSE(limiter.event_handler());
  EXPECT_TRUE(limiter.is_blocked());
}

TEST(LimiterTimer, AnUpdateWakesWhoWouldHaveWaitedForAnHour) {
  auto limiter = *LimiterTimer::create(spec(1000, seconds{3600}), {});
  ASSERT_TRUE(limiter.consume(Tokens{1000}, TokenKind::kBytes));
  ASSERT_FALSE(limiter.consume(Tokens{1000}, TokenKind::kBytes));
  limiter.update_buckets(BucketUpdate::replace(*spec(1000, milliseconds{1})), BucketUpdate::keep());
  ASSERT_TRUE(wait_readable(limiter.fd(), -1));
  EXPECT_TRUE(limiter.event_handler());
  EXPECT_TRUE(limiter.consume(Tokens{1000}, TokenKind::kBytes));
}

TEST(LimiterTimer, GivingBackWakesToo) {
  auto limiter = *LimiterTimer::create({}, spec(10, seconds{3600}));
  ASSERT_TRUE(limiter.consume(Tokens{10}, TokenKind::kOps));
  ASSERT_FALSE(limiter.consume(Tokens{10}, TokenKind::kOps));
  limiter.manual_replenish(Tokens{10}, TokenKind::kOps);
  ASSERT_TRUE(wait_readable(limiter.fd(), -1));
  EXPECT_TRUE(limiter.event_handler());
}

TEST(LimiterTimer, ARestoredBlockIsWokenAndTimePassedCounts) {
  auto limiter = *LimiterTimer::create(spec(1000, seconds{3600}), {});
  ASSERT_TRUE(limiter.consume(Tokens{2000}, TokenKind::kBytes));
  const RateLimiter::State state = limiter.save();
  auto paused = *LimiterTimer::restore(state);
  EXPECT_TRUE(paused.is_blocked());
  EXPECT_FALSE(wait_readable(paused.fd(), 0));
  auto an_hour_later = *LimiterTimer::restore(state, seconds{3600});
  ASSERT_TRUE(wait_readable(an_hour_later.fd(), -1));
  EXPECT_TRUE(an_hour_later.event_handler());
}

TEST(LimiterTimer, RefusesABadSpec) {
  const LimiterSpec bad{Tokens{0}, Tokens{0}, Rate::per_second(1)};
  EXPECT_FALSE(LimiterTimer::create(bad, {}));
  EXPECT_FALSE(LimiterTimer::create({}, bad));
}

}  // namespace
}  // namespace weir::embed
