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
  stats.start(entry, {.started = Instant{} + milliseconds{3}}, Tokens{4});
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

// A request of the job that waited so long, and ends.
void serve(JobStats& stats, const JobId& job, milliseconds waited, Instant now) {
  JobStats::Entry& entry = stats.hold(job, now);
  const RequestRecord record{.arrived = now - waited, .started = now, .ended = now};
  entry.arrive(Tokens{1}, now);
  stats.start(entry, record, Tokens{1});
  entry.finish(record, Tokens{1}, Tokens{1});
  stats.release(entry);
}

bool has_page(const JobStats& stats, const JobId& job) {
  for (std::size_t i = 0; i < stats.timed_jobs(); ++i) {
    if (stats.timed_job(i).entry->job == job) return true;
  }
  return false;
}

JobTimes sum_of(const JobStats& stats) {
  JobTimes sum = stats.shared_times();
  for (std::size_t i = 0; i < stats.timed_jobs(); ++i) sum += stats.timed_job(i).times;
  return sum;
}

constexpr Instant at_start = Instant{} + std::chrono::hours{1};

TEST(JobTimesPages, TheFirstJobsGetOneEvenWithoutWaits) {
  JobStats stats(8, 2);
  serve(stats, job_a, milliseconds{0}, at_start);
  serve(stats, job_b, milliseconds{0}, at_start);
  serve(stats, job_c, milliseconds{0}, at_start);
  EXPECT_TRUE(has_page(stats, job_a));
  EXPECT_TRUE(has_page(stats, job_b));
  EXPECT_FALSE(has_page(stats, job_c));
  EXPECT_EQ(stats.shared_times().wait.count(), 1U);
}

TEST(JobTimesPages, AJobThatWaitsMoreThanTwiceAsLongTakesThePageOfAnother) {
  JobStats stats(8, 2);
  serve(stats, job_a, milliseconds{40}, at_start);
  serve(stats, job_b, milliseconds{10}, at_start);
  serve(stats, job_c, milliseconds{20}, at_start);
  EXPECT_FALSE(has_page(stats, job_c)) << "not more than twice";
  serve(stats, job_c, milliseconds{20}, at_start);
  EXPECT_TRUE(has_page(stats, job_c)) << "40 ms, and b 10";
  EXPECT_TRUE(has_page(stats, job_a));
  EXPECT_FALSE(has_page(stats, job_b));
  serve(stats, job_c, milliseconds{1}, at_start);
  EXPECT_EQ(sum_of(stats).wait.count(), 5U);
  EXPECT_EQ(sum_of(stats).wait.sum_ns(), 91'000'000U) << "nothing is lost when a page is taken";
  EXPECT_EQ(stats.shared_times().wait.count(), 3U) << "b's page, and c before it had one";
}

TEST(JobTimesPages, AnIdleJobGivesItsPageToAnyOther) {
  JobStats stats(8, 1);
  serve(stats, job_a, milliseconds{4000}, at_start);
  serve(stats, job_b, milliseconds{1}, at_start + std::chrono::seconds{60});
  EXPECT_TRUE(has_page(stats, job_a)) << "a minute is not longer than a minute";
  serve(stats, job_b, milliseconds{8}, at_start + std::chrono::seconds{61});
  EXPECT_TRUE(has_page(stats, job_b));
}

TEST(JobTimesPages, AHeldJobIsNotIdle) {
  JobStats stats(8, 1);
  serve(stats, job_a, milliseconds{4000}, at_start);
  stats.hold(job_a, at_start);
  serve(stats, job_b, milliseconds{1}, at_start + std::chrono::hours{1});
  EXPECT_TRUE(has_page(stats, job_a));
}

TEST(JobTimesPages, ARemovedJobLeavesItsTimesAndItsPageStartsEmpty) {
  JobStats stats(1, 1);
  serve(stats, job_a, milliseconds{5}, at_start);
  serve(stats, job_b, milliseconds{1}, at_start);
  EXPECT_TRUE(has_page(stats, job_b));
  EXPECT_EQ(stats.timed_job(0).times.wait.sum_ns(), 1'000'000U);
  EXPECT_EQ(sum_of(stats).wait.sum_ns(), 6'000'000U);
}

TEST(JobTimesPagesProperty, AllTimesAddUpAndPagesKeepTheirBound) {
  Rng rng(7);
  JobStats stats(16, 4);
  Instant now = at_start;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    now += milliseconds{rng.below(2000)};
    const std::uint64_t waited = rng.below(1000);
    serve(stats, JobId(fmt::format("j{}", rng.below(40))), milliseconds{waited}, now);
    sum += waited * 1'000'000;
    ASSERT_EQ(sum_of(stats).wait.count(), i + 1);
  }
  EXPECT_EQ(sum_of(stats).wait.sum_ns(), sum);
  EXPECT_EQ(stats.timed_jobs(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const JobStats::TimedJob& page = stats.timed_job(i);
    EXPECT_EQ(page.entry->times, &page.times) << "each page has one holder";
  }
}

}  // namespace
}  // namespace weir
