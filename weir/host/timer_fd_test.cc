// SPDX-License-Identifier: Apache-2.0
//
// Uses the real clock: waits for events, never for a time to pass, so on a slow machine these tests
// are slow but do not fail.
#include "weir/host/timer_fd.h"

#include <cerrno>

#include <gtest/gtest.h>
#include <poll.h>

#include "weir/host/clock.h"

namespace weir::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Waits for the descriptor as an event loop would.
bool wait_readable(int fd, int timeout_ms) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  int ready;
  do {
    ready = poll(&wait, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

TEST(TimerFd, FiresAtItsInstantAndNotBefore) {
  TimerFd timer = *TimerFd::create();
  EXPECT_FALSE(timer.acknowledge());
  const Instant when = now() + milliseconds{3};
  timer.arm(when);
  ASSERT_TRUE(wait_readable(timer.fd(), -1));
  EXPECT_GE(now(), when);
  EXPECT_TRUE(timer.acknowledge());
  EXPECT_FALSE(timer.acknowledge());
}

TEST(TimerFd, AnInstantThatHasPassedFiresAtOnce) {
  TimerFd timer = *TimerFd::create();
  for (const Instant past : {now() - seconds{1}, instant_at(0), instant_at(-5), Instant::min()}) {
    timer.arm(past);
    ASSERT_TRUE(wait_readable(timer.fd(), -1));
    EXPECT_TRUE(timer.acknowledge());
  }
}

TEST(TimerFd, NeverIsNeverAndRearmingForgetsWhatHadFired) {
  TimerFd timer = *TimerFd::create();
  timer.arm(now());
  ASSERT_TRUE(wait_readable(timer.fd(), -1));
  timer.disarm();
  EXPECT_FALSE(wait_readable(timer.fd(), 0));
  timer.arm(kNever - Nanoseconds{1});
  EXPECT_FALSE(wait_readable(timer.fd(), 0));
}

}  // namespace
}  // namespace weir::host
