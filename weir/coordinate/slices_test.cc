// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/slices.h"

#include <memory>
#include <numeric>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/coordinate/bytes.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kLimit = 1000 * kMilli;
Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }
std::optional<std::int64_t> same_limit(std::string_view) { return kLimit; }

// Members and a leader that exchange messages without delay.
struct Cluster {
  explicit Cluster(std::size_t count, SliceLeader::Options options = {.is_first = true})
      : leader(options, same_limit, at(0)) {
    for (std::size_t i = 0; i < count; ++i) {
      auto& member = *members.emplace_back(std::make_unique<SliceMember>(options.terms));
      member.open("class", kLimit);
    }
    away.resize(count);
  }
  void demand(const std::vector<std::int64_t>& per_second) {
    for (std::size_t i = 0; i < members.size(); ++i)
      members[i]->set_demand(0, per_second[i] * kMilli);
  }
  void round(std::int64_t ms) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (away[i]) continue;
      const EpochBytes data = members[i]->demand();
      ASSERT_TRUE(leader.ready(i, data, members[i]->claim(at(ms)), at(ms)));
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (away[i]) leader.gone(i);
    }
    leader.close(at(ms));
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (away[i]) continue;
      ASSERT_TRUE(members[i]->granted(leader.grant(i), at(ms)));
    }
  }
  std::int64_t slice(std::size_t i, std::int64_t ms) const { return members[i]->slice(0, at(ms)); }
  std::int64_t sum(std::int64_t ms) const {
    std::int64_t all = 0;
    for (std::size_t i = 0; i < members.size(); ++i) all += slice(i, ms);
    return all;
  }

  SliceLeader leader;
  std::vector<std::unique_ptr<SliceMember>> members;
  std::vector<bool> away;
};

TEST(Slices, FollowDemand) {
  Cluster cluster(2);
  cluster.demand({900, 100});
  for (int round = 0; round < 30; ++round) cluster.round(round * 10);
  EXPECT_NEAR(static_cast<double>(cluster.slice(0, 300)), 0.9 * kLimit, 0.02 * kLimit);
  EXPECT_NEAR(static_cast<double>(cluster.slice(1, 300)), 0.1 * kLimit, 0.02 * kLimit);
}

// A member without demand releases its slice in its claim, and another one gets it in the same
// round.
TEST(Slices, AHotSpotMovesInOneRound) {
  Cluster cluster(10);
  std::vector<std::int64_t> demand(10, 0);
  demand[0] = 5000;
  cluster.demand(demand);
  for (int round = 0; round < 5; ++round) cluster.round(round * 10);
  EXPECT_GE(cluster.slice(0, 50), kLimit * 99 / 100);
  std::swap(demand[0], demand[7]);
  cluster.demand(demand);
  cluster.round(50);
  EXPECT_GE(cluster.slice(7, 51), kLimit * 98 / 100);
  EXPECT_LE(cluster.sum(51), kLimit);
}

TEST(Slices, OneThatIsCutOffFallsBackAndItsPartIsLeftFree) {
  Cluster cluster(4);
  cluster.demand({500, 500, 500, 500});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  cluster.away[3] = true;
  for (int round = 20; round < 58; ++round) {
    cluster.round(round * 10);
    ASSERT_LE(cluster.sum(round * 10), kLimit);
  }
  EXPECT_TRUE(cluster.members[3]->is_leased(0, at(580)));
  for (int round = 58; round < 80; ++round) cluster.round(round * 10);
  EXPECT_FALSE(cluster.members[3]->is_leased(0, at(800)));
  EXPECT_EQ(cluster.slice(3, 800), kLimit / 40);
  EXPECT_LE(cluster.sum(800), kLimit);
  EXPECT_GE(cluster.sum(800), kLimit * 99 / 100);
}

