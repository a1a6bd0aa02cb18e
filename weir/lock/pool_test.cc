// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/pool.h"

#include <gtest/gtest.h>

namespace weir::lock {
namespace {

using namespace std::chrono_literals;

void add(ServerPool& pool, int count) {
  for (int i = 0; i < count; ++i) pool.add();
}

TEST(ServerPool, CountsWhatIsGrantedAndTheRatesOfThePeriod) {
  ServerPool pool({.limit = 1000}, Instant{});
  add(pool, 30);
  for (int i = 0; i < 10; ++i) pool.del();
  EXPECT_EQ(pool.granted(), 20);
  EXPECT_FALSE(pool.recalc(Instant{999ms}));
  EXPECT_TRUE(pool.recalc(Instant{2s}));
  EXPECT_EQ(pool.grant_rate(), 15);
  EXPECT_EQ(pool.cancel_rate(), 5);
  EXPECT_EQ(pool.grant_speed(), 10);
  EXPECT_EQ(pool.next_recalc(), Instant{3s});
  pool.recalc(Instant{3s});
  EXPECT_EQ(pool.grant_rate(), 0);
}

TEST(ServerPool, RefusesALimitOfZeroAndKeepsTheOld) {
  ServerPool pool({.limit = 1000}, Instant{});
  EXPECT_FALSE(pool.set_limit(0));
  EXPECT_FALSE(pool.set_limit(-1));
  EXPECT_FALSE(pool.set_limit(kLimitMax + 1));
  EXPECT_EQ(pool.limit(), 1000);
  EXPECT_FALSE(check(PoolOptions{.limit = 0}));
  EXPECT_FALSE(check(PoolOptions{.limit = 1, .period = 0s}));
  EXPECT_TRUE(check(PoolOptions{}));
}

TEST(ServerPool, ALimitBelowWhatIsGrantedTakesNothingBackAtOnce) {
  ServerPool pool({.limit = 1000}, Instant{});
  add(pool, 900);
  EXPECT_TRUE(pool.set_limit(100));
  EXPECT_EQ(pool.granted(), 900);
  EXPECT_FALSE(pool.has_room());
  EXPECT_EQ(pool.volume(), volume_max(100));
  pool.recalc(Instant{1s});
  EXPECT_LT(pool.volume(), volume_max(100));
}

TEST(ServerPool, AnIdlePoolHasTheMaximumOfANewLimit) {
  ServerPool pool({.limit = 1000}, Instant{});
  EXPECT_TRUE(pool.set_limit(5000));
  EXPECT_EQ(pool.volume(), volume_max(5000));
}

TEST(ServerPool, OnlyWeirHasAWall) {
  ServerPool weir({.preset = Preset::kWeir, .limit = 8}, Instant{});
  ServerPool lustre({.preset = Preset::kLustre, .limit = 8}, Instant{});
  add(weir, 10);
  add(lustre, 1000);
  EXPECT_FALSE(weir.has_room());
  weir.del();
  EXPECT_TRUE(weir.has_room());
  EXPECT_TRUE(lustre.has_room());
}

TEST(ServerPool, ShrinkLowersTheVolumeByItsNumber) {
  ServerPool pool({.limit = 1}, Instant{});
  pool.shrink(35'000);
  EXPECT_EQ(pool.volume(), 1000U);
  pool.shrink(5000);
  EXPECT_EQ(pool.volume(), 1U);
}

TEST(ServerPool, ReliefMakesAVolumeFeltAndTheLawDoesNotUndoItAtOnce) {
  ServerPool pool({.limit = 1000}, Instant{});
  add(pool, 500);
  pool.relieve(Instant{0s}, 10);
  EXPECT_EQ(pool.volume(), 50U * 600) << "50 locks each, for 600 s";
  pool.recalc(Instant{1s}, 10);
  EXPECT_EQ(pool.volume(), 30'000U) << "there is room, and the law would double it";
  pool.relieve(Instant{2s}, 10);
  EXPECT_EQ(pool.volume(), 21'000U);
  pool.recalc(Instant{11s}, 10);
  EXPECT_EQ(pool.volume(), 21'000U);
  pool.recalc(Instant{12s}, 10);
  EXPECT_GT(pool.volume(), 21'000U);
}

TEST(ServerPool, ReliefEndsAtAVolumeOfOne) {
  ServerPool pool({.limit = 1000}, Instant{});
  for (int i = 0; i < 2000; ++i) pool.relieve(Instant{}, 0);
  EXPECT_EQ(pool.volume(), 1U);
  pool.begin_recovery();
  pool.relieve(Instant{}, 5);
  EXPECT_EQ(pool.volume(), volume_max(1000)) << "holders are still telling what they have";
}

// The document lets the emergency brake fire in recovery.
TEST(ServerPool, RecoveryCountsLocksButNotAsAppetite) {
  ServerPool pool({.preset = Preset::kDld, .limit = 1000}, Instant{});
  pool.begin_recovery();
  add(pool, 900);
  EXPECT_FALSE(pool.recalc(Instant{10s}));
  EXPECT_EQ(pool.volume(), volume_max(1000));
  pool.end_recovery(Instant{10s});
  EXPECT_EQ(pool.granted(), 900);
  EXPECT_TRUE(pool.recalc(Instant{11s}));
  EXPECT_EQ(pool.grant_rate(), 0);
}

TEST(ServerPool, ShowsItsStateAsLustreDoes) {
  ServerPool pool({.preset = Preset::kLustre, .limit = 1000}, Instant{});
  add(pool, 100);
  pool.recalc(Instant{1s});
  EXPECT_EQ(pool.state_text("weir", 77, "50-150"),
            "LDLM pool state (weir):\n  SLV: 36000000\n  CLV: 77\n  LVF: 50-150\n  GSP: 1%\n"
            "  GP:  109\n  GR:  100\n  CR:  0\n  GS:  100\n  G:   100\n  L:   1000\n");
}

}  // namespace
}  // namespace weir::lock
