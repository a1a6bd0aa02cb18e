// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/tags.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace weir::tbf {
namespace {

TEST(Tags, ATagStartsAtVirtualTimeLessItsCreditAndGrows) {
  Tags tags(std::nullopt);
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  const std::uint64_t begin = tags.start(a, 0, false);
  EXPECT_EQ(a, begin);
  tags.step(a, 100);
  EXPECT_EQ(a, begin + 100);
  tags.step(a, 100);  // virtual time is the tag that was served last
  EXPECT_EQ(tags.start(b, 0, false), begin + 100);
  std::uint64_t c = 0;
  EXPECT_EQ(tags.start(c, 30, false), begin + 70);
}

TEST(Tags, ATagNeverMovesBack) {
  Tags tags(std::nullopt);
  std::uint64_t a = 0;
  tags.start(a, 0, false);
  tags.step(a, 1000);
  const std::uint64_t before = a;
  EXPECT_EQ(tags.start(a, 0, false), before);
}

TEST(Tags, RealtimeGoesBeforeAllOthersAndKeepsItsTag) {
  Tags tags(std::nullopt);
  std::uint64_t a = 0;
  EXPECT_EQ(tags.start(a, 0, true), 0U);
  EXPECT_GT(a, 0U);
}

TEST(Tags, AtTheEndOfVirtualTimeATagStays) {
  std::uint64_t tag = UINT64_MAX - 1;
  advance(tag, 5);
  EXPECT_EQ(tag, UINT64_MAX);
}

}  // namespace
}  // namespace weir::tbf
