// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/root.h"

#include <gtest/gtest.h>

namespace weir::tbf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// 1,000 a second: 10 at once after an idle time, and 100 while requests wait for the device.
RootBucket bucket() {
  return {.rested = BucketShape(Rate::per_second(1000), Tokens{10}),
          .busy = BucketShape(Rate::per_second(1000), Tokens{100})};
}

TEST(Root, WithoutABucketNobodyWaits) {
  Root root;
  EXPECT_FALSE(root.exists());
  EXPECT_EQ(root.ready_at(Tokens{1'000'000}), Instant::min());
  root.pay(Tokens{5}, at(0));
  root.give_back(Tokens{5});
}

TEST(Root, StartsFullAndPaces) {
  Root root;
  root.set(bucket(), at(0));
  root.pay(Tokens{10}, at(0));
  EXPECT_EQ(root.ready_at(Tokens{1}), at(1));
  root.give_back(Tokens{1});
  EXPECT_LE(root.ready_at(Tokens{1}), at(0));
}

TEST(Root, HoldsMoreWhileSomebodyWaitsThanAfterARest) {
  Root busy;
  busy.set(bucket(), at(0));
  busy.pay(Tokens{10}, at(0));
  busy.pay(Tokens{51}, at(50));  // the device was slow, and was never idle
  EXPECT_EQ(busy.ready_at(Tokens{1}), at(52));
  busy.rest();
  busy.pay(Tokens{10}, at(1000));
  EXPECT_EQ(busy.ready_at(Tokens{1}), at(1001)) << "after a rest it holds 10 and no more";
}

TEST(Root, AnotherRateKeepsTheBalance) {
  Root root;
  root.set(bucket(), at(0));
  root.pay(Tokens{10}, at(0));
  root.set(RootBucket{.rested = BucketShape(Rate::per_second(100), Tokens{10}),
                      .busy = BucketShape(Rate::per_second(100), Tokens{100})},
           at(0));
  EXPECT_EQ(root.ready_at(Tokens{1}), at(10));
  root.set(std::nullopt, at(0));
  EXPECT_FALSE(root.exists());
}

}  // namespace
}  // namespace weir::tbf
