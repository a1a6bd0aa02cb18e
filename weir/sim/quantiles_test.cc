// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/quantiles.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::sim {
namespace {

TEST(Quantiles, AreExactForSmallValues) {
  Quantiles values;
  for (std::uint64_t i = 1; i <= 100; ++i) values.record(i);
  EXPECT_EQ(values.quantile(50, 100), 50U);
  EXPECT_EQ(values.quantile(99, 100), 99U);
  EXPECT_EQ(values.quantile(0, 1), 1U);
  EXPECT_EQ(values.quantile(1, 1), 100U);
}

TEST(Quantiles, OfNothingAreZero) { EXPECT_EQ(Quantiles().quantile(1, 2), 0U); }

TEST(Quantiles, ErrUpwardsByAtMostOneIn256) {
  Rng rng(7);
  Quantiles values;
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 10'000; ++i) {
    all.push_back(rng.next() >> rng.below(64));
    values.record(all.back());
  }
  std::sort(all.begin(), all.end());
  for (const std::uint64_t percent : {1U, 10U, 50U, 90U, 99U, 100U}) {
    const std::uint64_t exact = all[(all.size() * percent + 99) / 100 - 1];
    const std::uint64_t told = values.quantile(percent, 100);
    EXPECT_GE(told, exact) << percent;
    EXPECT_LE(told - exact, exact / 256) << percent;
  }
}

TEST(Quantiles, MergedAreThoseOfAllValues) {
  Quantiles a;
  Quantiles b;
  Quantiles both;
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = rng.below(1'000'000'000);
    (i % 3 == 0 ? a : b).record(value);
    both.record(value);
  }
  a.merge(b);
  EXPECT_EQ(a.count(), both.count());
  for (std::uint64_t percent = 0; percent <= 100; ++percent) {
    EXPECT_EQ(a.quantile(percent, 100), both.quantile(percent, 100));
  }
}

}  // namespace
}  // namespace weir::sim
