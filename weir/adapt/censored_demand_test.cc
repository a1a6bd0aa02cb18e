// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/censored_demand.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using State = JobDemand::State;

constexpr Nanoseconds kRound = std::chrono::milliseconds{50};
const JobId kHog("hog");
const JobId kBurst("burst");

const JobDemand& of(const std::vector<JobDemand>& demands, const JobId& job) {
  for (const JobDemand& demand : demands) {
    if (demand.job == job) return demand;
  }
  static const JobDemand kNone{};
  return kNone;
}

TEST(CensoredDemand, AThirdOfWhatARuleAllowsIsABacklog) {
  CensoredDemand demand;
  for (const auto& [served, state] : {std::pair{std::uint64_t{8}, State::kBacklogged},
                                      {3, State::kBacklogged},  // one may be due to the window
                                      {2, State::kActive}}) {
    for (int i = 0; i < 4; ++i) {
      demand.begin(kRound, std::nullopt);
      demand.count({kHog, Tokens{served}, Rate::per_second(200), Tokens{100}});
      demand.end();
    }
    demand.begin(kRound, std::nullopt);
    demand.count({kHog, Tokens{served}, Rate::per_second(200), Tokens{100}});
    EXPECT_EQ(of(demand.end(), kHog).state, state) << served;
  }
}

// A device that completes 40 requests every 100 ms: four of five rounds have no completion.
TEST(CensoredDemand, ARoundWithoutCompletionsBetweenClumpsSaysNothing) {
  CensoredDemand demand;
  const Nanoseconds round = std::chrono::milliseconds{20};
  const auto pass = [&](std::uint64_t served) {
    demand.begin(round, Tokens{served});
    demand.count({kHog, Tokens{served / 2}, std::nullopt, Tokens{4}});
    demand.count({kBurst, Tokens{served / 2}, std::nullopt, Tokens{4}});
    return demand.end();
  };
  for (int i = 0; i < 50; ++i) {
    const auto demands = pass(i % 5 == 0 ? 40 : 0);
    if (i < 10) continue;
    EXPECT_EQ(of(demands, kHog).state, State::kBacklogged) << i;
    EXPECT_EQ(of(demands, kBurst).state, State::kBacklogged) << i;
    EXPECT_GT(of(demands, kBurst).since, round * (i - 8)) << i;  // one burst, not one per clump
  }
  // Two clumps without it: it has ended.
  for (int i = 0; i < 11; ++i) pass(0);
  EXPECT_NE(of(pass(0), kBurst).state, State::kBacklogged);
}

// At 2 a second a request comes every 500 ms, and an empty quarter of a second says nothing.
TEST(CensoredDemand, AJobWithALowRateIsJudgedOverItsRequests) {
  CensoredDemand demand;
  for (int i = 0; i < 100; ++i) {
    demand.begin(kRound, std::nullopt);
    demand.count({kHog, Tokens{i % 10 == 0 ? 1U : 0U}, Rate::per_second(2), Tokens{10}});
    EXPECT_EQ(of(demand.end(), kHog).state, State::kBacklogged) << i;
  }
}

TEST(CensoredDemand, WithoutARuleHungerIsToUseWhatIsOnesOwn) {
  CensoredDemand demand;
  for (int i = 0; i < 4; ++i) {
    demand.begin(kRound, std::nullopt);
    demand.count({kHog, Tokens{90}, std::nullopt, Tokens{100}});
    demand.count({kBurst, Tokens{20}, std::nullopt, Tokens{100}});
    demand.end();
  }
  demand.begin(kRound, std::nullopt);
  demand.count({kHog, Tokens{90}, std::nullopt, Tokens{100}});
  demand.count({kBurst, Tokens{20}, std::nullopt, Tokens{100}});
  const auto& demands = demand.end();
  EXPECT_EQ(of(demands, kHog).state, State::kBacklogged);
  EXPECT_EQ(of(demands, kBurst).state, State::kActive);
  EXPECT_EQ(of(demands, kBurst).wanted, Tokens{26});
}

// Lesson 1 of running servers: a job that vanishes is unknown, not idle.
TEST(CensoredDemand, AJobThatVanishesGoesOnWhileTheSumMissesItsRequests) {
  CensoredDemand demand;
  for (int i = 0; i < 3; ++i) {
    demand.begin(kRound, Tokens{40});
    demand.count({kHog, Tokens{40}, std::nullopt, Tokens{20}});
    demand.end();
  }
  for (int i = 0; i < 20; ++i) {
    demand.begin(kRound, Tokens{50});
    demand.count({kBurst, Tokens{10}, std::nullopt, Tokens{20}});
    demand.vanish(kHog, std::nullopt, Tokens{20});
    const auto& demands = demand.end();
    EXPECT_EQ(of(demands, kHog).state, State::kBacklogged);
    EXPECT_EQ(of(demands, kHog).served, Tokens{40});
    EXPECT_FALSE(of(demands, kHog).known);
  }
  // The sum is complete without it: now it is idle.
  for (int i = 0; i < 6; ++i) {
    demand.begin(kRound, Tokens{10});
    demand.count({kBurst, Tokens{10}, std::nullopt, Tokens{20}});
    demand.vanish(kHog, std::nullopt, Tokens{20});
    demand.end();
  }
  demand.begin(kRound, Tokens{10});
  demand.count({kBurst, Tokens{10}, std::nullopt, Tokens{20}});
  demand.vanish(kHog, std::nullopt, Tokens{20});
  EXPECT_EQ(of(demand.end(), kHog).state, State::kIdle);
}

