// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/measures.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant ms(std::int64_t at) { return instant_at(at * 1'000'000); }

Scenario of_nodes(std::vector<std::uint64_t> nodes) {
  Scenario scenario;
  for (const std::uint64_t count : nodes) {
    JobSpec& job = scenario.jobs.emplace_back();
    job.nodes = count;
    job.processes = {{}};
  }
  return scenario;
}

TEST(Measures, ShortfallIsWhatABackloggedJobLacksOfItsEntitlement) {
  // The example of the header: nodes 3 and 1, 200 and 800 of 1000 served in each window.
  Measures measures(of_nodes({3, 1}));
  for (int i = 0; i < 100; ++i) measures.arrive(0, ms(0));
  for (int i = 0; i < 100; ++i) measures.arrive(1, ms(0));
  for (int step = 0; step < 20; ++step) {
    measures.dispatch(0, ms(step * 100 + 50));
    measures.complete(0, 20, ms(step * 100 + 60));
    measures.dispatch(1, ms(step * 100 + 50));
    measures.complete(1, 80, ms(step * 100 + 60));
  }
  const auto measured = measures.end(ms(2000));
  EXPECT_EQ(measured[0].windows, 11U);  // one begins with each of the first 11 steps
  EXPECT_NEAR(measured[0].shortfall_mean, 1 - 200.0 / 750, 1e-9);
  EXPECT_NEAR(measured[0].shortfall_worst, 1 - 200.0 / 750, 1e-9);
  EXPECT_EQ(measured[1].windows, 11U);
  EXPECT_EQ(measured[1].shortfall_mean, 0);
}

// Both jobs are backlogged for two seconds; in each step they are served so much.
std::vector<JobMeasured> of_two(const Scenario& scenario, std::uint64_t first,
                                std::uint64_t second) {
  Measures measures(scenario);
  for (int i = 0; i < 2; ++i) measures.arrive(0, ms(0));
  for (int i = 0; i < 2; ++i) measures.arrive(1, ms(0));
  for (int step = 0; step < 20; ++step) {
    for (const std::size_t job : {0U, 1U}) {
      measures.arrive(job, ms(step * 100 + 50));
      measures.dispatch(job, ms(step * 100 + 50));
    }
    measures.complete(0, first, ms(step * 100 + 60));
    measures.complete(1, second, ms(step * 100 + 60));
  }
  return measures.end(ms(2000));
}

TEST(Measures, WhatOthersDoNotNeedBelongsToABackloggedJob) {
  // The second job has nothing waiting at the end of each step, and gets 10 of its part of 25.
  Measures measures(of_nodes({3, 1}));
  for (int i = 0; i < 100; ++i) measures.arrive(0, ms(0));
  for (int step = 0; step < 20; ++step) {
    measures.dispatch(0, ms(step * 100 + 50));
    measures.arrive(1, ms(step * 100 + 50));
    measures.dispatch(1, ms(step * 100 + 55));
    measures.complete(0, 45, ms(step * 100 + 60));
    measures.complete(1, 10, ms(step * 100 + 60));
  }
  const auto measured = measures.end(ms(2000));
  EXPECT_EQ(measured[1].windows, 0U);
  // All but the 10 of the other; nothing is lacking.
  EXPECT_EQ(measured[0].windows, 11U);
  EXPECT_DOUBLE_EQ(measured[0].shortfall_mean, 0);
}

TEST(Measures, AReservationIsGivenBeforeTheRestIsDivided) {
  // Of 100 in a step 40 are reserved for the second job: the first is entitled to 60.
  Scenario scenario = of_nodes({3, 1});
  scenario.jobs[1].reserve = Rate::per_second(400);
  const auto kept = of_two(scenario, 45, 55);
  EXPECT_DOUBLE_EQ(kept[0].shortfall_mean, 1 - 45.0 / 60);
  EXPECT_DOUBLE_EQ(kept[1].shortfall_mean, 0);
  EXPECT_FALSE(kept[0].reserve_missed);
  EXPECT_DOUBLE_EQ(kept[1].reserve_missed.value_or(1), 0);
  const auto missed = of_two(scenario, 75, 25);
  EXPECT_DOUBLE_EQ(missed[1].shortfall_mean, 1 - 25.0 / 40);
  EXPECT_DOUBLE_EQ(missed[1].reserve_missed.value_or(0), 1 - 25.0 / 40);
  EXPECT_DOUBLE_EQ(missed[0].shortfall_mean, 0);
}

TEST(Measures, InATreeAJobIsEntitledToItsPartOfWhatItsProjectIs) {
  // Projects of weights 3 and 1; two jobs in the first, one in the second. Of 1000 in a window the
  // jobs are due 375, 375 and 250.
  Scenario scenario = of_nodes({1, 1, 1});
  scenario.targets[0].tree = {FieldSet{Field::kProjid}};
  scenario.targets[0].weights = {{"1", 3}};
  for (std::size_t i = 0; i < 3; ++i) {
    scenario.jobs[i].name = "j" + std::to_string(i);
    scenario.jobs[i].project = i < 2 ? 1 : 2;
  }
  const auto measured = [&](bool is_third_idle) {
    Measures measures(scenario);
    for (const std::size_t job : {0U, 1U, 2U}) {
      if (job == 2 && is_third_idle) continue;
      for (int i = 0; i < 100; ++i) measures.arrive(job, ms(0));
    }
    for (int step = 0; step < 10; ++step) {
      const Instant at = ms(step * 100 + 50);
      measures.complete(0, 15, at);
      if (!is_third_idle) measures.complete(2, 50, at);
      measures.complete(1, is_third_idle ? 85 : 35, at);
    }
    return measures.end(ms(1000));
  };
  const auto all = measured(false);
  EXPECT_DOUBLE_EQ(all[0].shortfall_worst, 1 - 150.0 / 375);
  EXPECT_DOUBLE_EQ(all[1].shortfall_worst, 1 - 350.0 / 375);
  EXPECT_EQ(all[2].shortfall_worst, 0);
  // What a project does not need belongs to the others.
  EXPECT_DOUBLE_EQ(measured(true)[0].shortfall_worst, 1 - 150.0 / 500);
}