TEST(Slices, AreNotHandedOutAgainBeforeLeaseAndMargin) {
  Cluster cluster(2);
  cluster.demand({0, 5000});
  for (int round = 0; round < 5; ++round) cluster.round(round * 10);
  cluster.away[1] = true;
  cluster.demand({5000, 0});
  for (int round = 5; round <= 44; ++round) cluster.round(round * 10);
  EXPECT_LT(cluster.slice(0, 440), kLimit / 10) << "the other may still use it";
  cluster.round(450);
  EXPECT_GT(cluster.slice(0, 450), kLimit * 9 / 10);
}

// A new leader grants no member what an absent one may still hold.
TEST(Slices, ANewLeaderWaitsForOldLeases) {
  Cluster cluster(3);
  cluster.demand({300, 300, 300});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  SliceLeader next({.term = 2}, same_limit, at(200));
  cluster.members[0]->lost();
  cluster.members[0]->set_demand(0, 5000 * kMilli);
  const std::int64_t before = cluster.slice(0, 200);
  const auto round = [&](std::int64_t ms) {
    SliceMember& member = *cluster.members[0];
    const EpochBytes data = member.demand();
    ASSERT_TRUE(next.ready(0, data, member.claim(at(ms)), at(ms)));
    next.close(at(ms));
    ASSERT_TRUE(member.granted(next.grant(0), at(ms)));
  };
  for (std::int64_t ms = 210; ms < 600; ms += 10) {
    round(ms);
    ASSERT_EQ(cluster.slice(0, ms), before) << ms;
  }
  round(610);
  EXPECT_EQ(next.members(), 3U);
  EXPECT_GT(cluster.slice(0, 610), kLimit * 9 / 10);
  EXPECT_LE(cluster.slice(0, 610), kLimit - 2 * (kLimit / 30)) << "the two that are away";
}

// Nothing is reserved for a forgotten server, and the others receive the smaller number of members.
TEST(Slices, OneThatWasForgottenIsReservedNothingAndNotCounted) {
  Cluster cluster(4);
  cluster.demand({500, 500, 500, 500});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  cluster.away[3] = true;
  for (int round = 20; round < 70; ++round) cluster.round(round * 10);
  EXPECT_EQ(cluster.members[0]->members(), 4U);
  EXPECT_LE(cluster.sum(690) - cluster.slice(3, 690), kLimit - kLimit / 40);
  cluster.leader.forget(3);
  for (int round = 70; round < 90; ++round) cluster.round(round * 10);
  EXPECT_FALSE(cluster.leader.knows(3));
  EXPECT_EQ(cluster.members[0]->members(), 3U);
  EXPECT_GE(cluster.sum(890) - cluster.slice(3, 890), kLimit * 999 / 1000);
  // If it still runs, the limit is exceeded by this amount.
  EXPECT_EQ(cluster.slice(3, 890), kLimit / 40);
  // A server that comes back is counted again.
  cluster.away[3] = false;
  for (int round = 90; round < 100; ++round) cluster.round(round * 10);
  EXPECT_EQ(cluster.members[0]->members(), 4U);
  EXPECT_LE(cluster.sum(990), kLimit);
}

TEST(Slices, WhatOneThatWasForgottenHoldsIsNotHandedOutBeforeItsLeaseHasRunOut) {
  Cluster cluster(2);
  cluster.demand({0, 5000});
  for (int round = 0; round < 5; ++round) cluster.round(round * 10);
  cluster.away[1] = true;
  cluster.leader.forget(1);
  cluster.demand({5000, 0});
  for (int round = 5; round <= 44; ++round) cluster.round(round * 10);
  EXPECT_LT(cluster.slice(0, 440), kLimit / 10) << "the other may still use it";
  cluster.round(450);
  EXPECT_EQ(cluster.slice(0, 450), kLimit);
}

