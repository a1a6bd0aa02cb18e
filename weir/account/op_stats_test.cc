// SPDX-License-Identifier: Apache-2.0
#include "weir/account/op_stats.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using Op = OperationKind;

Instant at(seconds time) { return Instant{} + time; }

RequestRecord record_of(Op operation, Bytes bytes, Nanoseconds device_time, Instant ended) {
  return {.operation = operation,
          .charged = bytes,
          .moved = bytes,
          .arrived = ended - device_time,
          .started = ended - device_time,
          .ended = ended};
}

TEST(OpStats, KeepsCountSmallestLargestSumSquaresAndPowersOfTwo) {
  OpStats stats;
  OpStats::Handle handle;
  const JobId job("dd.0");
  for (const std::uint64_t size : {1U, 4096U, 4097U, 1U << 20}) {
    stats.record(handle, job,
                 record_of(Op::kWrite, Bytes{size}, microseconds{size}, at(seconds{1})));
  }
  const OpStats::Job& kept = stats.jobs(at(seconds{1})).front();
  EXPECT_EQ(kept.write_bytes.samples, 4U);
  EXPECT_EQ(kept.write_bytes.min, 1U);
  EXPECT_EQ(kept.write_bytes.max, 1U << 20);
  EXPECT_EQ(kept.write_bytes.sum, 1U + 4096 + 4097 + (1U << 20));
  EXPECT_EQ(kept.write_bytes.sumsq,
            1U + 4096ULL * 4096 + 4097ULL * 4097 + (std::uint64_t{1} << 40));
  EXPECT_EQ(kept.write_bytes.buckets[0], 1U);
  EXPECT_EQ(kept.write_bytes.buckets[12], 1U) << "4096 is the upper bound of its bucket";
  EXPECT_EQ(kept.write_bytes.buckets[13], 1U);
  EXPECT_EQ(kept.write_bytes.buckets[20], 1U);
  EXPECT_EQ(kept.usecs[static_cast<std::size_t>(Op::kWrite)].max, 1U << 20);
  EXPECT_EQ(kept.read_bytes.samples, 0U);
}

TEST(OpStats, RecordsNothingWithoutAJob) {
  OpStats stats;
  OpStats::Handle handle;
  stats.record(handle, JobId(), record_of(Op::kRead, Bytes{1}, microseconds{1}, at(seconds{1})));
  EXPECT_TRUE(stats.jobs(at(seconds{1})).empty());
}

TEST(OpStats, DropsWhoHasBeenIdleForLongerThanTheInterval) {
  OpStats stats;
  OpStats::Handle a, b;
  stats.set_cleanup_interval(seconds{4});
  stats.record(a, JobId("a"), record_of(Op::kFlush, Bytes{0}, microseconds{1}, at(seconds{0})));
  stats.record(b, JobId("b"), record_of(Op::kFlush, Bytes{0}, microseconds{1}, at(seconds{3})));
  EXPECT_EQ(stats.jobs(at(seconds{4})).size(), 2U);
  EXPECT_EQ(stats.jobs(at(seconds{5})).size(), 1U);
  stats.set_cleanup_interval(seconds{0});
  EXPECT_EQ(stats.jobs(at(seconds{5000})).size(), 1U) << "0 is never";
}

TEST(OpStats, AHandleOfAJobThatWasDroppedFindsItAgain) {
  OpStats stats;
  OpStats::Handle handle;
  stats.record(handle, JobId("a"), record_of(Op::kRead, Bytes{7}, microseconds{1}, at(seconds{1})));
  EXPECT_TRUE(stats.drop(JobId("a")));
  EXPECT_FALSE(stats.drop(JobId("a")));
  stats.record(handle, JobId("a"), record_of(Op::kRead, Bytes{7}, microseconds{1}, at(seconds{2})));
  stats.clear();
  stats.record(handle, JobId("a"), record_of(Op::kRead, Bytes{7}, microseconds{1}, at(seconds{3})));
  ASSERT_EQ(stats.jobs(at(seconds{3})).size(), 1U);
  EXPECT_EQ(stats.jobs(at(seconds{3})).front().read_bytes.samples, 1U);
}

