// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/conversions.h"

#include <gtest/gtest.h>

namespace weir::lock {
namespace {

constexpr Mode kNl = Mode::kNull;
constexpr Mode kCr = Mode::kConcurrentRead;
constexpr Mode kCw = Mode::kConcurrentWrite;
constexpr Mode kPr = Mode::kShared;
constexpr Mode kPw = Mode::kProtectedWrite;
constexpr Mode kEx = Mode::kExclusive;

std::vector<std::uint32_t> locks_of(const std::vector<Conversions::Conversion>& cycle) {
  std::vector<std::uint32_t> locks;
  for (const auto& each : cycle) locks.push_back(each.lock);
  return locks;
}

TEST(Conversions, TwoReadersThatBothWantToWriteWaitForEachOther) {
  Conversions line;
  EXPECT_TRUE(line.cycle_with({1, kPr, kEx}).empty());
  line.add({1, kPr, kEx});
  EXPECT_EQ(locks_of(line.cycle_with({2, kPr, kEx})), (std::vector<std::uint32_t>{2, 1}));
  EXPECT_TRUE(line.cycle_with({2, kNl, kEx}).empty()) << "it holds nothing that the first wants";
}

TEST(Conversions, ACycleOfThreeIsNamedInOrder) {
  Conversions line;
  line.add({2, kNl, kPr});  // waits for the concurrent write of 3
  line.add({3, kCw, kEx});  // waits for 1
  // 3 lets 1 pass; 2 does not: it came first, and does not wait for 1.
  EXPECT_EQ(locks_of(line.cycle_with({1, kCr, kCw})), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_TRUE(line.cycle_with({1, kNl, kCw}).empty());
}

TEST(Conversions, ALockMayPassOneThatWaitsForIt) {
  Conversions line;
  line.add({1, kCr, kEx});
  ModeCounts granted;
  granted.add(kCr);
  granted.add(kCr);
  EXPECT_FALSE(line.is_ahead_of(kCr));
  EXPECT_TRUE(line.is_ahead_of(kNl)) << "the first does not wait for a null lock";
  line.add({2, kCr, kPw});
  EXPECT_EQ(line.first_allowed(granted), 1U);
}

TEST(Conversions, ComeInOrder) {
  Conversions line;
  ModeCounts granted;
  granted.add(kPr);
  line.add({1, kNl, kEx});
  line.add({2, kNl, kPr});
  EXPECT_EQ(line.first_allowed(granted), 2U) << "the reader stays behind the writer";
  granted.remove(kPr);
  EXPECT_EQ(line.first_allowed(granted), 0U);
  EXPECT_EQ(line.remove(1).wanted, kEx);
  EXPECT_EQ(line.first_allowed(granted), 0U);
  EXPECT_EQ(line.line().front().lock, 2U);
}

TEST(Conversions, AThousandOfTwoModesAreSearchedQuickly) {
  // Each conversion that the search visits a second time for its modes is skipped: with them all it
  // would compare a hundred million pairs.
  Conversions line;
  for (std::uint32_t i = 0; i < 10'000; ++i) line.add({i, i % 2 == 0 ? kNl : kCr, kPw});
  EXPECT_TRUE(line.cycle_with({10'000, kCr, kPw}).empty());
  line.add({10'000, kPr, kEx});
  EXPECT_EQ(locks_of(line.cycle_with({10'001, kPr, kEx})),
            (std::vector<std::uint32_t>{10'001, 10'000}));
}

}  // namespace
}  // namespace weir::lock
