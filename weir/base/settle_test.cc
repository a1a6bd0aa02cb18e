// SPDX-License-Identifier: Apache-2.0
#include "weir/base/settle.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"

namespace weir {

std::ostream& operator<<(std::ostream& out, const SettleShare& share) {
  return out << fmt::format("{{weight {}, remainder {}, got {}}}", share.weight, share.remainder,
                            share.got);
}

namespace {

using SignedWide = __int128;
using Shares = std::vector<SettleShare>;

constexpr std::int64_t kOne = std::int64_t{1} << 32;  // one token, in units of remainders

// ---- The oracle: the documented steps, with linear scans. ----

// floor(weight * total * 2^32 / sum): long division, one bit of the fraction at a time.
SignedWide long_division(SignedWide weight, SignedWide total, SignedWide sum) {
  SignedWide quotient = weight * total / sum;
  SignedWide rest = weight * total % sum;
  for (int bit = 0; bit < 32; ++bit) {
    quotient *= 2;
    rest *= 2;
    if (rest >= sum) {
      quotient += 1;
      rest -= sum;
    }
  }
  return quotient;
}

struct Oracle {
  std::vector<SignedWide> got;
  std::vector<SignedWide> rho;
  bool tie_decided = false;  // two shares were equally entitled to a token

  SignedWide sum() const { return std::accumulate(got.begin(), got.end(), SignedWide{0}); }

  // The first of those with the greatest sign * rho.
  std::size_t pick(int sign) {
    std::size_t best = got.size();
    bool is_tied = false;
    for (std::size_t x = 0; x < got.size(); ++x) {
      if (sign < 0 && got[x] == 0) continue;
      if (best == got.size() || sign * rho[x] > sign * rho[best]) {
        best = x;
        is_tied = false;
      } else if (rho[x] == rho[best]) {
        is_tied = true;
      }
    }
    tie_decided |= is_tied;
    return best;
  }
};

// REQUIRES: some weight, unless the total is 0.
Oracle settle_by_the_page(const Shares& shares, std::uint64_t total) {
  SignedWide weight_sum = 0;
  for (const SettleShare& share : shares) weight_sum += share.weight;
  Oracle page;
  for (const SettleShare& share : shares) {
    const SignedWide exact =
        weight_sum == 0 ? SignedWide{0} : long_division(share.weight, total, weight_sum);
    const SignedWide want = exact + share.remainder;
    page.got.push_back(want < 0 ? SignedWide{0} : want / kOne);
    page.rho.push_back(want - page.got.back() * kOne);
  }
  while (page.sum() < total) {
    const std::size_t x = page.pick(+1);
    page.got[x] += 1;
    page.rho[x] -= kOne;
  }
  while (page.sum() > total) {
    const std::size_t x = page.pick(-1);
    page.got[x] -= 1;
    page.rho[x] += kOne;
  }
  return page;
}

// ---- Two checkers, for any function that settles ----

// The first share that differs from the oracle, as text; empty if none does.
template <class Settle>
std::string difference_from_the_page(Shares shares, std::uint64_t total, Settle settle_under_test) {
  const Oracle page = settle_by_the_page(shares, total);
  settle_under_test(shares, total);
  SignedWide sum = 0;
  for (std::size_t x = 0; x < shares.size(); ++x) {
    if (shares[x].got != page.got[x] || shares[x].remainder != page.rho[x]) {
      return fmt::format("share {}: got {}, remainder {} for {}, {}", x, shares[x].got,
                         shares[x].remainder, static_cast<std::int64_t>(page.got[x]),
                         static_cast<std::int64_t>(page.rho[x]));
    }
    sum += shares[x].got;
  }
  return sum == total ? "" : "sum";
}

// Settles these totals one after another, with constant weights. No running sum may ever be two
// tokens or more from its exact share. Returns the error as text, or an empty string.
template <class Settle>
std::string unfairness(const std::vector<std::uint64_t>& weights,
                       const std::vector<std::uint64_t>& totals, Settle settle_under_test) {
  Shares shares;
  for (const std::uint64_t weight : weights) shares.push_back({weight, 0, 0});
  const SignedWide weight_sum = std::accumulate(weights.begin(), weights.end(), SignedWide{0});
  std::vector<SignedWide> all_got(shares.size());
  SignedWide all = 0;
  for (std::size_t period = 0; period < totals.size(); ++period) {
    settle_under_test(shares, totals[period]);
    all += totals[period];
    for (std::size_t x = 0; x < shares.size(); ++x) {
      all_got[x] += shares[x].got;
      const SignedWide off = all_got[x] * weight_sum - shares[x].weight * all;
      if (off >= 2 * weight_sum || off <= -2 * weight_sum) {
        return fmt::format("share {} in period {}", x, period);
      }
    }
  }
  return "";
}

constexpr auto kReal = [](std::span<SettleShare> shares, std::uint64_t total) {
  settle(shares, Tokens{total});
};

// ---- Properties ----

// lo ... hi - 1, whatever the size of the case: small cases should not imply small remainders.
template <class Number>
rc::Gen<Number> anything_in(Number lo, Number hi) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Number>(lo, hi));
}

