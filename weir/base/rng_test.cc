// SPDX-License-Identifier: Apache-2.0
#include "weir/base/rng.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir {
namespace {

std::vector<std::uint64_t> draw(Rng rng, int count) {
  std::vector<std::uint64_t> drawn(static_cast<std::size_t>(count));
  for (std::uint64_t& value : drawn) value = rng.next();
  return drawn;
}

// A second implementation of the generator, from its published description and without code of
// rng.cc.
std::vector<std::uint64_t> draw_by_the_book(std::uint64_t seed, int count) {
  std::uint64_t s[4];
  for (std::uint64_t& word : s) {
    seed += 0x9e3779b97f4a7c15u;
    std::uint64_t z = seed;
    z ^= z >> 30;
    z *= 0xbf58476d1ce4e5b9u;
    z ^= z >> 27;
    z *= 0x94d049bb133111ebu;
    z ^= z >> 31;
    word = z;
  }
  std::vector<std::uint64_t> drawn;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t fivefold = s[1] * 5;
    drawn.push_back(((fivefold << 7) | (fivefold >> 57)) * 9);
    const std::uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
  }
  return drawn;
}

// Values that xoshiro256starstar.c prints when splitmix64.c, started with 42, fills its state.
// Several public implementations test against the same ten.
TEST(Rng, DrawsThePublishedSequence) {
  EXPECT_EQ(
      draw(Rng(42), 10),
      (std::vector<std::uint64_t>{
          1546998764402558742u, 6990951692964543102u, 12544586762248559009u, 17057574109182124193u,
          18295552978065317476u, 14199186830065750584u, 13267978908934200754u,
          15679888225317814407u, 14044878350692344958u, 10760895422300929085u}));
}

TEST(Rng, FollowsTheDescriptionOfItsGeneratorFromAnySeed) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX,
                                   0 - std::uint64_t{0x9e3779b97f4a7c15}, std::uint64_t{1} << 63}) {
    EXPECT_EQ(draw(Rng(seed), 100), draw_by_the_book(seed, 100)) << "seed " << seed;
  }
}

// Golden values, computed independently of this code with integers of any length. A change here
// changes every recorded scenario, so it must be intended.
TEST(Rng, SameSeedAndNamesSameResult) {
  EXPECT_EQ(draw(Rng(7).split("faults"), 2),
            (std::vector<std::uint64_t>{9909152660504290826u, 10734160803703908875u}));
  EXPECT_EQ(draw(Rng(7).split("workload").split("job1"), 2),
            (std::vector<std::uint64_t>{14487009976059559015u, 15576289170559322599u}));
  Rng rng(7);
  std::vector<std::int64_t> drawn;
  for (int i = 0; i < 4; ++i) {
    drawn.push_back(static_cast<std::int64_t>(rng.below(1000)));
    drawn.push_back(rng.between(-50, 50));
    drawn.push_back(rng.chance(1, 2) ? 1 : 0);
  }
  EXPECT_EQ(drawn, (std::vector<std::int64_t>{700, -22, 0, 981, 50, 0, 60, -40, 1, 151, 4, 0}));
}

TEST(Rng, AChildDoesNotDependOnWhatItsParentDrew) {
  Rng parent(99);
  const std::vector<std::uint64_t> fresh = draw(parent.split("network"), 20);
  for (int i = 0; i < 1000; ++i) parent.next();
  EXPECT_EQ(draw(parent.split("network"), 20), fresh);
}

TEST(Rng, SplittingLeavesTheParentWhereItWas) {
  Rng parent(99);
  Rng untouched(99);
  (void)parent.split("network");
  EXPECT_EQ(draw(parent, 20), draw(untouched, 20));
}

TEST(Rng, EveryPathOfNamesIsAStreamOfItsOwn) {
  const std::string zero(1, '\0');
  std::set<std::uint64_t> first;
  std::size_t paths = 0;
  const auto add = [&](Rng rng) {
    first.insert(rng.next());
    ++paths;
  };
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const Rng root(seed);
    add(root);
    add(root.split(""));
    add(root.split("").split(""));
    add(root.split(zero));
    add(root.split(zero + zero));
    add(root.split("a"));
    add(root.split("b"));
    add(root.split("ab"));
    add(root.split("ba"));
    add(root.split("a").split("b"));
    add(root.split("b").split("a"));
    add(root.split("ab").split(""));
    add(root.split("").split("ab"));
  }
  EXPECT_EQ(first.size(), paths);
}

