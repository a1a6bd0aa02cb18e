// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/burst_order.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weir {
namespace {

using State = JobDemand::State;

// Rounds of the jobs a, b and hog; a job that is served nothing is idle.
struct Rounds {
  void next(std::uint64_t a, std::uint64_t b, std::uint64_t hog = 5) {
    demands.clear();
    add("a", a);
    add("b", b);
    add("hog", hog);
    order.follow(demands);
  }
  std::optional<JobId> first(std::uint64_t most = 1000) const {
    return order.first(demands, JobId("hog"), most);
  }
  std::uint64_t left(const char* job) const { return order.left_of(JobId(job)); }

  BurstOrder order;
  std::vector<JobDemand> demands;

 private:
  void add(const char* job, std::uint64_t served) {
    JobDemand& demand = demands.emplace_back();
    demand.job = JobId(job);
    demand.state = served > 0 ? State::kBacklogged : State::kIdle;
    demand.served = Tokens{served};
  }
};

TEST(BurstOrder, ABurstIsExpectedToBeAsLongAsTheLastOne) {
  Rounds rounds;
  rounds.next(30, 40);
  rounds.next(30, 40);
  EXPECT_EQ(rounds.left("a"), 0U);  // not known yet
  EXPECT_FALSE(rounds.first());
  rounds.next(0, 0);
  EXPECT_EQ(rounds.left("a"), 60U);
  rounds.next(10, 10);
  EXPECT_EQ(rounds.left("a"), 50U);
  EXPECT_EQ(rounds.left("b"), 70U);
  EXPECT_EQ(rounds.first(), JobId("a"));
  rounds.next(0, 0);
  EXPECT_EQ(rounds.left("a"), 10U);  // the last one was shorter
}

TEST(BurstOrder, TheOneWithFewerRequestsLeftIsFirst) {
  Rounds rounds;
  rounds.next(80, 60);
  rounds.next(0, 0);
  rounds.next(30, 5);
  EXPECT_EQ(rounds.first(), JobId("a"));  // 50 and 55
  EXPECT_FALSE(rounds.first(49));         // it would take too long
  rounds.next(1, 6);
  EXPECT_EQ(rounds.first(), JobId("a"));  // 49 and 49
}

TEST(BurstOrder, NoneIsOrderedBesideAJobThatIsNotExpectedToEnd) {
  Rounds rounds;
  rounds.next(80, 60);
  rounds.next(0, 60);
  rounds.next(10, 10);
  EXPECT_FALSE(rounds.first());  // b was never idle
  rounds.next(0, 0);
  rounds.next(1, 1);
  EXPECT_EQ(rounds.first(), JobId("a"));
  rounds.next(20, 1);  // more than its last one
  EXPECT_FALSE(rounds.first());
}

TEST(BurstOrder, OneBurstAloneIsNotOrdered) {
  Rounds rounds;
  rounds.next(80, 60);
  rounds.next(0, 0);
  rounds.next(10, 0);
  EXPECT_FALSE(rounds.first());
}

TEST(BurstOrder, JobsThatHaveGoneAreForgotten) {
  Rounds rounds;
  rounds.next(80, 60);
  rounds.next(0, 0);
  EXPECT_EQ(rounds.left("b"), 60U);
  std::erase_if(rounds.demands, [](const JobDemand& one) { return one.job == JobId("b"); });
  rounds.order.follow(rounds.demands);
  EXPECT_EQ(rounds.left("b"), 0U);
  EXPECT_EQ(rounds.left("a"), 80U);
}

TEST(BurstOrder, SurvivesAbsurdCounts) {
  Rounds rounds;
  for (int i = 0; i < 5; ++i) rounds.next(UINT64_MAX, UINT64_MAX);
  rounds.next(0, 0);
  EXPECT_GT(rounds.left("a"), 0U);
  rounds.next(1, UINT64_MAX);
  EXPECT_FALSE(rounds.first());
}

}  // namespace
}  // namespace weir