rc::Gen<Shares> some_shares(std::uint64_t weight_max, std::int64_t remainder_max) {
  const auto share = rc::gen::build<SettleShare>(
      rc::gen::set(&SettleShare::weight, anything_in<std::uint64_t>(0, weight_max)),
      rc::gen::set(&SettleShare::remainder,
                   anything_in<std::int64_t>(-remainder_max, remainder_max + 1)));
  return rc::gen::suchThat(rc::gen::container<Shares>(share), [](const Shares& shares) {
    return std::any_of(shares.begin(), shares.end(),
                       [](const SettleShare& one) { return one.weight > 0; });
  });
}

RC_GTEST_PROP(SettleProperty, FollowsThePageToTheToken, ()) {
  const Shares shares = *some_shares(10, 3 * kOne);
  const auto total = *anything_in<std::uint64_t>(0, 200);
  RC_ASSERT(difference_from_the_page(shares, total, kReal) == "");
}

RC_GTEST_PROP(SettleProperty, FollowsThePageWhereProductsAreLargest, ()) {
  // A hundred shares at most, so weights up to 2^57 keep their sum below 2^64.
  const Shares shares = *some_shares(std::uint64_t{1} << 57, 3 * kOne);
  const auto total = *anything_in<std::uint64_t>(0, std::uint64_t{1} << 63);
  RC_ASSERT(difference_from_the_page(shares, total, kReal) == "");
}

// Whatever moves between shares, no fraction of a token is created or lost, except what each exact
// share loses by truncation to 2^-32.
RC_GTEST_PROP(SettleProperty, TokensAndRemaindersTogetherNeitherGrowNorShrink, ()) {
  Shares shares = *some_shares(1000, 2 * kOne);
  const auto total = *anything_in<std::uint64_t>(0, 10000);
  const auto sum_of_remainders = [&shares] {
    SignedWide sum = 0;
    for (const SettleShare& share : shares) sum += share.remainder;
    return sum;
  };
  const SignedWide before = sum_of_remainders();
  settle(shares, Tokens{total});
  const SignedWide after = sum_of_remainders();
  RC_ASSERT(after <= before);
  RC_ASSERT(before - after < static_cast<SignedWide>(shares.size()));
}

RC_GTEST_PROP(SettleProperty, NobodyIsTwoTokensFromItsExactShareAtAnyTime, ()) {
  const auto number = anything_in<std::uint64_t>(0, 2000);
  auto weights = *rc::gen::container<std::vector<std::uint64_t>>(number);
  weights.push_back(1);
  const auto totals = *rc::gen::container<std::vector<std::uint64_t>>(number);
  RC_ASSERT(unfairness(weights, totals, kReal) == "");
}

