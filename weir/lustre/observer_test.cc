// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/observer.h"

#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

const JobId kJob("dd.0");

// One OST; each look is a period later.
struct Looks {
  RuleRound next(std::vector<JobCounters> jobs, std::optional<std::uint64_t> rpcs) {
    View view;
    view.targets.push_back({.name = "OST0000", .jobs = std::move(jobs), .rpcs = rpcs});
    now += std::chrono::milliseconds{20};
    RuleRound round;
    observer.count(view, now, round);
    return round;
  }
  static JobCounters counters(std::uint64_t rpcs, std::optional<std::uint64_t> since = 1) {
    return {.job = kJob, .rpcs = rpcs, .bytes = 0, .since_ns = since, .update_ns = {}};
  }

  Observer observer;
  Instant now{};
};

std::uint64_t served(const RuleRound& round) { return round.jobs.at(0).served.count(); }

TEST(Observer, CountsFromTheSecondLookOn) {
  Looks looks;
  EXPECT_EQ(served(looks.next({Looks::counters(1000)}, 5000)), 0U);
  const RuleRound round = looks.next({Looks::counters(1010)}, 5012);
  EXPECT_EQ(served(round), 10U);
  EXPECT_EQ(round.served_all, Tokens{12});
}

TEST(Observer, AnEntryThatBeginsAnewCountsFromZero) {
  Looks looks;
  looks.next({Looks::counters(1000, 1)}, 0);
  EXPECT_EQ(served(looks.next({Looks::counters(1005, 2)}, 0)), 1005U);
  EXPECT_EQ(served(looks.next({Looks::counters(7, std::nullopt)}, 0)), 7U);
  EXPECT_EQ(served(looks.next({Looks::counters(3, std::nullopt)}, 0)), 3U);
}

TEST(Observer, CountersThatGoBackCountNothing) {
  Looks looks;
  looks.next({Looks::counters(1000)}, 1000);
  EXPECT_EQ(served(looks.next({Looks::counters(990)}, 990)), 0U);
  const RuleRound round = looks.next({Looks::counters(995)}, 995);
  EXPECT_EQ(served(round), 5U);
  EXPECT_EQ(round.served_all, Tokens{5});
}

TEST(Observer, CountersThatWrapCountNothing) {
  Looks looks;
  looks.next({Looks::counters(UINT64_MAX)}, UINT64_MAX);
  const RuleRound round = looks.next({Looks::counters(4)}, 4);
  EXPECT_EQ(served(round), 0U);
  EXPECT_FALSE(round.served_all);
}

TEST(Observer, AnEntryThatOneReadMissedContinues) {
  Looks looks;
  looks.next({Looks::counters(1000)}, 1000);
  const RuleRound missed = looks.next({}, 1010);
  ASSERT_EQ(missed.jobs.size(), 1U);
  EXPECT_FALSE(missed.jobs[0].known);
  EXPECT_EQ(served(looks.next({Looks::counters(1020)}, 1020)), 20U);
  // In the end it is forgotten.
  for (int i = 0; i < 3001; ++i) looks.next({}, 1020);
  EXPECT_TRUE(looks.next({}, 1020).jobs.empty());
}

TEST(Observer, AddsUpTargetsOfAnySpeed) {
  Observer observer;
  RuleRound round;
  View view;
  view.targets = {{.name = "OST0000", .jobs = {Looks::counters(0)}, .rpcs = 0},
                  {.name = "OST0001", .jobs = {Looks::counters(0)}, .rpcs = 0}};
  observer.count(view, Instant{std::chrono::seconds{1}}, round);
  view.targets[0].jobs[0].rpcs = 4;
  view.targets[0].rpcs = 4;
  view.targets[1].jobs[0].rpcs = 4000;
  view.targets[1].rpcs = 4001;
  observer.count(view, Instant{std::chrono::seconds{2}}, round);
  EXPECT_EQ(served(round), 4004U);
  EXPECT_EQ(round.served_all, Tokens{4005});
}

}  // namespace
}  // namespace weir::lustre
