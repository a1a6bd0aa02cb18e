// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/sync_queue.h"

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

TEST(SyncQueue, ASyncThatIsAloneIsNotHeld) {
  SyncQueue queue;
  StoreOperation a;
  queue.begin(a);
  queue.end(a);
  EXPECT_FALSE(queue.holds(a));
  EXPECT_EQ(queue.release(), nullptr);
}

TEST(SyncQueue, ASyncIsHeldUntilThoseUnderWayWithItHaveEnded) {
  SyncQueue queue;
  StoreOperation a, b, c;
  queue.begin(a);
  queue.begin(b);
  queue.end(b);
  ASSERT_TRUE(queue.holds(b));
  EXPECT_EQ(queue.release(), nullptr) << "a may fail yet";
  queue.begin(c);  // started after b had ended: it cannot have got the error of b
  queue.end(a);
  EXPECT_TRUE(queue.holds(a)) << "c is under way";
  EXPECT_EQ(queue.release(), &b);
  EXPECT_EQ(queue.release(), nullptr);
  queue.end(c);
  EXPECT_FALSE(queue.holds(c));
  EXPECT_EQ(queue.release(), &a);
  EXPECT_EQ(queue.release(), nullptr);
}

TEST(SyncQueue, OneThatIsReleasedMayBeginAgain) {
  SyncQueue queue;
  StoreOperation a, b;
  queue.begin(a);
  queue.begin(b);
  queue.end(a);
  ASSERT_TRUE(queue.holds(a));
  queue.end(b);
  ASSERT_EQ(queue.release(), &a);
  queue.begin(a);
  queue.end(a);
  EXPECT_FALSE(queue.holds(a));
}

}  // namespace
}  // namespace weir::serve
