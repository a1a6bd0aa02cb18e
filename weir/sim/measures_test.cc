// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/measures.h"

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
    measures.complete(0, step < 10 ? 10 : 75, at);  // then 25 more than its 50
    measures.complete(1, step < 10 ? 90 : 25, at);
  }
  const auto measured = measures.end(ms(3000));
  EXPECT_DOUBLE_EQ(measured[0].lent, 400);
  EXPECT_DOUBLE_EQ(measured[0].repaid, 500);
  EXPECT_EQ(measured[0].repaid_after, milliseconds{800});  // 8 steps x 25 = 200
  EXPECT_FALSE(measured[1].repaid_after);
}

}  // namespace
}  // namespace weir::sim
