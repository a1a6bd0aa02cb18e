// SPDX-License-Identifier: Apache-2.0
#include "weir/base/histogram.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

// ---- The checker: results of the histogram against the sorted values. ----

// ceil(n * numerator / denominator), counting from 1 and at least 1.
std::uint64_t rank_of(std::uint64_t n, std::uint64_t numerator, std::uint64_t denominator) {
  std::uint64_t rank = 1;
  while (Wide{rank} * denominator < Wide{n} * numerator) ++rank;
  return rank;
}

struct Fraction {
  std::uint64_t numerator;
  std::uint64_t denominator;
};

constexpr std::array<Fraction, 10> kFractions = {{{0, 1},
                                                  {1, UINT64_MAX},
                                                  {1, 3},
                                                  {1, 2},
                                                  {2, 3},
                                                  {5, 7},
                                                  {9, 10},
                                                  {99, 100},
                                                  {999, 1000},
                                                  {1, 1}}};

// The first guarantee of the header that does not hold, as text; empty if all hold.
template <class HistogramUnderTest>
std::string broken_promise(std::vector<std::uint64_t> values) {
  HistogramUnderTest histogram;
  Wide sum = 0;
  for (const std::uint64_t value : values) {
    histogram.record(value);
    sum += value;
  }
  std::sort(values.begin(), values.end());
  if (histogram.count() != values.size()) return "count";
  if (histogram.sum() != sum) return "sum";
  if (values.empty()) return histogram.quantile(1, 2) == 0 ? "" : "quantile of nothing";
  if (histogram.min() != values.front()) return "min";
  if (histogram.max() != values.back()) return "max";
  for (const auto& [numerator, denominator] : kFractions) {
    const std::uint64_t rank = rank_of(values.size(), numerator, denominator);
    const std::uint64_t exact = values[rank - 1];
    const std::uint64_t said = histogram.quantile(numerator, denominator);
    const bool must_be_exact = exact < 32 || rank == 1 || rank == values.size();
    const std::uint64_t error_max = must_be_exact ? 0 : exact / 16;
    if (said < exact || said - exact > error_max) {
      return fmt::format("quantile({}, {}) is {} for {}", numerator, denominator, said, exact);
    }
    if (said > histogram.max()) return "quantile above max";
  }
  return "";
}

// Every value up to 300, and those around each power of two and its sixteenths.
std::vector<std::uint64_t> interesting_values() {
  std::vector<std::uint64_t> values;
  for (std::uint64_t value = 0; value < 300; ++value) values.push_back(value);
  for (int shift = 4; shift < 60; ++shift) {
    for (std::uint64_t sixteenth = 16; sixteenth < 32; ++sixteenth) {
      const std::uint64_t edge = sixteenth << shift;
      values.insert(values.end(), {edge - 1, edge, edge + 1});
    }
  }
  values.push_back(UINT64_MAX - 1);
  values.push_back(UINT64_MAX);
  return values;
}

TEST(Histogram, BucketsCoverAllValuesWithoutGapOrOverlap) {
  std::uint64_t expected_lowest = 0;
  for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t lowest = Histogram::lowest_in(bucket);
    const std::uint64_t highest = Histogram::highest_in(bucket);
    ASSERT_EQ(lowest, expected_lowest) << "bucket " << bucket;
    ASSERT_LE(highest - lowest, lowest / 16) << "bucket " << bucket;
    ASSERT_EQ(Histogram::bucket_of(lowest), bucket);
    ASSERT_EQ(Histogram::bucket_of(lowest + (highest - lowest) / 2), bucket);
    ASSERT_EQ(Histogram::bucket_of(highest), bucket);
    expected_lowest = highest + 1;
  }
  EXPECT_EQ(expected_lowest, 0u) << "the last bucket ends at 2^64 - 1";
  EXPECT_EQ(Histogram::bucket_of(100), 57u);  // the worked example
}

// The value under test is in the middle, so that neither min() nor max() hides an error.
TEST(Histogram, KeepsItsPromisesForEveryInterestingValue) {
  for (const std::uint64_t value : interesting_values()) {
    ASSERT_EQ(broken_promise<Histogram>({0, value, UINT64_MAX}), "") << value;
  }
}

// All multisets of up to four values around the places where the width of buckets changes.
TEST(Histogram, KeepsItsPromisesForEverySmallMultiset) {
  const std::vector<std::uint64_t> values = {0, 1, 15, 16, 31, 32, 33, 63, 64, 67, 1023};
  for (std::size_t a = 0; a < values.size(); ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      ASSERT_EQ(broken_promise<Histogram>({values[a], values[b]}), "");
      for (std::size_t c = 0; c <= b; ++c) {
        ASSERT_EQ(broken_promise<Histogram>({values[a], values[b], values[c]}), "");
        ASSERT_EQ(broken_promise<Histogram>({values[a], values[b], values[c], values[c]}), "");
      }
    }
  }
}

// Values of all magnitudes: a random number of random bits.
rc::Gen<std::vector<std::uint64_t>> values_of_any_size() {
  const auto value =
      rc::gen::apply([](std::uint64_t seed, int shift) { return Rng(seed).next() >> shift; },
                     rc::gen::arbitrary<std::uint64_t>(), rc::gen::inRange(0, 64));
  return rc::gen::container<std::vector<std::uint64_t>>(value);
}

RC_GTEST_PROP(HistogramProperty, KeepsItsPromises, ()) {
  RC_ASSERT(broken_promise<Histogram>(*values_of_any_size()) == "");
}

