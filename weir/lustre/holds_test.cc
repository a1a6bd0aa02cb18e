// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/holds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

Instant at_ms(std::int64_t ms) { return Instant{std::chrono::milliseconds{ms}}; }

TEST(Holds, AddsUpTheTimesOfAJob) {
  Holds holds;
  const JobId hog("hog");
  holds.change({hog, 100, "first"}, at_ms(10));
  holds.change({hog, 50, "lower"}, at_ms(20));
  EXPECT_EQ(holds.find(hog)->since, at_ms(10));
  EXPECT_EQ(holds.find(hog)->rate, 50U);
  EXPECT_EQ(holds.held(), 1U);
  EXPECT_EQ(holds.list(at_ms(25))[0].hold.total, std::chrono::milliseconds{15});
  holds.change({hog, std::nullopt, "over"}, at_ms(30));
  holds.change({hog, std::nullopt, "twice"}, at_ms(31));
  holds.change({hog, 80, "again"}, at_ms(100));
  holds.clear(at_ms(105));
  const Hold& hold = *holds.find(hog);
  EXPECT_EQ(hold.times, 2U);
  EXPECT_EQ(hold.total, std::chrono::milliseconds{25});
  EXPECT_EQ(hold.longest, std::chrono::milliseconds{20});
  EXPECT_EQ(hold.lowest, 50U);
  EXPECT_FALSE(hold.rate);
  EXPECT_EQ(holds.held(), 0U);
}

TEST(Holds, KeepsABoundedNumberOfJobsAndAddsUpTheOthers) {
  Holds holds;
  const std::size_t count = Holds::kJobsMax + 100;
  for (std::size_t i = 0; i < count; ++i) {
    const JobId job(fmt::format("j{}", i));
    const auto from = static_cast<std::int64_t>(i * 10);
    holds.change({job, 10, ""}, at_ms(from));
    holds.change({job, std::nullopt, ""}, at_ms(from + 1 + static_cast<std::int64_t>(i % 7)));
  }
  EXPECT_EQ(holds.list(at_ms(1'000'000)).size(), Holds::kJobsMax);
  EXPECT_EQ(holds.others().times, 100U);
  EXPECT_EQ(holds.others().lowest, 10U);
}

}  // namespace
}  // namespace weir::lustre
