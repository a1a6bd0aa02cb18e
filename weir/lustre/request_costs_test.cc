// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/request_costs.h"

#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

constexpr std::uint64_t kOne = RequestCosts::kOne;
constexpr Nanoseconds kRound = std::chrono::milliseconds{20};

// The example of the header.
TEST(RequestCosts, AKindCostsItsTimeInMeanRequests) {
  RequestCosts costs;
  costs.count(0, 900, 90'000);
  costs.count(1, 100, 110'000);
  costs.pass(kRound);
  EXPECT_EQ(costs.of(0), kOne / 2);
  EXPECT_EQ(costs.of(1), kOne * 11 / 2);
  EXPECT_EQ(costs.of(2), kOne);  // not known
}

TEST(RequestCosts, OneKindAloneCostsAToken) {
  RequestCosts costs;
  for (std::uint64_t i = 1; i < 3000; ++i) {
    costs.count(0, i % 7, i * 1013 % 777);
    costs.pass(kRound);
    ASSERT_EQ(costs.of(0), kOne) << i;
  }
  // Fewer than enough requests, of another speed.
  for (int i = 0; i < 3000; ++i) {
    if (i % 1000 == 0) costs.count(0, 1, 5000);
    costs.pass(kRound);
    ASSERT_EQ(costs.of(0), kOne) << i;
  }
}

TEST(RequestCosts, AFewRequestsAreNoPrice) {
  RequestCosts costs;
  costs.count(0, 1000, 100'000);
  costs.count(1, RequestCosts::kEnough - 1, 9'000'000);
  costs.pass(kRound);
  EXPECT_EQ(costs.of(1), kOne);
  costs.count(1, 1, 0);
  costs.pass(kRound);
  EXPECT_GT(costs.of(1), 10 * kOne);
}

TEST(RequestCosts, WithoutTimesAllCostTheSame) {
  RequestCosts costs;
  costs.count(0, 1000, 0);
  costs.count(1, 1000, 0);
  costs.pass(kRound);
  EXPECT_EQ(costs.of(0), kOne);
  EXPECT_EQ(costs.of(1), kOne);
}

TEST(RequestCosts, PricesFollowTheServerAndOutliveAPause) {
  RequestCosts costs;
  const auto play = [&](Nanoseconds time, std::uint64_t cheap_us, std::uint64_t dear) {
    for (Nanoseconds at{0}; at < time; at += kRound) {
      costs.count(0, 10, 10 * cheap_us);
      costs.count(1, dear, dear * 1000);
      costs.pass(kRound);
    }
  };
  play(std::chrono::seconds{30}, 100, 10);
  EXPECT_EQ(costs.of(0), 186U);   // 100 of 550 us
  EXPECT_EQ(costs.of(1), 1862U);  // 1,000 of 550 us
  play(std::chrono::minutes{5}, 100, 0);
  EXPECT_EQ(costs.of(0), kOne);
  EXPECT_EQ(costs.of(1), 10 * kOne);
  play(std::chrono::seconds{30}, 1000, 10);  // the first kind is as slow now
  EXPECT_EQ(costs.of(0), kOne);
  EXPECT_EQ(costs.of(1), kOne);
}

TEST(RequestCosts, SurvivesAnyCounts) {
  RequestCosts costs;
  for (int i = 0; i < 10; ++i) {
    costs.count(0, UINT64_MAX, UINT64_MAX);
    costs.count(1, UINT64_MAX, 0);
    costs.count(2, 1, UINT64_MAX);
    costs.count(3, 0, UINT64_MAX);
    costs.pass(std::chrono::hours{i % 2});
    for (std::size_t kind = 0; kind < 4; ++kind) {
      EXPECT_GE(costs.of(kind), kOne / RequestCosts::kFactorMax);
      EXPECT_LE(costs.of(kind), kOne * RequestCosts::kFactorMax);
    }
  }
}

}  // namespace
}  // namespace weir::lustre
