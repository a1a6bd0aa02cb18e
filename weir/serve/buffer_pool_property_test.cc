// SPDX-License-Identifier: Apache-2.0
//
// Connections that take all they can get and never give it back, in any order and any sizes: one
// that holds nothing still finds room for a small request.
#include <cstdint>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/serve/buffer_pool.h"

namespace weir::serve {
namespace {

constexpr std::size_t kSmall = BufferPool::kGuaranteed;

// One connection and all it holds.
struct Hoarder {
  MemoryAccount account;
  std::vector<Buffer> held;
};

// Takes buffers of random sizes, large ones first, until it gets none any more.
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
      Buffer first = pool.take(hoarder.account, kSmall);
      EXPECT_TRUE(first) << "seed " << seed << ", behind " << number << " hoarders";
      if (!first) break;
      // Some keep it, so that their later ones are further buffers.
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
