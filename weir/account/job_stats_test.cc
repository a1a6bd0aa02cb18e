// SPDX-License-Identifier: Apache-2.0
#include "weir/account/job_stats.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

const JobId job_a("a"), job_b("b"), job_c("c");

TEST(JobStats, CountsARequestFromArrivalToEnd) {
  JobStats stats;
  JobStats::Entry& entry = stats.hold(job_a, instant_at(5));
  entry.arrive(Tokens{4}, instant_at(10));
  entry.arrive(Tokens{6}, instant_at(20));
  EXPECT_EQ(entry.waiting(), (JobStats::Count{2, Tokens{10}}));
  entry.start({.started = Instant{} + milliseconds{3}}, Tokens{4});
  EXPECT_EQ(entry.waiting(), (JobStats::Count{1, Tokens{6}}));
  EXPECT_EQ(entry.running(), (JobStats::Count{1, Tokens{4}}));
  entry.finish(
      {.moved = Bytes{4096}, .arrived = instant_at(30) - milliseconds{9}, .ended = instant_at(30)},
      Tokens{4}, Tokens{4});
  entry.withdraw(Tokens{6});
  EXPECT_EQ(entry.waiting(), JobStats::Count{});
  EXPECT_EQ(entry.running(), JobStats::Count{});
  EXPECT_EQ(entry.arrived, (JobStats::Count{2, Tokens{10}})) << "counters only grow";
  EXPECT_EQ(entry.finished, (JobStats::Count{1, Tokens{4}}));
  EXPECT_EQ(entry.read, Bytes{4096});
  EXPECT_EQ(entry.wait_sum, milliseconds{3});
  EXPECT_EQ(entry.latency_max, milliseconds{9});
  EXPECT_EQ(entry.since, instant_at(5));
  EXPECT_EQ(entry.last_seen, instant_at(30));
}

TEST(JobStats, ManyMayHoldOneEntryAndItStaysWhereItIs) {
  JobStats stats(100);
  JobStats::Entry& first = stats.hold(job_a, instant_at(0));
  for (int i = 0; i < 90; ++i) stats.hold(JobId(fmt::format("j{}", i)), instant_at(0));
  EXPECT_EQ(&stats.hold(job_a, instant_at(0)), &first);
  stats.release(first);
  first.arrive(Tokens{1}, instant_at(1));
  EXPECT_EQ(stats.find(job_a), &first);
}

TEST(JobStats, TheOneReleasedLongestAgoMakesRoom) {
  JobStats stats(2);
  JobStats::Entry& a = stats.hold(job_a, instant_at(0));
  JobStats::Entry& b = stats.hold(job_b, instant_at(0));
  a.arrive(Tokens{7}, instant_at(1));
  a.withdraw(Tokens{7});
  stats.release(b);
  stats.release(a);
  stats.release(stats.hold(job_b, instant_at(2)));  // seen again: a is the older one now
  stats.hold(job_c, instant_at(3));
  EXPECT_EQ(stats.find(job_a), nullptr);
  EXPECT_NE(stats.find(job_b), nullptr);
  EXPECT_EQ(stats.forgotten(), 1U);
  EXPECT_EQ(stats.gone().arrived, (JobStats::Count{1, Tokens{7}})) << "totals never shrink";
  EXPECT_EQ(stats.find(job_c)->arrived, JobStats::Count{});
  EXPECT_EQ(stats.find(job_c)->since, instant_at(3));
}

TEST(JobStats, InventedJobsShareTheOverflowEntryWhileAllOthersAreHeld) {
  JobStats stats(2);
  stats.hold(job_a, instant_at(0));
  JobStats::Entry& b = stats.hold(job_b, instant_at(0));
  for (int i = 0; i < 1000; ++i) {
    JobStats::Entry& entry = stats.hold(JobId(fmt::format("invented{}", i)), instant_at(1));
    EXPECT_EQ(&entry, &stats.overflow());
    entry.arrive(Tokens{1}, instant_at(1));
    entry.withdraw(Tokens{1});
    stats.release(entry);
  }
  EXPECT_EQ(stats.overflowed(), 1000U);
  EXPECT_EQ(stats.overflow().arrived.requests, 1000U);
  EXPECT_EQ(stats.size(), 2U);
  stats.release(b);
  EXPECT_EQ(stats.hold(job_c, instant_at(2)).job, job_c) << "there is room again";
}

TEST(JobStats, IsReadInTheOrderOfIds) {
  JobStats stats;
  for (const JobId& job : {job_c, job_a, job_b}) stats.hold(job, instant_at(0));
  std::string all;
  for (const JobStats::Entry* entry : stats.sorted()) all += entry->job.text();
  EXPECT_EQ(all, "abc");
}

// Compared with a plain list of everything that was ever counted.
TEST(JobStatsProperty, NothingIsLostAndTheBoundHoldsWhateverComesAndGoes) {
  Rng rng(2);
  JobStats stats(8);
  std::vector<JobStats::Entry*> held;
  std::uint64_t arrived = 0;
  for (int step = 0; step < 20000; ++step) {
    if (rng.chance(1, 2) && held.size() < 12) {
      held.push_back(&stats.hold(JobId(fmt::format("j{}", rng.below(30))), instant_at(step)));
      held.back()->arrive(Tokens{1}, instant_at(step));
      ++arrived;
    } else if (!held.empty()) {
      std::swap(held[rng.below(held.size())], held.back());
      held.back()->withdraw(Tokens{1});
      stats.release(*held.back());
      held.pop_back();
    }
    std::uint64_t sum = stats.gone().arrived.requests + stats.overflow().arrived.requests;
    for (const JobStats::Entry* entry : stats.sorted()) sum += entry->arrived.requests;
    ASSERT_EQ(sum, arrived) << step;
    ASSERT_LE(stats.size(), 8U);
  }
  EXPECT_GT(stats.forgotten(), 100U);
  EXPECT_GT(stats.overflowed(), 100U);
}

}  // namespace
}  // namespace weir
