// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/buffer_pool.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::serve {
namespace {

constexpr std::size_t kKiB = 1024;

TEST(BufferPool, GivesAlignedPowersOfTwo) {
  BufferPool pool(Bytes{1024 * kKiB}, Bytes{1024 * kKiB});
  MemoryAccount account;
  Buffer small = pool.take(account, 1);
  EXPECT_EQ(small.size(), 4 * kKiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data()) % 4096, 0U);
  Buffer larger = pool.take(account, 4 * kKiB + 1);
  EXPECT_EQ(larger.size(), 8 * kKiB);
  EXPECT_EQ(account.held, 12 * kKiB);
  std::byte* const place = small.data();
  pool.give_back(account, std::move(small));
  small = pool.take(account, 4 * kKiB);
  EXPECT_EQ(small.data(), place);  // used again
  pool.give_back(account, std::move(small));
  pool.give_back(account, std::move(larger));
  EXPECT_EQ(pool.used(), 0U);
}

TEST(BufferPool, AConnectionIsBoundedByItsOwnLimit) {
  BufferPool pool(Bytes{1024 * kKiB}, Bytes{64 * kKiB});
  MemoryAccount account;
  std::vector<Buffer> held;
  while (Buffer buffer = pool.take(account, 4 * kKiB)) held.push_back(std::move(buffer));
  EXPECT_EQ(account.held, 64 * kKiB);
  EXPECT_EQ(pool.refused(), 1U);
  for (Buffer& buffer : held) pool.give_back(account, std::move(buffer));
}

TEST(BufferPool, TheFirstBufferNeedsOnlyRoom) {
  BufferPool pool(Bytes{1024 * kKiB}, Bytes{1024 * kKiB});
  MemoryAccount account;
  Buffer whole = pool.take(account, 1024 * kKiB);
  EXPECT_TRUE(whole);
  MemoryAccount other;
  EXPECT_FALSE(pool.take(other, 64 * kKiB));
  Buffer small = pool.take(other, BufferPool::kGuaranteed);
  EXPECT_TRUE(small);
  EXPECT_FALSE(pool.take(other, 1));
  pool.give_back(other, std::move(small));
  pool.give_back(account, std::move(whole));
}

TEST(BufferPool, SetsAsideThreeQuartersAtMost) {
  BufferPool pool(Bytes{1024 * kKiB}, Bytes{1024 * kKiB});
  EXPECT_TRUE(pool.reserve(512 * kKiB));
  EXPECT_FALSE(pool.reserve(257 * kKiB));
  EXPECT_TRUE(pool.reserve(256 * kKiB));
  EXPECT_EQ(pool.used(), 768 * kKiB);
  MemoryAccount account;
  Buffer small = pool.take(account, 32 * kKiB);  // from the reserve
  EXPECT_EQ(pool.used(), 768 * kKiB);
  MemoryAccount other;
  EXPECT_FALSE(pool.take(other, 256 * kKiB));
  Buffer half = pool.take(other, 128 * kKiB);
  EXPECT_TRUE(half);
  EXPECT_EQ(pool.used(), (768 + 96) * kKiB);
  pool.give_back(account, std::move(small));
  pool.give_back(other, std::move(half));
  EXPECT_EQ(pool.used(), 768 * kKiB);
  pool.unreserve(768 * kKiB);
}

TEST(BufferPool, ChargesHaveAQuarterAndLeaveAsMuchToOthers) {
  BufferPool pool(Bytes{1024 * kKiB}, Bytes{1024 * kKiB});
  std::vector<MemoryAccount> accounts(3);
  for (MemoryAccount& account : accounts) {
    while (pool.charge(account, kKiB)) {
    }
  }
  EXPECT_EQ(accounts[0].charged, 128 * kKiB);
  EXPECT_EQ(accounts[1].charged, 64 * kKiB);
  EXPECT_EQ(accounts[2].charged, 32 * kKiB);
  EXPECT_FALSE(pool.has_room(accounts[2], kKiB));
  EXPECT_EQ(pool.used(), 224 * kKiB);
  for (MemoryAccount& account : accounts) pool.discharge(account, account.charged);
  EXPECT_EQ(pool.used(), 0U);
}

// Buffers kept for reuse count too.
TEST(BufferPool, KeptBuffersGiveWay) {
  BufferPool pool(Bytes{1024 * kKiB}, Bytes{1024 * kKiB});
  MemoryAccount account;
  Buffer whole = pool.take(account, 1024 * kKiB);
  std::byte* const place = whole.data();
  pool.give_back(account, std::move(whole));
  whole = pool.take(account, 1024 * kKiB);
  EXPECT_EQ(whole.data(), place);
  pool.give_back(account, std::move(whole));
  Buffer small = pool.take(account, 4 * kKiB);  // the large kept one was freed for it
  pool.give_back(account, std::move(small));
}

// However many connections keep their buffers, a later one gets memory.
TEST(BufferPool, HoardersNeverTakeEverything) {
  BufferPool pool(Bytes{16384 * kKiB}, Bytes{16384 * kKiB});
  std::vector<MemoryAccount> hoarders(100);
  std::vector<std::vector<Buffer>> held(hoarders.size());
  for (std::size_t i = 0; i < hoarders.size(); ++i) {
    while (Buffer buffer = pool.take(hoarders[i], 4 * kKiB)) held[i].push_back(std::move(buffer));
    EXPECT_FALSE(held[i].empty()) << i;
  }
  MemoryAccount late;
  Buffer buffer = pool.take(late, 64 * kKiB);
  EXPECT_TRUE(buffer);
  pool.give_back(late, std::move(buffer));
  for (std::size_t i = 0; i < hoarders.size(); ++i) {
    for (Buffer& one : held[i]) pool.give_back(hoarders[i], std::move(one));
  }
}

// ---- connections that take all they can get and never return it ----

// A connection and everything it holds.
struct Hoarder {
  MemoryAccount account;
  std::vector<Buffer> held;
};

// Takes buffers of random sizes, large ones first, until none is granted.
void hoard(BufferPool& pool, Hoarder& hoarder, Rng& rng) {
  for (unsigned power = BufferPool::kPowerMax; power >= BufferPool::kPowerMin; --power) {
    if (rng.chance(1, 4)) continue;
    while (Buffer buffer = pool.take(hoarder.account, std::size_t{1} << power)) {
      hoarder.held.push_back(std::move(buffer));
      if (rng.chance(1, 3)) break;
    }
  }
}

TEST(BufferPoolProperty, AConnectionThatHoldsNothingFindsRoomForASmallRequest) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    const Bytes limit{static_cast<std::uint64_t>(rng.between(1, 512)) << 20};
    BufferPool pool(limit, limit);
    std::deque<Hoarder> hoarders;
    for (int number = 0; number < 100; ++number) {
      Hoarder& hoarder = hoarders.emplace_back();
      Buffer first = pool.take(hoarder.account, BufferPool::kGuaranteed);
      EXPECT_TRUE(first) << "seed " << seed << ", behind " << number << " hoarders";
      if (!first) break;
      // Some keep it, so that later ones count as additional buffers.
      if (rng.chance(1, 2)) {
        hoarder.held.push_back(std::move(first));
      } else {
        pool.give_back(hoarder.account, std::move(first));
      }
      hoard(pool, hoarder, rng);
    }
    for (Hoarder& hoarder : hoarders) {
      for (Buffer& buffer : hoarder.held) pool.give_back(hoarder.account, std::move(buffer));
    }
  }
}

}  // namespace
}  // namespace weir::serve