TEST(Slices, OneThatSignalsIsNotForgotten) {
  Cluster cluster(2);
  cluster.demand({500, 500});
  for (int round = 0; round < 100; ++round) {
    cluster.round(round * 10);
    cluster.leader.forget(1);
  }
  EXPECT_TRUE(cluster.leader.knows(1));
  EXPECT_EQ(cluster.members[0]->members(), 2U);
  // Also between its signal and the answer, after it was away for longer than its lease.
  cluster.away[1] = true;
  cluster.leader.ready(1, cluster.members[1]->demand(), cluster.members[1]->claim(at(5000)),
                       at(5000));
  cluster.leader.forget(1);
  cluster.leader.close(at(5000));
  EXPECT_TRUE(cluster.members[1]->granted(cluster.leader.grant(1), at(5000)));
}

// The number of members that is reported to a new leader counts only as far as there are names.
TEST(Slices, ANewLeaderCountsThoseThatAreAwayByTheirNames) {
  Cluster cluster(4);
  cluster.demand({300, 300, 300, 300});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  SliceLeader next({.term = 2}, same_limit, at(200));
  cluster.members[0]->lost();
  cluster.members[0]->set_demand(0, 5000 * kMilli);
  const auto round = [&](std::int64_t ms) {
    SliceMember& member = *cluster.members[0];
    const EpochBytes data = member.demand();
    ASSERT_TRUE(next.ready(0, data, member.claim(at(ms)), at(ms)));
    next.close(at(ms));
    ASSERT_TRUE(member.granted(next.grant(0), at(ms)));
  };
  next.set_absent(2);  // one of four was forgotten; two have not joined
  round(210);
  EXPECT_EQ(next.members(), 3U) << "while it waits for old leases too";
  round(620);
  EXPECT_EQ(next.members(), 3U);
  next.set_absent(5);  // new servers that have not joined do not count
  round(630);
  EXPECT_EQ(next.members(), 3U);
  next.set_absent(0);
  round(640);
  EXPECT_EQ(next.members(), 1U);
  round(650);
  EXPECT_EQ(cluster.slice(0, 650), kLimit);
}

TEST(Slices, WhoWasNeverToldUsesTheLeast) {
  SliceMember member({});
  const auto index = member.open("class", kLimit);
  EXPECT_EQ(member.slice(index, at(0)), kLeastSlice);
}

