// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/parts_check.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Projects 1 (weight 2) and 2 (weight 1); users 1/a and 1/b, and 2/c, with one job each.
JobTree two_projects() {
  return {.nodes = {{}, {0, 2, "1"}, {0, 1, "2"}, {1, 1, "1/a"}, {1, 3, "1/b"}, {2, 1, "2/c"}},
          .jobs = {3, 4, 5}};
}

// Serves jobs in turn, so many requests of each per second; all of them always wait.
class Served {
 public:
  Served() : check_(two_projects(), Tokens{1}) {}

  void arrive(std::size_t job) { check_.wait(job, now_); }
  void serve(const std::vector<std::uint64_t>& counts, int length) {
    for (int i = 0; i < length; ++i) {
      now_ += seconds{1};
      for (std::size_t job = 0; job < counts.size(); ++job) {
        for (std::uint64_t j = 0; j < counts[job]; ++j) {
          check_.wait(job, now_);  // before the last one leaves
          check_.dispatch(job, Tokens{1}, now_);
        }
      }
    }
  }
  void leave(std::size_t job) { check_.dispatch(job, Tokens{1}, now_); }
  PartsCheck& end() {
    check_.end(now_);
    return check_;
  }

 private:
  PartsCheck check_;
  Instant now_{};
};

TEST(PartsCheck, AcceptsPartsByWeightInEveryLevel) {
  Served run;
  for (const std::size_t job : {0U, 1U, 2U}) run.arrive(job);
  run.serve({50, 150, 100}, 20);
  EXPECT_EQ(run.end().checked(), 2U) << "of the root and of project 1";
  EXPECT_EQ(run.end().take_finding(), std::nullopt);
}

TEST(PartsCheck, FindsAProjectThatGetsTwoPercentLess) {
  Served run;
  for (const std::size_t job : {0U, 1U, 2U}) run.arrive(job);
  run.serve({49, 147, 104}, 20);
  EXPECT_EQ(run.end().take_finding(), "node 1 got 3920 in 20.0 s, its part by weight is 4000");
}

TEST(PartsCheck, FindsAUserThatGetsTheWrongPartOfItsProject) {
  Served run;
  for (const std::size_t job : {0U, 1U, 2U}) run.arrive(job);
  run.serve({100, 100, 100}, 20);
  EXPECT_EQ(run.end().take_finding(), "node 1/a got 2000 in 20.0 s, its part by weight is 1000");
}

TEST(PartsCheck, AnIdleUserLeavesItsPartToItsSiblings) {
  Served run;
  for (const std::size_t job : {0U, 2U}) run.arrive(job);
  run.serve({200, 0, 100}, 15);
  run.arrive(1);
  run.serve({50, 150, 100}, 15);
  EXPECT_EQ(run.end().take_finding(), std::nullopt);
}

TEST(PartsCheck, FindsAnIdleUserThatLeavesItsPartToAnotherProject) {
  Served run;
  for (const std::size_t job : {0U, 2U}) run.arrive(job);
  run.serve({100, 0, 200}, 15);
  EXPECT_EQ(run.end().take_finding(), "node 1 got 1500 in 15.0 s, its part by weight is 3000");
}

TEST(PartsCheck, ShortStretchesAreNotChecked) {
  Served run;
  for (const std::size_t job : {0U, 1U, 2U}) run.arrive(job);
  run.serve({0, 0, 300}, 9);
  EXPECT_EQ(run.end().checked(), 0U);
  EXPECT_EQ(run.end().take_finding(), std::nullopt);
}

TEST(PartsCheck, APartOfAPart) {
  EXPECT_EQ(two_projects().part_of(0, 1200), 200U);
  EXPECT_EQ(two_projects().part_of(1, 1200), 600U);
  EXPECT_EQ(two_projects().part_of(2, 1200), 400U);
}

}  // namespace
}  // namespace weir::sim