// How far the fullest or emptiest class of results mod 3 is from a third of the draws.
template <class Below>
int worst_deviation_mod_3(int draws, Below below) {
  std::array<int, 3> seen{};
  for (int i = 0; i < draws; ++i) ++seen[below() % 3];
  int worst = 0;
  for (const int count : seen) worst = std::max(worst, std::abs(count - draws / 3));
  return worst;
}

// 3/4 of 2^64 is the worst case of a bare multiplication: floor(x * 3/4) yields every result that
// is 0 mod 3 twice and the others once, so the three classes would get 1/2, 1/4 and 1/4.
TEST(Rng, BelowIsEvenWhereABareMultiplicationIsNot) {
  constexpr std::uint64_t kThreeQuarters = std::uint64_t{3} << 62;
  constexpr int kDraws = 30000;
  constexpr int kFiveDeviations = 5 * 82;  // sqrt(30,000 * 1/3 * 2/3) = 82
  Rng rng(5);
  EXPECT_LT(worst_deviation_mod_3(kDraws, [&] { return rng.below(kThreeQuarters); }),
            kFiveDeviations);
  const auto bare = [&] {
    using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((Wide{rng.next()} * kThreeQuarters) >> 64);
  };
  EXPECT_GT(worst_deviation_mod_3(kDraws, bare), kFiveDeviations) << "the check does not bite";
}

TEST(Rng, BelowReachesEveryResultAboutEquallyOften) {
  Rng rng(6);
  for (std::uint64_t n = 1; n <= 20; ++n) {
    std::vector<int> seen(n);
    for (std::uint64_t i = 0; i < 1000 * n; ++i) ++seen[rng.below(n)];
    // Standard deviation below 32; 200 is more than six of them.
    for (const int count : seen) EXPECT_LT(std::abs(count - 1000), 200) << "n " << n;
  }
}

RC_GTEST_PROP(RngProperty, BelowStaysBelow, (std::uint64_t seed, std::uint64_t n)) {
  RC_PRE(n > 0u);
  Rng rng(seed);
  for (int i = 0; i < 20; ++i) RC_ASSERT(rng.below(n) < n);
}

RC_GTEST_PROP(RngProperty, BetweenStaysInItsRange,
              (std::uint64_t seed, std::int64_t a, std::int64_t b)) {
  const auto [lo, hi] = std::minmax(a, b);
  Rng rng(seed);
  for (int i = 0; i < 20; ++i) {
    const std::int64_t drawn = rng.between(lo, hi);
    RC_ASSERT(lo <= drawn && drawn <= hi);
  }
}

TEST(Rng, BetweenReachesBothEnds) {
  Rng rng(8);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(rng.between(-2, 2));
  EXPECT_EQ(seen, (std::set<std::int64_t>{-2, -1, 0, 1, 2}));
}

TEST(Rng, BetweenTakesTheWholeRangeAndASingleValue) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
  Rng rng(9);
  Rng same(9);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(static_cast<std::uint64_t>(rng.between(kLowest, kHighest)) + (1ull << 63),
              same.next());
  }
  for (const std::int64_t only : {kLowest, std::int64_t{-1}, std::int64_t{0}, kHighest}) {
    EXPECT_EQ(rng.between(only, only), only);
  }
  EXPECT_LE(rng.between(kLowest, kLowest + 1), kLowest + 1);
  EXPECT_GE(rng.between(kHighest - 1, kHighest), kHighest - 1);
}

TEST(Rng, ChanceIsTheFractionItSays) {
  Rng rng(10);
  int hits = 0;
  for (int i = 0; i < 30000; ++i) hits += rng.chance(1, 3) ? 1 : 0;
  EXPECT_LT(std::abs(hits - 10000), 410);  // five standard deviations
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(rng.chance(0, 7));
    EXPECT_TRUE(rng.chance(7, 7));
  }
}

TEST(RngDeathTest, RefusesWhatHasNoAnswer) {
  Rng rng(1);
  EXPECT_DEATH(rng.below(0), "n > 0");
  EXPECT_DEATH(rng.between(1, 0), "lo <= hi");
  EXPECT_DEATH(rng.chance(2, 1), "numerator <= denominator");
  EXPECT_DEATH(rng.chance(0, 0), "n > 0");
}

}  // namespace
}  // namespace weir