RC_GTEST_PROP(HistogramProperty, MergingEqualsRecordingInOnePlace, ()) {
  const auto values = *values_of_any_size();
  const auto others = *values_of_any_size();
  Histogram first;
  Histogram second;
  Histogram both;
  for (const std::uint64_t value : values) {
    first.record(value);
    both.record(value);
  }
  for (const std::uint64_t value : others) {
    second.record(value, 3);
    both.record(value, 3);
  }
  Histogram merged = first;
  merged.merge(second);
  RC_ASSERT(merged == both);
  second.merge(first);
  RC_ASSERT(second == both);
}

// ---- The checker works ----

// Reports the start of the bucket: the most common error.
struct SaysTheLowerEdge : Histogram {
  std::uint64_t quantile(std::uint64_t numerator, std::uint64_t denominator) const {
    return lowest_in(bucket_of(Histogram::quantile(numerator, denominator)));
  }
};

// Counts the first value of a bucket in the previous one.
struct EdgeOneTooHigh : Histogram {
  void record(std::uint64_t value) {
    const bool is_edge = value >= 32 && value == lowest_in(bucket_of(value));
    Histogram::record(is_edge ? value - 1 : value);
  }
};

// Eight buckets to a power of two instead of sixteen: within 1/8, not within 1/16.
struct TooCoarse : Histogram {
  std::uint64_t quantile(std::uint64_t numerator, std::uint64_t denominator) const {
    const std::uint64_t said = Histogram::quantile(numerator, denominator);
    return said < 32 ? said : std::min(highest_in(bucket_of(said) | 1), max());
  }
};

// Ignores that the last bucket may extend beyond the largest value.
struct AboveMax : Histogram {
  std::uint64_t quantile(std::uint64_t numerator, std::uint64_t denominator) const {
    return highest_in(bucket_of(Histogram::quantile(numerator, denominator)));
  }
};

// Rounds the rank down, so that the 99th percentile of a few values misses the largest.
struct RankRoundedDown : Histogram {
  std::uint64_t quantile(std::uint64_t numerator, std::uint64_t denominator) const {
    const Wide rank = Wide{count()} * numerator / denominator;
    return Histogram::quantile(static_cast<std::uint64_t>(rank),
                               std::max<std::uint64_t>(count(), 1));
  }
};

TEST(Histogram, TheCheckerCatchesBrokenHistograms) {
  Rng rng(1);
  std::vector<std::uint64_t> values = {1000, 1024, 1088};
  for (int i = 0; i < 100; ++i) values.push_back(1000 + rng.below(1000));
  ASSERT_EQ(broken_promise<Histogram>(values), "");
  EXPECT_NE(broken_promise<SaysTheLowerEdge>(values), "");
  EXPECT_NE(broken_promise<TooCoarse>(values), "");
  EXPECT_NE(broken_promise<AboveMax>(values), "");
  EXPECT_NE(broken_promise<RankRoundedDown>(values), "");
  ASSERT_EQ(broken_promise<Histogram>({0, 1024, 5000}), "");
  EXPECT_NE(broken_promise<EdgeOneTooHigh>({0, 1024, 5000}), "");
}

// ---- Behaviours, one by one ----

TEST(Histogram, SaysNothingOfNothing) {
  Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.quantile(99, 100), 0u);
  histogram.record(77, 0);
  EXPECT_EQ(histogram, Histogram());
  histogram.merge(Histogram());
  EXPECT_EQ(histogram, Histogram());
}

TEST(Histogram, RecordingManyTimesEqualsRecordingOneByOne) {
  Histogram at_once;
  Histogram one_by_one;
  at_once.record(12345, 10);
  for (int i = 0; i < 10; ++i) one_by_one.record(12345);
  EXPECT_EQ(at_once, one_by_one);
  EXPECT_EQ(at_once.count_in(Histogram::bucket_of(12345)), 10u);
  at_once.reset();
  EXPECT_EQ(at_once, Histogram());
}

TEST(Histogram, AFullBucketStaysFullAndTheRestGoesOn) {
  Histogram histogram;
  histogram.record(10, UINT32_MAX);
  histogram.record(10, 5);
  histogram.record(10, UINT64_MAX - UINT32_MAX - 5);
  EXPECT_EQ(histogram.count_in(10), UINT32_MAX);
  EXPECT_EQ(histogram.count(), UINT64_MAX);
  EXPECT_EQ(histogram.sum(), Wide{10} * UINT64_MAX);
  histogram.record(20);
  EXPECT_EQ(histogram.count(), UINT64_MAX) << "saturates";
  EXPECT_EQ(histogram.max(), 20u);
  EXPECT_EQ(histogram.quantile(1, 2), 10u);
  EXPECT_EQ(histogram.quantile(1, 1), 20u);
  Histogram doubled = histogram;
  doubled.merge(histogram);
  EXPECT_EQ(doubled.count_in(10), UINT32_MAX);
  EXPECT_EQ(doubled.count_in(20), 2u);
  EXPECT_EQ(doubled.count(), UINT64_MAX);
}

TEST(Histogram, TheSumSaturatesInsteadOfStartingAgain) {
  Histogram histogram;
  histogram.record(UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(histogram.sum(), Wide{UINT64_MAX} * UINT64_MAX);
  histogram.record(UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(histogram.sum(), ~Wide{0});
}

TEST(HistogramDeathTest, RefusesFractionsAboveOne) {
  Histogram histogram;
  EXPECT_DEATH((void)histogram.quantile(2, 1), "numerator <= denominator");
  EXPECT_DEATH((void)histogram.quantile(0, 0), "denominator > 0");
}

}  // namespace
}  // namespace weir
