// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/store_watch.h"

#include <array>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kAfter = StoreWatch::kHungAfter;

Instant at(std::int64_t ms) { return Instant{} + milliseconds{ms}; }

// Operations must not be linked when they are destroyed.
void finish_all(StoreWatch& watch, std::initializer_list<StoreOperation*> operations) {
  for (StoreOperation* const one : operations) watch.finished(*one, at(1'000'000));
}

TEST(StoreWatch, AStoreThatFinishesSomethingNowAndThenDoesNotHang) {
  StoreWatch watch(2);
  EXPECT_EQ(watch.wakes_at(), kNever);
  StoreOperation slow, quick;
  watch.started(slow, at(0));
  for (int i = 0; i < 10; ++i) {
    watch.started(quick, at(i * 900));
    EXPECT_FALSE(watch.check(at(i * 900 + 899)));
    watch.finished(quick, at(i * 900 + 899));
  }
  EXPECT_EQ(watch.wakes_at(), at(9 * 900 + 899) + kAfter);
  EXPECT_FALSE(watch.is_hung());
  finish_all(watch, {&slow});
  EXPECT_EQ(watch.wakes_at(), kNever);
}

TEST(StoreWatch, WhatAHungStoreWorksOnIsGivenUpAndTheRestIsKept) {
  StoreWatch watch(2);
  StoreOperation a, b, c, d;
  watch.started(a, at(0));
  watch.started(b, at(500));
  EXPECT_FALSE(watch.check(at(999)));
  ASSERT_TRUE(watch.check(at(1000)));
  EXPECT_TRUE(watch.is_hung());
  EXPECT_EQ(watch.give_up(), &a);
  EXPECT_EQ(watch.give_up(), &b);
  EXPECT_EQ(watch.give_up(), nullptr);
  EXPECT_EQ(watch.try_one(), nullptr);
  EXPECT_EQ(watch.wakes_at(), kNever) << "nothing waits for it";

  watch.keep(c);
  watch.keep(d);
  EXPECT_EQ(watch.resume(), nullptr);
  EXPECT_EQ(watch.wakes_at(), at(2000));
  ASSERT_TRUE(watch.check(at(2000)));
  ASSERT_EQ(watch.try_one(), &c);
  watch.started(c, at(2000));
  EXPECT_EQ(watch.given_up(), 2U);
  EXPECT_EQ(watch.unfinished(), 3U);
  EXPECT_EQ(watch.kept(), 1U);
  EXPECT_EQ(watch.silence(at(2000)), milliseconds{2000})
      << "what was tried is not what it finished";

  watch.finished(c, at(2001));  // only part of the store hangs
  EXPECT_FALSE(watch.is_hung());
  EXPECT_EQ(watch.resume(), &d);
  EXPECT_EQ(watch.resume(), nullptr);
  watch.started(d, at(2001));
  finish_all(watch, {&a, &b, &d});
  EXPECT_EQ(watch.given_up(), 0U);
}

TEST(StoreWatch, WhatWasKeptGoesOnWithAsManyAsThereAreSlots) {
  StoreWatch watch(2);
  StoreOperation first;
  watch.started(first, at(0));
  ASSERT_TRUE(watch.check(at(1000)));
  ASSERT_EQ(watch.give_up(), &first);
  std::array<StoreOperation, 5> kept;
  for (StoreOperation& one : kept) watch.keep(one);
  watch.drop(kept[1]);  // its client has disconnected
  watch.finished(first, at(5000));
  ASSERT_EQ(watch.resume(), &kept[0]);
  watch.started(kept[0], at(5000));
  ASSERT_EQ(watch.resume(), &kept[2]);
  watch.started(kept[2], at(5000));
  EXPECT_EQ(watch.resume(), nullptr) << "two are under way";
  watch.finished(kept[0], at(5001));
  ASSERT_EQ(watch.resume(), &kept[3]);
  watch.started(kept[3], at(5001));
  watch.finished(kept[2], at(5002));
  watch.finished(kept[3], at(5002));
  ASSERT_EQ(watch.resume(), &kept[4]);
}

}  // namespace
}  // namespace weir::serve
