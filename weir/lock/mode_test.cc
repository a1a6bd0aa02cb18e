// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/mode.h"

#include <gtest/gtest.h>

namespace weir::lock {
namespace {

// The table as it is printed in the documentation of the Linux dlm.
constexpr bool kCompatible[kModes][kModes] = {
    {true, true, true, true, true, true},      // NL
    {true, true, true, true, true, false},     // CR
    {true, true, true, false, false, false},   // CW
    {true, true, false, true, false, false},   // PR
    {true, true, false, false, false, false},  // PW
    {true, false, false, false, false, false}  // EX
};

TEST(Mode, ConflictsAsInTheTable) {
  for (const Mode a : kAllModes) {
    for (const Mode b : kAllModes) {
      EXPECT_EQ(conflict(a, b),
                !kCompatible[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)])
          << mode_name(a) << " " << mode_name(b);
      EXPECT_EQ(conflict(a, b), conflict(b, a));
    }
  }
}

TEST(Mode, CoversModesThatExcludeNoMore) {
  for (const Mode a : kAllModes) {
    EXPECT_TRUE(covers(a, a));
    EXPECT_TRUE(covers(Mode::kExclusive, a));
    EXPECT_TRUE(covers(a, Mode::kNull));
  }
  EXPECT_FALSE(covers(Mode::kShared, Mode::kConcurrentWrite));
  EXPECT_FALSE(covers(Mode::kConcurrentWrite, Mode::kShared));
  EXPECT_TRUE(covers(Mode::kProtectedWrite, Mode::kShared));
  EXPECT_TRUE(covers(Mode::kProtectedWrite, Mode::kConcurrentWrite));
  EXPECT_FALSE(covers(Mode::kConcurrentRead, Mode::kShared));
}

TEST(Mode, OneOfSeveralCompatibleModesCoversTheOthers) {
  for (const Mode a : kAllModes) {
    for (const Mode b : kAllModes) {
      if (conflict(a, b)) continue;
      ModeCounts counts;
      counts.add(a);
      counts.add(b);
      EXPECT_TRUE(covers(counts.strongest(), a) && covers(counts.strongest(), b))
          << mode_name(a) << " " << mode_name(b);
    }
  }
}

TEST(Mode, CountsKnowWhatIsAllowed) {
  ModeCounts counts;
  EXPECT_TRUE(counts.allow(Mode::kExclusive));
  counts.add(Mode::kNull);
  EXPECT_TRUE(counts.allow(Mode::kExclusive));
  counts.add(Mode::kShared);
  EXPECT_FALSE(counts.allow(Mode::kExclusive));
  EXPECT_TRUE(counts.allow_beside(Mode::kShared, Mode::kExclusive));
  counts.add(Mode::kShared);
  EXPECT_FALSE(counts.allow_beside(Mode::kShared, Mode::kExclusive));
  EXPECT_TRUE(counts.allow(Mode::kShared));
  counts.remove(Mode::kShared);
  counts.remove(Mode::kShared);
  EXPECT_EQ(counts, ModeCounts{});
}

TEST(Mode, NamesCanBeReadBack) {
  for (const Mode mode : kAllModes) EXPECT_EQ(mode_by(mode_name(mode)), mode);
  EXPECT_EQ(mode_by("PR"), Mode::kShared);
  EXPECT_EQ(mode_by("ex"), Mode::kExclusive);
  EXPECT_EQ(mode_by("px"), std::nullopt);
  EXPECT_EQ(mode_by(""), std::nullopt);
  EXPECT_EQ(mode_by("SHARED"), std::nullopt);
}

}  // namespace
}  // namespace weir::lock
