// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/outcome.h"

#include <limits>

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

TEST(JainIndex, IsOneForEqualsAndOneOverNForOne) {
  EXPECT_DOUBLE_EQ(*jain_index({2, 2, 2, 2}), 1);
  EXPECT_DOUBLE_EQ(*jain_index({5, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(*jain_index({1, 3}), 0.8);
  EXPECT_EQ(jain_index({}), std::nullopt);
  EXPECT_EQ(jain_index({0, 0}), std::nullopt);
}

TEST(Grouped, AddsUpJobsOfOneGroup) {
  Outcome outcome;
  for (const auto& [name, group] :
       {std::pair{"user1", "user"}, {"scan", "scan"}, {"user2", "user"}}) {
    JobOutcome& job = outcome.jobs.emplace_back();
    job.name = name;
    job.group = group;
    job.served = 5;
    job.share = 0.25;
    job.record = -3;
    job.wait.record(7);
    job.bins = {{5, 5}};
  }
  outcome.jobs[2].bins.push_back({1, 1});
  const std::vector<JobOutcome> groups = grouped(outcome);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].name, "user");
  EXPECT_EQ(groups[0].nodes, 2U);
  EXPECT_EQ(groups[0].served, 10U);
  EXPECT_EQ(groups[0].record, -6);
  EXPECT_DOUBLE_EQ(*groups[0].share, 0.5);
  EXPECT_EQ(groups[0].wait.count(), 2U);
  ASSERT_EQ(groups[0].bins.size(), 2U);
  EXPECT_EQ(groups[0].bins[0].served, 10U);
  EXPECT_EQ(groups[1].served, 5U);
}

TEST(FairParts, NobodyGetsMoreThanItAskedForAndNothingIsLost) {
  constexpr double kAll = std::numeric_limits<double>::infinity();
  using Parts = std::vector<double>;
  EXPECT_EQ(fair_parts(1000, {3, 1}, {200, 5000}), (Parts{200, 800}));
  EXPECT_EQ(fair_parts(1000, {3, 1}, {kAll, kAll}), (Parts{750, 250}));
  EXPECT_EQ(fair_parts(1000, {1, 1, 2}, {100, kAll, 500}), (Parts{100, 400, 500}));
  EXPECT_EQ(fair_parts(1000, {1, 1}, {100, 100}), (Parts{100, 100}));
  EXPECT_EQ(fair_parts(0, {1}, {5}), Parts{0});
  EXPECT_EQ(fair_parts(5, {}, {}), Parts{});
}

}  // namespace
}  // namespace weir::sim