RC_GTEST_PROP(SettleProperty, AnotherOrderOfIdsMattersOnlyWhereTiesDecide, (std::uint64_t seed)) {
  Shares shares = *some_shares(10, 3 * kOne);
  const auto total = *anything_in<std::uint64_t>(0, 200);
  RC_PRE(!settle_by_the_page(shares, total).tie_decided);
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  Rng rng(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  Shares renamed;
  for (const std::size_t x : order) renamed.push_back(shares[x]);
  settle(shares, Tokens{total});
  settle(renamed, Tokens{total});
  for (std::size_t i = 0; i < order.size(); ++i) RC_ASSERT(renamed[i] == shares[order[i]]);
}

// Many shares, so that selection is used where no share moves twice, in both directions, with ties.
TEST(Settle, FollowsThePageWhereManyMoveOneTokenEach) {
  Rng rng(7);
  for (int round = 0; round < 100; ++round) {
    Shares shares(64 + rng.below(100));
    const std::int64_t grain = round % 3 == 0 ? kOne / 4 : 1;
    const std::int64_t remainder_max = round % 2 == 0 ? kOne - 1 : 2 * kOne;
    for (SettleShare& share : shares) {
      share.weight = rng.below(round % 5 == 0 ? 2 : 1000);
      share.remainder = rng.between(-remainder_max, remainder_max) / grain * grain;
    }
    shares.front().weight = 1;
    for (int period = 0; period < 3; ++period) {
      const std::uint64_t total = rng.below(3 * shares.size());
      ASSERT_EQ(difference_from_the_page(shares, total, kReal), "") << round;
      settle(shares, Tokens{total});
    }
  }
}

// Up to three shares with weights 0 ... 3, remainders of whole and half tokens, with many ties.
TEST(Settle, FollowsThePageInEverySmallCase) {
  const std::vector<std::int64_t> remainders = {0, -kOne, kOne, kOne / 2, -kOne / 2, -3 * kOne};
  Shares kinds;
  for (std::uint64_t weight = 0; weight < 4; ++weight) {
    for (const std::int64_t remainder : remainders) kinds.push_back({weight, remainder, 99});
  }
  for (const SettleShare& a : kinds) {
    if (a.weight == 0) continue;
    for (const SettleShare& b : kinds) {
      for (const std::uint64_t total : {0u, 1u, 2u, 5u}) {
        ASSERT_EQ(difference_from_the_page({a, b}, total, kReal), "") << a << b << total;
        for (const SettleShare& c : kinds) {
          if (c.weight > 1) break;
          ASSERT_EQ(difference_from_the_page({c, a, b}, total, kReal), "") << c << a << b << total;
        }
      }
    }
  }
}

// ---- The checkers work ----

// The paper's eq. 24: every period starts as if no rounding had ever happened.
constexpr auto kForgetsRemainders = [](std::span<SettleShare> shares, std::uint64_t total) {
  for (SettleShare& share : shares) share.remainder = 0;
  settle(shares, Tokens{total});
};

// Tokens that were given in advance are not taken back.
constexpr auto kForgivesDebts = [](std::span<SettleShare> shares, std::uint64_t total) {
  for (SettleShare& share : shares) share.remainder = std::max<std::int64_t>(share.remainder, 0);
  settle(shares, Tokens{total});
};

constexpr auto kTiesGoToTheLast = [](std::span<SettleShare> shares, std::uint64_t total) {
  std::reverse(shares.begin(), shares.end());
  settle(shares, Tokens{total});
  std::reverse(shares.begin(), shares.end());
};

TEST(Settle, TheCheckersCatchBrokenSettling) {
  const std::vector<std::uint64_t> totals(20, 10);
  ASSERT_EQ(unfairness({1, 1, 1}, totals, kReal), "");
  EXPECT_NE(unfairness({1, 1, 1}, totals, kForgetsRemainders), "");
  EXPECT_EQ(unfairness({1, 1, 1}, totals, kTiesGoToTheLast), "") << "fair, but not by the page";
  const Shares shares = {{1, 0, 0}, {1, kOne / 2, 0}, {1, -kOne / 2, 0}, {1, 0, 0}};
  ASSERT_EQ(difference_from_the_page(shares, 10, kReal), "");
  EXPECT_NE(difference_from_the_page(shares, 10, kForgetsRemainders), "");
  EXPECT_NE(difference_from_the_page(shares, 10, kForgivesDebts), "");
  EXPECT_NE(difference_from_the_page(shares, 10, kTiesGoToTheLast), "");
}

// ---- Behaviours, one by one ----

TEST(Settle, WorkedExampleOfTheHeader) {
  Shares shares = {{1, 0, 0}, {1, 0, 0}, {1, 0, 0}};
  const std::int64_t third = 1431655765;  // floor(2^32 / 3)
  settle(shares, Tokens{10});
  EXPECT_EQ(shares, (Shares{{1, third - kOne, 4}, {1, third, 3}, {1, third, 3}}));
  settle(shares, Tokens{10});
  EXPECT_EQ(shares,
            (Shares{{1, 2 * third - kOne, 3}, {1, 2 * third - kOne, 4}, {1, 2 * third, 3}}));
  // Truncated to 2^-32, three thirds are slightly less than a token: -1 is what the header shows as
  // 0.
  settle(shares, Tokens{10});
  EXPECT_EQ(shares, (Shares{{1, -1, 3}, {1, -1, 3}, {1, -1, 4}}));
}

TEST(Settle, TheLargestRemainderGetsWhatIsLeftOver) {
  // 2.5, 1.25 and 1.25 of 5: the half is largest.
  Shares shares = {{1, 0, 0}, {2, 0, 0}, {1, 0, 0}};
  settle(shares, Tokens{5});
  EXPECT_EQ(shares, (Shares{{1, kOne / 4, 1}, {2, -kOne / 2, 3}, {1, kOne / 4, 1}}));
}

TEST(Settle, TheSmallestRemainderAmongThoseWhoGotSomethingGivesBack) {
  // 1 + 0.5, 1 + 0.25, 0 + 1.25 and 0 - 3: one token too many; the last has nothing to give.
  Shares shares = {{1, kOne / 2, 0}, {1, kOne / 4, 0}, {0, kOne + kOne / 8, 0}, {0, -3 * kOne, 0}};
  settle(shares, Tokens{2});
  EXPECT_EQ(
      shares,
      (Shares{{1, kOne / 2, 1}, {1, kOne / 4, 1}, {0, kOne + kOne / 8, 0}, {0, -3 * kOne, 0}}));
}

TEST(Settle, OneShareMayBePickedAgainAndAgain) {
  // The second owes ten tokens, so it gets none of its own five, and the first gets them all.
  Shares shares = {{1, 0, 0}, {1, -10 * kOne, 0}};
  settle(shares, Tokens{10});
  EXPECT_EQ(shares, (Shares{{1, -5 * kOne, 10}, {1, -5 * kOne, 0}}));
}

TEST(Settle, WhoIsNotInTheSetKeepsItsRemainder) {
  Shares shares = {{5, 1, 7}, {1, 2, 0}, {2, 3, 0}, {5, 4, 8}};
  settle(std::span(shares).subspan(1, 2), Tokens{3});
  EXPECT_EQ(shares.front(), (SettleShare{5, 1, 7}));
  EXPECT_EQ(shares.back(), (SettleShare{5, 4, 8}));
}

TEST(Settle, ATotalOfZeroMovesNothing) {
  const Shares before = {{0, 5, 9}, {0, -7 * kOne, 9}, {0, 4 * kOne, 9}};
  for (const std::uint64_t weight : {0u, 3u}) {
    Shares shares = before;
    shares[0].weight = weight;
    settle(shares, Tokens{0});
    EXPECT_EQ(shares, (Shares{{weight, 5, 0}, {0, -7 * kOne, 0}, {0, 4 * kOne, 0}}));
  }
  settle({}, Tokens{0});
}

TEST(Settle, TheLargestNumbersFit) {
  constexpr std::uint64_t kTotalMax = INT64_MAX;
  Shares one = {{UINT64_MAX, 0, 0}};
  settle(one, Tokens{kTotalMax});
  EXPECT_EQ(one, (Shares{{UINT64_MAX, 0, kTotalMax}}));
  // The two small shares are entitled to just under half a token each, and the large one to nearly
  // all.
  const Shares mixed = {{UINT64_MAX - 2, kOne, 0}, {1, 0, 0}, {1, -kOne, 0}};
  EXPECT_EQ(difference_from_the_page(mixed, kTotalMax, kReal), "");
}

TEST(Settle, ManySharesThatAllNeedRounding) {
  constexpr std::size_t kShares = 20000;
  Shares shares(kShares);
  for (SettleShare& share : shares) share.weight = 1;
  settle(shares, Tokens{kShares / 2});
  for (std::size_t x = 0; x < kShares; ++x) {
    ASSERT_EQ(shares[x].got, x < kShares / 2 ? 1u : 0u);
    ASSERT_EQ(shares[x].remainder, x < kShares / 2 ? -kOne / 2 : kOne / 2);
  }
}

TEST(SettleDeathTest, RefusesWhatItCannotShareOut) {
  Shares none;
  EXPECT_DEATH(settle(none, Tokens{1}), "sum > 0");
  Shares weightless = {{0, 0, 0}};
  EXPECT_DEATH(settle(weightless, Tokens{1}), "sum > 0");
  Shares heavy = {{UINT64_MAX, 0, 0}, {1, 0, 0}};
  EXPECT_DEATH(settle(heavy, Tokens{1}), "UINT64_MAX");
  Shares fine = {{1, 0, 0}};
  EXPECT_DEATH(settle(fine, Tokens{std::uint64_t{1} << 63}), "9223372036854775808");
  Shares indebted = {{1, INT64_MIN, 0}};
  EXPECT_DEATH(settle(indebted, Tokens{1}), "remainder");
}

}  // namespace
}  // namespace weir