TEST(Slices, AMemberThatKnowsHowManyThereAreHasItsPartBeforeTheFirstGrant) {
  Cluster cluster(1);
  SliceMember& member = *cluster.members[0];
  member.expect_members(4);
  EXPECT_EQ(cluster.slice(0, 0), kLimit / 40);
  EXPECT_FALSE(member.is_leased(0, at(0)));
  EXPECT_FALSE(member.is_told());
  cluster.round(10);
  EXPECT_TRUE(member.is_told());
  member.expect_members(100);
  EXPECT_EQ(cluster.slice(0, 10'000), kLimit / (10 * cluster.leader.members()))
      << "a leader's word";
}

TEST(Slices, WhatAServerUsesThatHasStartedAndNotSignalledIsLeftFree) {
  Cluster cluster(3);
  cluster.away[2] = true;  // it has never signalled
  cluster.members[2]->expect_members(3);
  cluster.demand({900, 900, 900});
  cluster.leader.set_absent(1, 1);
  for (int round = 0; round < 20; ++round) {
    cluster.round(round * 10);
    EXPECT_LE(cluster.sum(round * 10), kLimit);
  }
  EXPECT_EQ(cluster.leader.members(), 3U);
  EXPECT_EQ(cluster.slice(2, 200), kLimit / 30);
  EXPECT_GE(cluster.sum(200), kLimit * 99 / 100);
  cluster.away[2] = false;
  cluster.round(200);
  cluster.leader.set_absent(0);
  for (int round = 21; round < 60; ++round) {
    cluster.round(round * 10);
    EXPECT_LE(cluster.sum(round * 10), kLimit);
    EXPECT_GE(cluster.slice(2, round * 10), kLimit / 40) << "it is never held up";
  }
  EXPECT_NEAR(static_cast<double>(cluster.slice(2, 600)), kLimit / 3.0, kLimit * 0.02);
  // A server that only has a name is away, and was never a member.
  cluster.leader.set_absent(1);
  EXPECT_EQ(cluster.leader.members(), 3U);
}

TEST(Slices, ClassesBeyondTheSlotsAreRefusedCountedAndHeldBack) {
  SliceLeader::Options options{.slots_max = 2, .is_first = true};
  Cluster cluster(1, options);
  SliceMember& member = *cluster.members[0];
  member.open("second", kLimit);
  const auto third = member.open("third", kLimit);
  cluster.round(0);
  EXPECT_EQ(cluster.leader.refused(), 1U);
  EXPECT_EQ(cluster.leader.slots(), 2U);
  EXPECT_EQ(member.slice(third, at(1)), kLimit / 10);
  cluster.round(10);
  EXPECT_EQ(cluster.leader.refused(), 1U) << "it does not ask every time";
}

TEST(Slices, ASlotNobodyWantsIsGivenToAnother) {
  Cluster cluster(1, {.slots_max = 1, .is_first = true});
  cluster.demand({100});
  cluster.round(0);
  cluster.demand({0});
  SliceMember& member = *cluster.members[0];
  cluster.round(70'000);
  const auto late = member.open("late", kLimit);
  member.set_demand(late, kLimit);
  cluster.round(70'010);
  EXPECT_EQ(cluster.leader.refused(), 0U);
  EXPECT_TRUE(member.is_leased(late, at(70'011)));
  EXPECT_FALSE(member.is_leased(0, at(70'011)));
}

TEST(Slices, GarbageIsRefused) {
  Cluster cluster(1);
  EXPECT_FALSE(cluster.leader.ready(5, {}, EpochBytes(3), at(0)));
  EXPECT_FALSE(cluster.leader.ready(5, EpochBytes(7), cluster.members[0]->claim(at(0)), at(0)));
  EXPECT_FALSE(cluster.members[0]->granted(EpochBytes(9), at(0)));
}

// A member that claims to hold more than it was granted does not reduce the slices of others.
TEST(Slices, AFalseClaimIsCutToWhatWasGiven) {
  Cluster cluster(2);
  cluster.demand({500, 500});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  ByteWriter lie;
  lie.put((std::uint64_t{1} << 32) + 1);  // the table with its one slot
  lie.put(std::uint32_t{2});
  lie.put(std::uint8_t{1});
  lie.put(std::uint32_t{0});
  lie.stretch(pack_vector(EpochVector{INT64_MAX}));
  const EpochBytes demand = pack_vector(EpochVector{500 * kMilli});
  ASSERT_TRUE(cluster.leader.ready(1, demand, lie.take(), at(200)));
  ASSERT_TRUE(cluster.leader.ready(0, demand, cluster.members[0]->claim(at(200)), at(200)));
  cluster.leader.close(at(200));
  EXPECT_LE(cluster.leader.slice(1, "class"), kLimit * 51 / 100);
  EXPECT_GE(cluster.leader.slice(0, "class"), kLimit * 48 / 100);
}

// Random demand, random absence: the sum of leases never exceeds the limit.
TEST(SlicesProperty, NeverExceedTheLimit) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    Cluster cluster(2 + rng.below(8));
    for (int round = 0; round < 300; ++round) {
      for (std::size_t i = 0; i < cluster.members.size(); ++i) {
        if (rng.chance(1, 50)) cluster.away[i] = !cluster.away[i];
        if (rng.chance(1, 10))
          cluster.members[i]->set_demand(0, static_cast<std::int64_t>(rng.below(3 * kLimit)));
      }
      const std::int64_t now = round * 10;
      cluster.round(now);
      std::int64_t leased = 0;
      for (std::size_t i = 0; i < cluster.members.size(); ++i)
        if (cluster.members[i]->is_leased(0, at(now))) leased += cluster.slice(i, now);
      const auto slack = static_cast<std::int64_t>(cluster.members.size()) * kLeastSlice;
      ASSERT_LE(leased, kLimit + slack) << "seed " << seed << " round " << round;
      ASSERT_LE(cluster.sum(now), kLimit + kLimit / 10 + slack) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace weir
