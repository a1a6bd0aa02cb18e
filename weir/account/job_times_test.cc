// SPDX-License-Identifier: Apache-2.0
#include "weir/account/job_times.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

TEST(TimeHistogram, APowerOfTwoIsWithinItsOwnBound) {
  for (unsigned exponent = 1; exponent < 62; ++exponent) {
    const std::int64_t bound = std::int64_t{1} << exponent;
    TimeHistogram at;
    at.record(Nanoseconds{bound});
    EXPECT_EQ(at.count_up_to(exponent), 1U) << exponent;
    TimeHistogram above;
    above.record(Nanoseconds{bound + 1});
    EXPECT_EQ(above.count_up_to(exponent), 0U) << exponent;
    EXPECT_EQ(above.count_up_to(exponent + 1), 1U) << exponent;
  }
}

TEST(TimeHistogram, ZeroAndAClockThatSteppedBackAreBelowEveryBound) {
  TimeHistogram times;
  times.record(Nanoseconds{0});
  times.record(Nanoseconds{-5});
  EXPECT_EQ(times.count_up_to(1), 2U);
  EXPECT_EQ(times.count(), 2U);
}

TEST(TimeHistogramProperty, CountsAndSumsAsAListWould) {
  Rng rng(1);
  std::vector<std::int64_t> list;
  TimeHistogram times;
  TimeHistogram halves[2];
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    const auto ns = static_cast<std::int64_t>(rng.below(std::uint64_t{1} << rng.below(40)));
    list.push_back(ns);
    times.record(Nanoseconds{ns});
    halves[i % 2].record(Nanoseconds{ns});
    sum += static_cast<std::uint64_t>(ns);
  }
  for (unsigned exponent = 1; exponent < 42; ++exponent) {
    const auto count = std::count_if(list.begin(), list.end(), [&](std::int64_t ns) {
      return ns <= std::int64_t{1} << exponent;
    });
    EXPECT_EQ(times.count_up_to(exponent), static_cast<std::uint64_t>(count)) << exponent;
  }
  EXPECT_EQ(times.sum_ns(), sum);
  EXPECT_EQ(times.since(halves[0]), halves[1]);
  halves[0] += halves[1];
  EXPECT_EQ(halves[0], times);
}

TEST(TimeHistogram, AnotherHistogramCountsInFull) {
  TimeHistogram before;
  before.record(Nanoseconds{5});
  TimeHistogram now;
  now.record(Nanoseconds{100});
  EXPECT_EQ(now.since(before), now);
  now.raise_to(before);
  EXPECT_EQ(now.count(), 2U) << "no bucket decreases";
}

TEST(JobTimes, ReadsWritesAndOthersAreApart) {
  JobTimes times;
  const auto finish = [&](OperationKind operation) {
    times.finish({.operation = operation,
                  .arrived = instant_at(0),
                  .started = instant_at(10),
                  .ended = instant_at(17)});
  };
  times.start({.arrived = instant_at(0), .started = instant_at(10)});
  finish(OperationKind::kRead);
  finish(OperationKind::kWrite);
  finish(OperationKind::kZero);
  finish(OperationKind::kFlush);
  EXPECT_EQ(times.wait.sum_ns(), 10U);
  EXPECT_EQ(times.device[0].count(), 1U);
  EXPECT_EQ(times.device[1].count(), 2U);
  EXPECT_EQ(times.device[2].count(), 1U);
  EXPECT_EQ(times.device[1].sum_ns(), 14U) << "without the wait";
}

}  // namespace
}  // namespace weir
