// SPDX-License-Identifier: Apache-2.0
//
// Shows that every checker works: each invariant is violated, and the violation is found.
#include "weir/sim/checkers.h"

#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;

Instant at_ms(std::int64_t ms) { return Instant{milliseconds{ms}}; }

// One target with one job, one lane and two slots.
class Watched {
 public:
  explicit Watched(const Bounds& bounds = {.jobs = {std::nullopt},
                                           .whole = {},
                                           .idling = Idling::kAllowed})
      : checkers("ost0", bounds, 2, 1, Tokens{1}, findings) {}

  void arrive(int requests) {
    for (int i = 0; i < requests; ++i) numbers.push_back(checkers.arrive(0));
  }
  void dispatch(std::uint64_t number, std::int64_t ms = 0) {
    checkers.dispatch(0, 0, number, Tokens{1}, at_ms(ms));
  }
  // The text of the last finding.
  std::string last() const { return findings.kept().empty() ? "" : findings.kept().back(); }

  Findings findings;
  Checkers checkers;
  std::vector<std::uint64_t> numbers;
};

Bounds limited(std::uint64_t rate, std::uint64_t depth) {
  return {.jobs = {Limit{Rate::per_second(rate), Tokens{depth}}},
          .whole = {},
          .idling = Idling::kAllowed};
}

// Of 10 a second 9.9, rounded down, less one: 8.
TEST(ReserveCheck, EverySecondHoldsEnough) {
  for (const int gap : {100, 125, 126}) {
    ReserveCheck check(Rate::per_second(10), Tokens{1});
    bool enough = true;
    for (int i = 0; i < 100; ++i) enough = check.arrive(at_ms(0)) && enough;
    for (int i = 1; i < 50; ++i) enough = check.dispatch(Tokens{1}, at_ms(i * gap)) && enough;
    EXPECT_EQ(enough, gap <= 125) << gap;
  }
}

TEST(ReserveCheck, OnlySecondsInWhichRequestsWaitCount) {
  ReserveCheck check(Rate::per_second(10), Tokens{1});
  EXPECT_TRUE(check.arrive(at_ms(0)));
  EXPECT_TRUE(check.dispatch(Tokens{1}, at_ms(900)));
  EXPECT_TRUE(check.check(at_ms(5000)));
  EXPECT_TRUE(check.arrive(at_ms(5000)));
  EXPECT_TRUE(check.check(at_ms(6000)));
  EXPECT_FALSE(check.check(at_ms(6001)));
}

TEST(Checkers, FindAMissedReservation) {
  Watched run({.jobs = {std::nullopt},
               .whole = {},
               .idling = Idling::kAllowed,
               .reserves = {Rate::per_second(10)}});
  run.arrive(1);
  run.checkers.wait(0, at_ms(0));
  run.dispatch(0, 1500);
  EXPECT_EQ(run.last().substr(run.last().find(": ") + 2),
            "ost0: job 1 got less than its reservation for a second");
}

TEST(Checkers, FindNothingInASoundRun) {
  Watched run({.jobs = {Limit{Rate::per_second(1000), Tokens{2}}},
               .whole = Limit{Rate::per_second(1000), Tokens{2}},
               .idling = Idling::kForbidden});
  run.arrive(3);
  run.dispatch(0);
  run.dispatch(1);
  run.checkers.rest(false, at_ms(0));
  run.checkers.complete(at_ms(1));
  run.dispatch(2, 1);
  run.checkers.complete(at_ms(2));
  run.checkers.rest(false, at_ms(2));
  run.arrive(1);
  run.checkers.end(1, at_ms(3));
  EXPECT_EQ(run.findings.count(), 0U) << run.last();
}

TEST(Checkers, FindARequestThatIsLost) {
  Watched run;
  run.arrive(2);
  run.dispatch(0);
  run.checkers.end(0, at_ms(5));
  EXPECT_EQ(run.last(), "0.005000 s: ost0: 1 requests waited at the end and 0 were dispatched");
}

TEST(Checkers, FindARequestThatIsServedTwice) {
  Watched run;
  run.arrive(2);
  run.dispatch(0);
  run.dispatch(0);
  EXPECT_EQ(run.last(), "0.000000 s: ost0: a request was dispatched twice");
  run.checkers.complete(at_ms(1));
  run.checkers.complete(at_ms(1));
  run.checkers.complete(at_ms(1));
  EXPECT_EQ(run.last(), "0.001000 s: ost0: completed more than was dispatched");
}

TEST(Checkers, FindARequestThatOvertakes) {
  Watched run;
  run.arrive(3);
  run.dispatch(1);
  EXPECT_EQ(run.last(), "0.000000 s: ost0: a request overtook one of its process");
}

TEST(Checkers, FindMoreInServiceThanSlots) {
  Watched run;
  run.arrive(3);
  for (std::uint64_t i = 0; i < 3; ++i) run.dispatch(i);
  EXPECT_EQ(run.last(), "0.000000 s: ost0: 3 in service on 2 slots");
}

TEST(Checkers, FindATargetThatSleptOverARequest) {
  Watched run;
  run.arrive(1);
  run.checkers.rest(true, at_ms(4));
  EXPECT_EQ(run.last(), "0.004000 s: ost0: reported nothing to run, and then had a request");
}

