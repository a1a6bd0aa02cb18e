// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/token_bucket.h"

#include <gtest/gtest.h>

#include "weir/pace/atomic_bucket.h"

namespace weir {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart = instant_at(1'000'000'000'000);

TEST(TokenBucket, FullBucketGivesItsDepthAtOnceAndNoMore) {
  const BucketShape shape(Rate::per_second(10), Tokens{3});
  TokenBucket bucket = TokenBucket::full(shape, kStart);
  EXPECT_EQ(bucket.level(shape, kStart), Tokens{3});
  EXPECT_TRUE(bucket.take(Tokens{2}, shape, kStart));
  EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart));
  EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart));
  EXPECT_EQ(bucket.ready_at(Tokens{1}, shape), kStart + milliseconds{100});
}

TEST(TokenBucket, CarriesTheFractionToTheNextRefill) {
  // A third of a second is not a whole number of nanoseconds; the third token is exactly on time.
  const BucketShape shape(Rate::per_second(3), Tokens{2});
  TokenBucket bucket = TokenBucket::empty(kStart);
  for (const std::int64_t ns : {333'333'334, 666'666'667, 1'000'000'000}) {
    EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart + Nanoseconds{ns - 1})) << ns;
    EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart + Nanoseconds{ns})) << ns;
  }
}

TEST(TokenBucket, FrequentPollingLosesNothing) {
  // The arithmetic that drops the fraction of each refill grants 0 of these 500,000 tokens.
  const BucketShape shape(Rate::per_second(50'000), Tokens{500});
  TokenBucket bucket = TokenBucket::empty(kStart);
  std::uint64_t taken = 0;
  for (std::int64_t ns = 0; ns <= 10'000'000'000; ns += 7'000) {
    while (bucket.take(Tokens{1}, shape, kStart + Nanoseconds{ns})) ++taken;
  }
  EXPECT_EQ(taken, 499'999U);  // the last poll comes 3 us before the last token
}

TEST(TokenBucket, IsExactFromOneTokenADayToAMillionMillionASecond) {
  const BucketShape slow(Rate(Tokens{1}, hours{24}), Tokens{3});
  TokenBucket bucket = TokenBucket::empty(kStart);
  EXPECT_FALSE(bucket.take(Tokens{1}, slow, kStart + hours{24} - Nanoseconds{1}));
  EXPECT_TRUE(bucket.take(Tokens{1}, slow, kStart + hours{24}));
  EXPECT_EQ(bucket.ready_at(Tokens{3}, slow), kStart + hours{96});

  const BucketShape fast(Rate::per_second(1'000'000'000'000), Tokens{1'000'000'000'000});
  bucket = TokenBucket::empty(kStart);
  EXPECT_EQ(bucket.level(fast, kStart + Nanoseconds{7}), Tokens{7000});
  EXPECT_TRUE(bucket.take(Tokens{6999}, fast, kStart + Nanoseconds{7}));
  EXPECT_EQ(bucket.level(fast, kStart + Nanoseconds{7}), Tokens{1});
  EXPECT_FALSE(bucket.take(Tokens{2}, fast, kStart + Nanoseconds{7}));
}

TEST(TokenBucket, WhatCostsMoreThanTheDepthRunsOnAFullBucketAndLeavesADebt) {
  const BucketShape shape(Rate::per_second(10), Tokens{3});
  TokenBucket bucket = TokenBucket::full(shape, kStart);
  EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart));
  EXPECT_FALSE(bucket.take(Tokens{23}, shape, kStart));
  EXPECT_EQ(bucket.ready_at(Tokens{23}, shape), kStart + milliseconds{100});
  EXPECT_TRUE(bucket.take(Tokens{23}, shape, kStart + milliseconds{100}));
  EXPECT_EQ(bucket.debt(shape, kStart + milliseconds{100}), Tokens{20});
  EXPECT_EQ(bucket.level(shape, kStart + milliseconds{100}), Tokens{0});
  EXPECT_FALSE(bucket.take(Tokens{0}, shape, kStart + seconds{2}));
  EXPECT_TRUE(bucket.take(Tokens{0}, shape, kStart + milliseconds{2100}));
}

TEST(TokenBucket, TimeThatStepsBackMakesNoTokens) {
  const BucketShape shape(Rate::per_second(10), Tokens{3});
  TokenBucket bucket = TokenBucket::full(shape, kStart);
  EXPECT_TRUE(bucket.take(Tokens{3}, shape, kStart));
  EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart - seconds{50}));
  EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart));
  EXPECT_EQ(bucket.ready_at(Tokens{1}, shape), kStart + milliseconds{100});
}

