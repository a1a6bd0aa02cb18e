// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/lru.h"

#include <deque>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::lock {
namespace {

using namespace std::chrono_literals;

struct Cache {
  explicit Cache(const LruOptions& options = {}) : lru(options) {}

  // One lock a second from `first` on.
  void fill(int count, Nanoseconds first = 0s) {
    for (int i = 0; i < count; ++i) lru.put(locks.emplace_back(), Instant{first + i * 1s});
  }
  int drop(Instant now) {
    int dropped = 0;
    while (lru.excess(now).lock != nullptr) ++dropped;
    return dropped;
  }

  std::deque<LruHook> locks;  // destroyed after the cache
  Lru lru;
};

TEST(Lru, DropsTheOldestWhileTheirVolumeExceedsTheServers) {
  Cache cache;
  cache.fill(10);
  const Instant now{10s};
  EXPECT_EQ(cache.lru.oldest_volume(now), 100U);  // 10 locks, 10 s
  cache.lru.hear(100, 1000, now);
  EXPECT_EQ(cache.drop(now), 0);
  cache.lru.hear(99, 1000, now);
  EXPECT_EQ(cache.lru.excess(now).lock, &cache.locks[0]);
  EXPECT_EQ(cache.drop(now), 0);  // 9 locks, 9 s: 81
  cache.lru.hear(30, 1000, now);
  EXPECT_EQ(cache.drop(now), 4);  // 5 locks, 5 s
}

TEST(Lru, TheFactorKeepsMoreOrLess) {
  for (const auto& [factor, kept] : {std::pair{50U, 7U}, {100U, 5U}, {150U, 4U}, {0U, 10U}}) {
    Cache cache({.factor_percent = factor});
    cache.fill(10);
    cache.lru.hear(30, 1000, Instant{10s});
    cache.drop(Instant{10s});
    EXPECT_EQ(cache.lru.size(), kept) << factor;
  }
}

TEST(Lru, AgeCountsFromTheLastUse) {
  Cache cache;
  cache.fill(3);
  cache.lru.take(cache.locks[0]);
  cache.lru.put(cache.locks[0], Instant{9s});
  cache.lru.hear(1, 1000, Instant{10s});
  EXPECT_EQ(cache.lru.excess(Instant{10s}).lock, &cache.locks[1]);
}

TEST(Lru, AnUnknownVolumeDropsNothing) {
  Cache cache({.max_age = 1h});
  cache.fill(10);
  EXPECT_EQ(cache.drop(Instant{1000s}), 0);
}

TEST(Lru, OldAgeDropsWhateverTheVolume) {
  Cache cache({.max_age = 5s});
  cache.fill(10);
  const Lru::Excess excess = cache.lru.excess(Instant{10s});
  EXPECT_EQ(excess.why, Lru::Why::kAge);
  EXPECT_EQ(cache.drop(Instant{10s}), 4);
}

TEST(Lru, FallsBackToAFixedSizeForServersWithoutAVolume) {
  Cache cache({.fallback_size = 6});
  cache.lru.fall_back();
  cache.fill(10);
  EXPECT_LE(cache.lru.next_check(), Instant{9s});
  EXPECT_EQ(cache.drop(Instant{9s}), 4);
  EXPECT_EQ(cache.lru.refresh_at(), kNever);
}

TEST(Lru, APausedCacheDropsNothing) {
  Cache cache({.max_age = 1s});
  cache.fill(10);
  cache.lru.pause();
  EXPECT_EQ(cache.drop(Instant{100s}), 0);
  EXPECT_EQ(cache.lru.next_check(), kNever);
  cache.lru.resume();
  EXPECT_EQ(cache.drop(Instant{100s}), 10);
}

TEST(Lru, AsksAgainTheSoonerTheMoreItHolds) {
  Cache cache;
  EXPECT_EQ(cache.lru.refresh_at(), kNever);
  cache.lru.hear(1'000'000, 1000, Instant{});
  cache.fill(1);
  EXPECT_EQ(cache.lru.refresh_at(), Instant{100s});  // 1000 / 1 * 0.1
  cache.fill(9);
  EXPECT_EQ(cache.lru.refresh_at(), Instant{10s});
  cache.fill(990);
  EXPECT_EQ(cache.lru.refresh_at(), Instant{1s});  // never more often
}

TEST(Lru, LooksEachSecondAndAtOnceWhenTheVolumeFalls) {
  Cache cache;
  EXPECT_EQ(cache.lru.next_check(), kNever);
  cache.lru.hear(50, 1000, Instant{});
  cache.fill(1);
  EXPECT_EQ(cache.lru.next_check(), Instant{1s});
  cache.lru.checked(Instant{1s});
  EXPECT_EQ(cache.lru.next_check(), Instant{2s});
  cache.lru.hear(49, 1000, Instant{1500ms});
  EXPECT_EQ(cache.lru.next_check(), Instant{1500ms});
}

TEST(Lru, TakesTheServersAdviceWhereItHasNoMindOfItsOwn) {
  Cache cache;
  cache.lru.hear(1'000'000, 1000, Instant{});
  cache.fill(10);
  cache.lru.advise(8, 5s, Instant{});
  EXPECT_EQ(cache.lru.next_check(), Instant{}) << "it is looked at once";
  EXPECT_EQ(cache.lru.excess(Instant{1s}).why, Lru::Why::kSize);
  EXPECT_NE(cache.lru.excess(Instant{1s}).lock, nullptr);
  EXPECT_EQ(cache.lru.excess(Instant{1s}).lock, nullptr) << "eight may stay";
  EXPECT_EQ(cache.lru.excess(Instant{8s}).why, Lru::Why::kAge);
  cache.lru.advise(0, 0s, Instant{6s});
  EXPECT_FALSE(cache.lru.has_fixed_size());
  EXPECT_EQ(cache.lru.excess(Instant{6s}).lock, nullptr);
  cache.lru.set_options({.fixed_size = 3});
  cache.lru.advise(5, 0s, Instant{6s});
  int dropped = 0;
  while (cache.lru.excess(Instant{6s}).lock != nullptr) ++dropped;
  EXPECT_EQ(dropped, 4) << "its own size comes first";
}

TEST(Lru, UnderPressureDropsItsShare) {
  Cache cache;
  cache.fill(10);
  EXPECT_EQ(cache.lru.pressure_count(), 3U);
  cache.lru.set_options({.pressure_percent = 1000});
  EXPECT_EQ(cache.lru.pressure_count(), 10U);
}

RC_GTEST_PROP(LruProperty, SharesOfAShrinkAddUpAndNobodyGivesMoreThanItHas, ()) {
  const auto sizes =
      *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 10'000));
  const auto nr = *rc::gen::inRange<std::size_t>(0, 50'000);
  const std::vector<std::size_t> shares = shrink_shares(sizes, nr);
  const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  RC_ASSERT(std::accumulate(shares.begin(), shares.end(), std::size_t{0}) == std::min(nr, all));
  for (std::size_t i = 0; i < sizes.size(); ++i) RC_ASSERT(shares[i] <= sizes[i]);
}

}  // namespace
}  // namespace weir::lock
