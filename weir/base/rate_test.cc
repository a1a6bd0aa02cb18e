// SPDX-License-Identifier: Apache-2.0
#include "weir/base/rate.h"

#include <chrono>
#include <compare>
#include <cstdint>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir {
namespace {

using namespace std::chrono_literals;

constexpr Rate kOneADay{Tokens{1}, 24h};
constexpr Rate kTrillionASecond = Rate::per_second(1'000'000'000'000);

static_assert(Rate::per_second(3).tokens() == 3 && Rate::per_second(3).time_ns() == 1'000'000'000);
static_assert(kTrillionASecond.tokens() == 1000 && kTrillionASecond.time_ns() == 1);
static_assert(kOneADay.tokens() == 1 && kOneADay.time_ns() == 86'400'000'000'000);

TEST(Rate, IsReducedSoThatEqualRatesAreEqual) {
  EXPECT_EQ(Rate(Tokens{20}, 20ms), Rate::per_second(1000));
  EXPECT_EQ(Rate(Tokens{1}, 1ms), Rate::per_second(1000));
  EXPECT_EQ(Rate(Tokens{60}, 1min), Rate::per_second(1));
  EXPECT_NE(Rate(Tokens{7}, 20ms), Rate::per_second(351));
  EXPECT_EQ(Rate(Tokens{7}, 20ms), Rate::per_second(350));
}

TEST(Rate, IsOrderedBySpeedFromOneADayToATrillionASecond) {
  EXPECT_LT(kOneADay, Rate(Tokens{1}, 24h - 1ns));
  EXPECT_LT(kOneADay, Rate::per_second(1));
  EXPECT_LT(Rate::per_second(1), kTrillionASecond);
  EXPECT_LT(kOneADay, kTrillionASecond);
  EXPECT_LT(Rate(Tokens{999'999'999'999}, 1s), kTrillionASecond);
  EXPECT_LT(Rate(Tokens{3}, 10ns), Rate(Tokens{1}, 3ns));
  EXPECT_EQ(kOneADay <=> Rate(Tokens{2}, 48h), std::strong_ordering::equal);
  // The limits of the fraction, whose products need 127 bits.
  EXPECT_LT(Rate(Tokens{1}, Nanoseconds::max()), Rate(Tokens{1}, Nanoseconds::max() - 1ns));
  EXPECT_LT(Rate(Tokens{UINT64_MAX - 1}, 1ns), Rate(Tokens{UINT64_MAX}, 1ns));
  EXPECT_LT(Rate(Tokens{1}, Nanoseconds::max()), Rate(Tokens{UINT64_MAX}, 1ns));
}

TEST(Rate, TokensInATimeAreRoundedDown) {
  EXPECT_EQ(tokens_in(Rate::per_second(3), 0s).count(), 0u);
  EXPECT_EQ(tokens_in(Rate::per_second(3), 333'333'333ns).count(), 0u);
  EXPECT_EQ(tokens_in(Rate::per_second(3), 333'333'334ns).count(), 1u);
  EXPECT_EQ(tokens_in(Rate::per_second(3), 1s).count(), 3u);
  EXPECT_EQ(tokens_in(kOneADay, 24h - 1ns).count(), 0u);
  EXPECT_EQ(tokens_in(kOneADay, 24h * 365).count(), 365u);
  EXPECT_EQ(tokens_in(kTrillionASecond, 1ns).count(), 1000u);
}

TEST(Rate, TokensInATimeStopAtTheLargestNumber) {
  // 1000 tokens a nanosecond: 2^64 - 1 is passed after 18,446,744,073,709,551.6 ns.
  EXPECT_EQ(tokens_in(kTrillionASecond, 18'446'744'073'709'551ns).count(),
            18'446'744'073'709'551'000u);
  EXPECT_EQ(tokens_in(kTrillionASecond, 18'446'744'073'709'552ns).count(), UINT64_MAX);
  EXPECT_EQ(tokens_in(kTrillionASecond, Nanoseconds::max()).count(), UINT64_MAX);
  EXPECT_EQ(tokens_in(Rate(Tokens{UINT64_MAX}, 1ns), Nanoseconds::max()).count(), UINT64_MAX);
  EXPECT_EQ(tokens_in(Rate(Tokens{1}, 1ns), Nanoseconds::max()).count(),
            static_cast<std::uint64_t>(INT64_MAX));
}

// The definition, without a division: n tokens in t means n / t <= rate < (n + 1) / t.
RC_GTEST_PROP(RateProperty, TokensInATimeAreTheMostTheRateAllows,
              (std::uint32_t tokens, std::uint32_t per_ns, std::uint32_t time_ns)) {
  const Rate rate(Tokens{tokens + std::uint64_t{1}}, Nanoseconds{per_ns + std::int64_t{1}});
  const Nanoseconds time{time_ns + std::int64_t{1}};
  const std::uint64_t made = tokens_in(rate, time).count();
  if (made > 0) RC_ASSERT(Rate(Tokens{made}, time) <= rate);
  RC_ASSERT(rate < Rate(Tokens{made + 1}, time));
}

TEST(RateDeathTest, RefusesARateOfNothingAndTimeThatRunsBackwards) {
  EXPECT_DEATH(Rate(Tokens{0}, 1s), "tokens\\.count\\(\\) > 0");
  EXPECT_DEATH(Rate(Tokens{1}, 0s), "time\\.count\\(\\) > 0");
  EXPECT_DEATH(Rate(Tokens{1}, -1s), "time\\.count\\(\\) > 0");
  EXPECT_DEATH((void)tokens_in(kOneADay, -1ns), "time\\.count\\(\\) >= 0");
}

}  // namespace
}  // namespace weir