TEST(Checkers, FindASlotThatIdles) {
  Watched forbidden({.jobs = {std::nullopt}, .whole = {}, .idling = Idling::kForbidden});
  forbidden.arrive(1);
  forbidden.checkers.rest(false, at_ms(4));
  EXPECT_EQ(forbidden.last(), "0.004000 s: ost0: a slot is free while 1 wait");

  Watched allowed;
  allowed.arrive(1);
  allowed.checkers.rest(false, at_ms(4));
  EXPECT_EQ(allowed.findings.count(), 0U);
}

TEST(Checkers, LetATargetIdleAtItsCapacityAndNotBelow) {
  Watched run({.jobs = {std::nullopt},
               .whole = Limit{Rate::per_second(1000), Tokens{10}},
               .enough = Limit{Rate::per_second(1000), Tokens{1}},
               .idling = Idling::kAtCapacity});
  run.arrive(2);
  run.dispatch(0);
  run.checkers.rest(false, at_ms(0));
  EXPECT_EQ(run.findings.count(), 0U);
  run.checkers.rest(false, at_ms(1));
  EXPECT_EQ(run.last(), "0.001000 s: ost0: a slot is free while 1 wait");
}

TEST(Checkers, FindALimitThatIsExceededInAnyWindow) {
  Watched run(limited(100, 3));
  run.arrive(20);
  for (std::uint64_t i = 0; i < 3; ++i) run.dispatch(i, 1000);
  run.dispatch(3, 1010);
  EXPECT_EQ(run.findings.count(), 0U + 2U);  // only slots: nothing was completed
  run.dispatch(4, 1019);
  EXPECT_EQ(run.last(), "1.019000 s: ost0: job 1 is above its limit");
}

TEST(Checkers, FindATargetAboveItsCapacity) {
  Watched run({.jobs = {std::nullopt},
               .whole = Limit{Rate::per_second(10), Tokens{1}},
               .idling = Idling::kAllowed});
  run.arrive(2);
  run.dispatch(0);
  run.dispatch(1, 99);
  EXPECT_EQ(run.last(), "0.099000 s: ost0: is above its capacity");
}

TEST(Checkers, FindRecordsThatDoNotSumToZero) {
  Watched run;
  PeriodReport report;
  report.at = at_ms(20);
  report.jobs.resize(2);
  report.jobs[0].job = JobId("a");
  report.jobs[0].record = 5;
  report.jobs[1].job = JobId("c");
  report.records = {{JobId("a"), 5}, {JobId("b"), -5}};  // c has none, and b is not active
  run.checkers.period(report);
  EXPECT_EQ(run.findings.count(), 0U);
  report.records[1].record = -4;
  run.checkers.period(report);
  EXPECT_EQ(run.last(), "0.020000 s: ost0: records sum to 1");
  report.records = {{JobId("a"), 6}, {JobId("b"), -6}};
  run.checkers.period(report);
  EXPECT_EQ(run.last(), "0.020000 s: ost0: a job has two records");
}

TEST(Findings, KeepTheFirstAndCountTheRest) {
  Findings findings;
  for (int i = 0; i < 100; ++i) findings.add(at_ms(i), "x");
  EXPECT_EQ(findings.count(), 100U);
  ASSERT_EQ(findings.kept().size(), Findings::kKept);
  EXPECT_EQ(findings.kept().front(), "0.000000 s: x");
}

// Checks every window one by one.
bool holds_everywhere(const std::vector<std::pair<std::int64_t, std::uint64_t>>& served,
                      std::uint64_t rate, std::uint64_t depth) {
  for (std::size_t from = 0; from < served.size(); ++from) {
    std::uint64_t sum = 0;
    for (std::size_t to = from; to < served.size(); ++to) {
      sum += served[to].second;
      const auto ms = static_cast<std::uint64_t>(served[to].first - served[from].first);
      if (sum * 1000 > depth * 1000 + rate * ms) return false;
    }
  }
  return true;
}

TEST(WindowCheckProperty, AgreesWithALookAtEveryWindow) {
  int broken = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    const std::uint64_t rate = 1 + rng.below(500);
    const std::uint64_t depth = 3 + rng.below(8);
    WindowCheck check(Limit{Rate::per_second(rate), Tokens{depth}});
    std::vector<std::pair<std::int64_t, std::uint64_t>> served;
    std::int64_t ms = 0;
    bool holds = true;
    for (int i = 0; i < 40; ++i) {
      ms += static_cast<std::int64_t>(rng.below(5000 / rate + 2));
      served.emplace_back(ms, 1 + rng.below(3));
      const bool had_room = check.has_room(Tokens{served.back().second}, at_ms(ms));
      const bool still = check.serve(Tokens{served.back().second}, at_ms(ms));
      EXPECT_EQ(had_room, still);
      holds = holds && still;
      ASSERT_EQ(holds, holds_everywhere(served, rate, depth)) << "seed " << seed;
    }
    broken += holds ? 0 : 1;
  }
  EXPECT_GT(broken, 50);
  EXPECT_LT(broken, 450);
}

}  // namespace
}  // namespace weir::sim