TEST(CensoredDemand, WhatARuleCannotHaveLetThroughIsOfAnIdleJobThatVanished) {
  CensoredDemand demand;
  demand.begin(kRound, Tokens{40});
  demand.count({kBurst, Tokens{0}, std::nullopt, Tokens{20}});
  demand.count({kHog, Tokens{40}, std::nullopt, Tokens{20}});
  demand.end();
  for (int i = 0; i < 3; ++i) {  // held at 4 a round
    demand.begin(kRound, Tokens{4});
    demand.count({kBurst, Tokens{0}, std::nullopt, Tokens{20}});
    demand.count({kHog, Tokens{4}, Rate::per_second(80), Tokens{20}});
    demand.end();
  }
  demand.begin(kRound, Tokens{44});
  demand.vanish(kBurst, std::nullopt, Tokens{20});
  demand.vanish(kHog, Rate::per_second(80), Tokens{20});
  const auto& demands = demand.end();
  EXPECT_LE(of(demands, kHog).served, Tokens{9});
  EXPECT_GE(of(demands, kBurst).served, Tokens{35});
  EXPECT_NE(of(demands, kBurst).state, State::kIdle);
}

// Requests that were in service when the rule started complete later, and belong to the same job.
TEST(CensoredDemand, WhatARuleFoundInServiceIsStillOfItsJob) {
  CensoredDemand demand;
  for (int i = 0; i < 3; ++i) {
    demand.begin(kRound, Tokens{40});
    demand.count({kBurst, Tokens{0}, std::nullopt, Tokens{20}});
    demand.count({kHog, Tokens{40}, std::nullopt, Tokens{20}});
    demand.end();
  }
  demand.begin(kRound, Tokens{30});
  demand.vanish(kBurst, std::nullopt, Tokens{20});
  demand.vanish(kHog, Rate::per_second(40), Tokens{20});
  const auto& demands = demand.end();
  EXPECT_EQ(of(demands, kHog).served, Tokens{30});
  EXPECT_EQ(of(demands, kBurst).state, State::kIdle);
}

// Unattributed requests do not make a vanished job active.
TEST(CensoredDemand, AStrangerIsNoneOfTheUnknown) {
  CensoredDemand demand;
  for (int i = 0; i < 4; ++i) {
    demand.begin(kRound, Tokens{40});
    demand.count({kBurst, Tokens{0}, std::nullopt, Tokens{20}});
    demand.end();
  }
  EXPECT_TRUE(demand.has_unattributed());
  for (int i = 0; i < 4; ++i) {
    demand.begin(kRound, Tokens{40});
    demand.vanish(kBurst, std::nullopt, Tokens{20});
    EXPECT_EQ(of(demand.end(), kBurst).state, State::kIdle);
  }
  demand.begin(kRound, Tokens{1});
  demand.count({kBurst, Tokens{1}, std::nullopt, Tokens{20}});
  demand.end();
  EXPECT_FALSE(demand.has_unattributed());
}

TEST(CensoredDemand, WithoutASumTheUnknownGoOnForASecond) {
  CensoredDemand demand;
  for (int i = 0; i < 3; ++i) {
    demand.begin(kRound, std::nullopt);
    demand.count({kHog, Tokens{40}, std::nullopt, Tokens{20}});
    demand.end();
  }
  int rounds = 0;
  for (; rounds < 100; ++rounds) {
    demand.begin(kRound, std::nullopt);
    demand.vanish(kHog, std::nullopt, Tokens{20});
    if (of(demand.end(), kHog).state == State::kIdle) break;
  }
  EXPECT_NEAR(rounds, 25, 2);  // a second, and then the pause until it counts as idle
}

TEST(CensoredDemand, AShortPauseIsNotIdle) {
  CensoredDemand demand;
  demand.begin(kRound, std::nullopt);
  demand.count({kBurst, Tokens{5}, std::nullopt, Tokens{20}});
  demand.end();
  for (int i = 1; i <= 5; ++i) {
    demand.begin(kRound, std::nullopt);
    demand.count({kBurst, Tokens{0}, std::nullopt, Tokens{20}});
    EXPECT_EQ(of(demand.end(), kBurst).state, i < 5 ? State::kActive : State::kIdle) << i;
  }
}

}  // namespace
}  // namespace weir