TEST(TokenBucket, GivesBackWhatWasTakenButNotAboveTheRim) {
  const BucketShape shape(Rate::per_second(3), Tokens{5});
  TokenBucket bucket = TokenBucket::full(shape, kStart);
  const TokenBucket before = bucket;
  ASSERT_TRUE(bucket.take(Tokens{4}, shape, kStart));
  bucket.give_back(Tokens{4}, shape);
  EXPECT_EQ(bucket, before);
  bucket.give_back(Tokens{4}, shape);
  EXPECT_EQ(bucket.level(shape, kStart), Tokens{5});
  EXPECT_TRUE(bucket.take(Tokens{5}, shape, kStart));
  EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart));
}

TEST(TokenBucket, ARateChangeKeepsTheBalance) {
  const BucketShape slow(Rate::per_second(3), Tokens{10});
  const BucketShape fast(Rate::per_second(1000), Tokens{10});
  TokenBucket bucket = TokenBucket::empty(kStart);
  const Instant later = kStart + milliseconds{1500};  // 4.5 tokens
  bucket.reshape(slow, fast, later);
  EXPECT_EQ(bucket.level(fast, later), Tokens{4});
  EXPECT_EQ(bucket.ready_at(Tokens{5}, fast), later + Nanoseconds{500'000});
  bucket.charge(Tokens{7}, fast, later);
  bucket.reshape(fast, slow, later);
  EXPECT_EQ(bucket.debt(slow, later), Tokens{3});  // 2.5, rounded up
}

TEST(TokenBucket, RewritingARateOftenDoesNotRefill) {
  const BucketShape shape(Rate::per_second(5), Tokens{3});
  const BucketShape other(Rate::per_second(7), Tokens{3});
  TokenBucket bucket = TokenBucket::empty(kStart);
  int taken = 0;
  for (int ms = 0; ms <= 10'000; ++ms) {
    const Instant now = kStart + milliseconds{ms};
    bucket.reshape(shape, other, now);
    bucket.reshape(other, shape, now);
    taken += bucket.take(Tokens{1}, shape, now) ? 1 : 0;
  }
  EXPECT_EQ(taken, 50);
}

TEST(TokenBucket, ASmallerDepthCutsTheBalance) {
  const BucketShape deep(Rate::per_second(3), Tokens{100});
  const BucketShape shallow(Rate::per_second(3), Tokens{4});
  TokenBucket bucket = TokenBucket::full(deep, kStart);
  bucket.reshape(deep, shallow, kStart);
  EXPECT_EQ(bucket, TokenBucket::full(shallow, kStart));
}

TEST(TokenBucket, RescalingKeepsTheFillRatio) {
  const BucketShape small(Rate(Tokens{3}, seconds{1}), Tokens{3});
  const BucketShape large(Rate(Tokens{6}, seconds{1}), Tokens{6});
  TokenBucket bucket = TokenBucket::empty(kStart);
  const Instant third = kStart + Nanoseconds{333'333'334};
  bucket.rescale(small, large, third);
  EXPECT_EQ(bucket.level(large, third), Tokens{2});
  bucket = TokenBucket::full(small, kStart);
  bucket.rescale(small, large, kStart);
  EXPECT_EQ(bucket.level(large, kStart), Tokens{6});
  bucket.charge(Tokens{26}, large, kStart);
  bucket.rescale(large, small, kStart);
  EXPECT_EQ(bucket.debt(small, kStart), Tokens{20});
}

TEST(TokenBucket, ReportsWhatFellOverTheRim) {
  const BucketShape shape(Rate::per_second(3), Tokens{3});
  TokenBucket bucket = TokenBucket::empty(kStart);
  Spill spill;
  // Full after 1 s; half a token spills, then another half.
  bucket.trim(shape, kStart + Nanoseconds{1'166'666'667}, spill);
  EXPECT_EQ(spill.collect(), Tokens{0});
  bucket.trim(shape, kStart + Nanoseconds{1'333'333'334}, spill);
  EXPECT_EQ(spill.collect(), Tokens{1});
  EXPECT_EQ(spill.collect(), Tokens{0});
  EXPECT_TRUE(bucket.take(Tokens{3}, shape, kStart + seconds{5}, spill));
  EXPECT_EQ(spill.collect(), Tokens{11});  // 15 arrived, 3 + 1 are accounted for
}

TEST(TokenBucket, TheFractionSpilledSurvivesARateChange) {
  const BucketShape shape(Rate::per_second(3), Tokens{3});
  const BucketShape other(Rate(Tokens{7}, milliseconds{13}), Tokens{3});
  TokenBucket bucket = TokenBucket::full(shape, kStart);
  Spill spill;
  const Instant later = kStart + milliseconds{500};  // 1.5 tokens
  bucket.trim(shape, later, spill);
  bucket.reshape(shape, other, later);
  spill.reshape(shape, other);
  EXPECT_EQ(spill.collect(), Tokens{1});
  bucket.trim(other, later + milliseconds{1}, spill);  // 7/13 more: 1.04
  EXPECT_EQ(spill.collect(), Tokens{1});
}

TEST(TokenBucket, AbsurdSizesNeitherWrapNorHang) {
  const Nanoseconds years = hours{24 * 365 * 10};
  const BucketShape huge(Rate(Tokens{UINT64_MAX}, years), Tokens{UINT64_MAX});
  TokenBucket bucket = TokenBucket::full(huge, kStart);
  EXPECT_EQ(bucket.level(huge, kStart), Tokens{UINT64_MAX});
  EXPECT_TRUE(bucket.take(Tokens{UINT64_MAX}, huge, kStart));
  EXPECT_FALSE(bucket.take(Tokens{UINT64_MAX}, huge, kStart + years - Nanoseconds{1}));
  EXPECT_TRUE(bucket.take(Tokens{UINT64_MAX}, huge, kStart + years));

  const BucketShape slow(Rate(Tokens{1}, hours{24}), Tokens{1});
  bucket = TokenBucket::full(slow, kStart);
  EXPECT_TRUE(bucket.take(Tokens{UINT64_MAX}, slow, kStart));
  EXPECT_GT(bucket.ready_at(Tokens{1}, slow), kStart + hours{24 * 365 * 100});
  bucket.charge(Tokens{UINT64_MAX}, slow, kStart);
  bucket.charge(Tokens{UINT64_MAX}, slow, kStart);
  EXPECT_EQ(bucket.ready_at(Tokens{1}, slow), kNever);
  EXPECT_FALSE(bucket.take(Tokens{1}, slow, kStart + hours{24 * 365 * 100}));
  bucket.reshape(slow, huge, kStart);
  EXPECT_FALSE(bucket.take(Tokens{1}, huge, kStart));
}

TEST(BucketShape, RefusesWhatTakesOverAHundredYearsToFill) {
  const Rate daily(Tokens{1}, hours{24});
  EXPECT_TRUE(BucketShape::fits(daily, Tokens{36'500}));
  EXPECT_FALSE(BucketShape::fits(daily, Tokens{36'501}));
  EXPECT_DEATH(BucketShape(daily, Tokens{36'501}), "assertion failed: fits\\(rate, depth\\)");
  EXPECT_DEATH(BucketShape(daily, Tokens{0}), "assertion failed: depth.count\\(\\) > 0");
}

// One token every 10 ms, and a taker that checks every 11 ms.
TEST(BucketShape, ASlackHoldsWhatALateTakerWouldLose) {
  const BucketShape plain(Rate::per_second(100), Tokens{1});
  const BucketShape slack(Rate::per_second(100), Tokens{1}, milliseconds{10});
  EXPECT_FALSE(plain == slack);
  for (const auto& [shape, expected] : {std::pair(plain, 1000), std::pair(slack, 1100)}) {
    TokenBucket bucket = TokenBucket::empty(kStart);
    int taken = 0;
    for (int ms = 0; ms <= 11'000; ms += 11) {
      while (bucket.take(Tokens{1}, shape, kStart + milliseconds{ms})) ++taken;
    }
    EXPECT_EQ(taken, expected);
  }
  TokenBucket bucket = TokenBucket::empty(kStart);
  EXPECT_EQ(bucket.ready_at(Tokens{1}, slack), kStart + milliseconds{10});
  const Instant later = kStart + hours{1};
  EXPECT_TRUE(bucket.take(Tokens{1}, slack, later));
  EXPECT_TRUE(bucket.take(Tokens{1}, slack, later));
  EXPECT_FALSE(bucket.take(Tokens{1}, slack, later)) << "depth and slack, however long it was idle";
  bucket.reshape(slack, plain, later + hours{1});
  EXPECT_TRUE(bucket.take(Tokens{1}, plain, later + hours{1}));
  EXPECT_FALSE(bucket.take(Tokens{1}, plain, later + hours{1}));
}

TEST(AtomicBucket, RoundsAgainstTheTaker) {
  // 333,333,333 1/3 ns a token are charged as 333,333,334.
  const BucketShape shape(Rate::per_second(3), Tokens{3});
  AtomicBucket bucket(shape, kStart);
  EXPECT_TRUE(bucket.take(Tokens{3}, shape, kStart));
  for (const std::int64_t ns : {333'333'334, 666'666'668, 1'000'000'002}) {
    EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart + Nanoseconds{ns - 1})) << ns;
    EXPECT_EQ(bucket.ready_at(Tokens{1}, shape), kStart + Nanoseconds{ns});
    EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart + Nanoseconds{ns})) << ns;
  }
}

TEST(AtomicBucket, APriceOfNearlyTheDepthDoesNotWaitForEver) {
  // The depth rounds down to 333,333,333 ns, the price up to 333,333,334.
  const BucketShape shape(Rate::per_second(3), Tokens{1});
  AtomicBucket bucket(shape, kStart);
  EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart));
  EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart + Nanoseconds{333'333'334}));
  EXPECT_TRUE(bucket.take(Tokens{100}, shape, kStart + seconds{1}));
  EXPECT_FALSE(bucket.take(Tokens{1}, shape, kStart + seconds{33}));
  EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart + seconds{35}));
}

TEST(AtomicBucket, ReportsWhatFellOverTheRimAndNeverTooMuch) {
  const BucketShape shape(Rate::per_second(3), Tokens{3});
  AtomicBucket bucket(shape, kStart);
  AtomicSpill spill;
  bucket.trim(shape, kStart + Nanoseconds{500'000'000}, spill);
  EXPECT_EQ(spill.collect(shape), Tokens{1});
  EXPECT_EQ(spill.collect(shape), Tokens{0});
  EXPECT_TRUE(bucket.take(Tokens{1}, shape, kStart + seconds{2}, spill));
  EXPECT_EQ(spill.collect(shape), Tokens{4});  // 5 with the previous one; 6 without rounding
}

}  // namespace
}  // namespace weir