TEST(OpStats, AboveTheBoundTheLongestIdleMakesRoom) {
  OpStats stats(100);
  OpStats::Handle handle;
  for (std::size_t i = 0; i <= 100; ++i) {
    stats.record(handle, JobId(std::to_string(i)),
                 record_of(Op::kFlush, Bytes{0}, microseconds{1}, Instant{} + microseconds{i}));
  }
  const auto& jobs = stats.jobs(Instant{} + microseconds{100});
  EXPECT_EQ(jobs.size(), 100U);
  EXPECT_EQ(jobs.front().id.text(), "1");
}

// The same decisions as a scan of all jobs would make.
TEST(OpStats, DropsInTheOrderOfTheLastRequestWhateverTheOrderOfArrival) {
  OpStats stats;
  stats.set_cleanup_interval(seconds{10});
  std::vector<std::pair<std::string, int>> model;  // in the order of arrival, with the last request
  Rng rng(7);
  for (int now = 0; now < 3000; ++now) {
    const std::string job = std::to_string(rng.below(24));
    OpStats::Handle handle;
    stats.record(handle, JobId(job),
                 record_of(Op::kFlush, Bytes{0}, microseconds{1}, at(seconds{now})));
    const auto is_job = [&](const auto& one) { return one.first == job; };
    auto found = std::find_if(model.begin(), model.end(), is_job);
    if (found == model.end()) {
      std::erase_if(model, [&](const auto& one) { return now - one.second > 10; });
      found = model.insert(model.end(), {job, now});
    }
    found->second = now;
    if (rng.below(50) == 0 && stats.drop(JobId(job))) std::erase_if(model, is_job);
    if (rng.below(20) != 0) continue;
    std::erase_if(model, [&](const auto& one) { return now - one.second > 10; });
    std::vector<std::string> expected, kept;
    for (const auto& one : model) expected.push_back(one.first);
    for (const OpStats::Job& one : stats.jobs(at(seconds{now}))) kept.emplace_back(one.id.text());
    ASSERT_EQ(kept, expected) << now;
  }
}

// Half a second of work; a scan of 8,192 jobs for each would take minutes.
TEST(OpStats, AnInventedJobIdCostsTheSameHoweverManyThereAre) {
  OpStats stats;
  OpStats::Handle handle;
  for (std::size_t i = 0; i < 500'000; ++i) {
    stats.record(handle, JobId(std::to_string(i)),
                 record_of(Op::kFlush, Bytes{0}, microseconds{1}, Instant{} + microseconds{i}));
  }
  EXPECT_EQ(stats.jobs(Instant{} + seconds{1}).front().id.text(),
            std::to_string(500'000 - OpStats::kJobsMaxDefault));
}

TEST(OpStats, TheTotalHasRemovedJobsAndRequestsWithoutAJob) {
  OpStats stats(2);
  OpStats::Handle handle;
  const auto read = [&](const char* job, std::uint64_t bytes, std::int64_t second) {
    stats.record(handle, JobId(job),
                 record_of(Op::kRead, Bytes{bytes}, microseconds{bytes}, at(seconds{second})));
  };
  EXPECT_EQ(stats.total().since, kNever);
  read("", 1, 1);
  read("a", 2, 2);
  read("b", 4, 3);
  read("c", 8, 4);  // there is room for two
  stats.drop(JobId("b"));
  read("d", 16, 5);
  stats.clear();
  read("e", 32, 6);
  const OpStats::Operations total = stats.total();
  EXPECT_EQ(total.read_bytes.samples, 6U);
  EXPECT_EQ(total.read_bytes.sum, 63U);
  EXPECT_EQ(total.read_bytes.min, 1U);
  EXPECT_EQ(total.read_bytes.max, 32U);
  EXPECT_EQ(total.read_bytes.buckets[5], 1U);
  EXPECT_EQ(total.usecs[0].sum, 63U);
  EXPECT_EQ(total.since, at(seconds{1}));
  EXPECT_EQ(total.updated, at(seconds{6}));
  EXPECT_EQ(stats.jobs(at(seconds{6})).size(), 1U) << "no entry for requests without a job";
}

}  // namespace
}  // namespace weir