TEST(Measures, AReservationBelowTheShareChangesNothing) {
  Scenario scenario = of_nodes({3, 1});
  scenario.jobs[0].reserve = Rate::per_second(100);
  EXPECT_DOUBLE_EQ(of_two(scenario, 60, 40)[0].shortfall_mean, 1 - 60.0 / 75);
}

TEST(Measures, ReservationsOfMoreThanIsServedAreReducedAlike) {
  // 600 and 200 are reserved; only 400 are served: 300 and 100.
  Scenario scenario = of_nodes({1, 1});
  scenario.jobs[0].reserve = Rate::per_second(600);
  scenario.jobs[1].reserve = Rate::per_second(200);
  const auto measured = of_two(scenario, 15, 25);
  EXPECT_DOUBLE_EQ(measured[0].shortfall_mean, 0.5);
  EXPECT_DOUBLE_EQ(measured[0].reserve_missed.value_or(0), 0.75);
  EXPECT_DOUBLE_EQ(measured[1].shortfall_mean, 0);
}

TEST(Measures, AWindowInWhichAJobHadNothingWaitingDoesNotCount) {
  Measures measures(of_nodes({1, 1}));
  for (int i = 0; i < 100; ++i) measures.arrive(1, ms(0));
  measures.arrive(0, ms(0));
  measures.dispatch(0, ms(550));  // empty for 1 ms
  measures.arrive(0, ms(551));
  const auto measured = measures.end(ms(1600));
  EXPECT_EQ(measured[0].windows, 0U);
  EXPECT_EQ(measured[1].windows, 0U);  // nothing was served: no entitlement
}

TEST(Measures, AJobThatIsRefilledAtOnceStaysBacklogged) {
  Measures measures(of_nodes({1, 1}));
  for (int i = 0; i < 100; ++i) measures.arrive(1, ms(0));
  measures.arrive(0, ms(0));
  for (int at = 50; at < 2000; at += 100) {
    measures.dispatch(0, ms(at));
    measures.arrive(0, ms(at));
    measures.complete(0, 1, ms(at));
  }
  EXPECT_EQ(measures.end(ms(2000))[0].windows, 11U);
}

TEST(Measures, StarvationIsTheLongestTimeWithoutADispatch) {
  Measures measures(of_nodes({1}));
  measures.arrive(0, ms(1000));  // the time before does not count
  measures.arrive(0, ms(1000));
  measures.dispatch(0, ms(1200));
  measures.dispatch(0, ms(1500));
  measures.complete(0, 1, ms(1500));
  measures.complete(0, 1, ms(1500));
  EXPECT_EQ(Measures(measures).end(ms(9000))[0].starved, milliseconds{300});
  measures.arrive(0, ms(2000));
  EXPECT_EQ(measures.end(ms(9000))[0].starved, seconds{7});  // still waiting at the end
}

TEST(Measures, ALoanIsRepaidWhenHalfOfItCameBack) {
  Scenario scenario = of_nodes({1, 1});
  scenario.jobs[0].processes = {{.kind = ProcessSpec::Kind::kBurst}, {.start = seconds{1}}};
  Measures measures(scenario);
  // Active for 10 steps in which it gets 10 of 100, so it lends 40 in each: 400.
  for (int i = 0; i < 1000; ++i) measures.arrive(0, ms(0));
  for (int i = 0; i < 1000; ++i) measures.arrive(1, ms(0));
  for (int step = 0; step < 30; ++step) {
    const Instant at = ms(step * 100 + 50);
    measures.complete(0, step < 10 ? 10 : 62, at);  // then 12 more than its 50
    measures.complete(1, step < 10 ? 90 : 38, at);
  }
  const auto measured = measures.end(ms(3000));
  EXPECT_DOUBLE_EQ(measured[0].lent, 400);
  EXPECT_DOUBLE_EQ(measured[0].repaid, 240);
  EXPECT_EQ(measured[0].repaid_after, seconds{2});  // 120 in the first window, 240 in two
  EXPECT_FALSE(measured[1].repaid_after);
}

TEST(Measures, ALargeLoanIsRepaidWhenASecondsWorthCameBack) {
  Scenario scenario = of_nodes({1, 1});
  scenario.targets[0].capacity = Rate::per_second(100);  // 50 in a second for each
  scenario.jobs[0].processes = {{.kind = ProcessSpec::Kind::kBurst}, {.start = seconds{1}}};
  Measures measures(scenario);
  for (const std::size_t job : {0U, 1U}) {
    for (int i = 0; i < 1000; ++i) measures.arrive(job, ms(0));
  }
  for (int step = 0; step < 30; ++step) {
    const Instant at = ms(step * 100 + 50);
    measures.complete(0, step < 10 ? 10 : 62, at);
    measures.complete(1, step < 10 ? 90 : 38, at);
  }
  // It lent 400; the 120 of the first window are more than 50.
  EXPECT_EQ(measures.end(ms(3000))[0].repaid_after, seconds{1});
}

}  // namespace
}  // namespace weir::sim
