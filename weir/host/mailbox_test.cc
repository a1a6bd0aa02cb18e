// SPDX-License-Identifier: Apache-2.0
#include "weir/host/mailbox.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "weir/host/clock.h"

namespace weir::host {
namespace {

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

std::uint64_t read_wakes(int fd) {
  eventfd_t wakes = 0;
  EXPECT_EQ(eventfd_read(fd, &wakes), 0);
  return wakes;
}

TEST(Mailbox, WakesItsOwnerOnceForABurst) {
  Mailbox<int> box(std::move(*make_wake_fd()), 10);
  EXPECT_FALSE(is_readable(box.fd()));
  for (int letter : {1, 2, 3}) ASSERT_EQ(box.put(letter), Put::kDone);
  ASSERT_TRUE(is_readable(box.fd()));
  EXPECT_EQ(read_wakes(box.fd()), 1U);
  EXPECT_EQ(box.take(), (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(box.take().empty());
  EXPECT_FALSE(is_readable(box.fd()));
  ASSERT_EQ(box.put(4), Put::kDone);
  EXPECT_TRUE(is_readable(box.fd()));
}

TEST(Mailbox, IsBounded) {
  Mailbox<int> box(std::move(*make_wake_fd()), 2);
  ASSERT_EQ(box.put(1), Put::kDone);
  ASSERT_EQ(box.put(2), Put::kDone);
  EXPECT_EQ(box.put(3), Put::kFull);
  EXPECT_EQ(box.take().size(), 2U);
  EXPECT_EQ(box.put(4), Put::kDone);
}

TEST(Mailbox, TakesAnOrderHoweverManyWait) {
  Mailbox<int> box(std::move(*make_wake_fd()), 1);
  ASSERT_EQ(box.put(1), Put::kDone);
  EXPECT_TRUE(box.put_always(2));
  EXPECT_EQ(box.put(3), Put::kFull);
  EXPECT_TRUE(box.put_always(4));
  EXPECT_EQ(read_wakes(box.fd()), 1U);
  EXPECT_EQ(box.take(), (std::vector<int>{1, 2, 4}));
  EXPECT_TRUE(box.put_always(5));
  EXPECT_TRUE(is_readable(box.fd()));
  EXPECT_EQ(box.close(), std::vector<int>{5});
  EXPECT_FALSE(box.put_always(6));
}

// For owners without an event loop.
TEST(Mailbox, IsWaitedForByItsOwner) {
  Mailbox<int> box(std::move(*make_wake_fd()));
  std::thread sender([&] { EXPECT_TRUE(box.put_always(1)); });
  box.wait(kNever);
  EXPECT_EQ(box.take(), std::vector<int>{1});
  EXPECT_FALSE(is_readable(box.fd()));
  sender.join();
}

TEST(Mailbox, IsWaitedForNoLongerThanAsked) {
  Mailbox<int> box(std::move(*make_wake_fd()));
  const Instant until = now() + std::chrono::milliseconds{2};
  box.wait(until);
  EXPECT_GE(now(), until);
  box.wait(Instant{});
  EXPECT_TRUE(box.take().empty());
}

// The wake-up of a letter that was already taken does not end the next wait.
TEST(Mailbox, IsNotWokenTwiceForOneLetter) {
  Mailbox<int> box(std::move(*make_wake_fd()));
  ASSERT_TRUE(box.put_always(1));
  box.wait(Instant{});
  EXPECT_EQ(box.take(), std::vector<int>{1});
  EXPECT_FALSE(is_readable(box.fd()));
}

TEST(Wake, StaysSetUntilItIsCleared) {
  const Wake wake(std::move(*make_wake_fd()));
  EXPECT_FALSE(wake.wait(Instant{}));
  wake.set();
  EXPECT_TRUE(wake.wait(kNever));
  EXPECT_TRUE(wake.wait(Instant{}));
  wake.clear();
  EXPECT_FALSE(wake.wait(Instant{}));
}

TEST(Mailbox, GivesTheLastLettersWhenItCloses) {
  Mailbox<int> box(std::move(*make_wake_fd()), 10);
  ASSERT_EQ(box.put(1), Put::kDone);
  EXPECT_EQ(box.close(), std::vector<int>{1});
  EXPECT_EQ(box.put(2), Put::kClosed);
  EXPECT_TRUE(box.close().empty());
}

}  // namespace
}  // namespace weir::host
