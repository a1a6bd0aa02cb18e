// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/allocation_map.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::serve {
namespace {

constexpr std::uint64_t kChunk = AllocationMap::kChunk;
using Extent = AllocationMap::Run;

TEST(AllocationMap, BeginsAsOneHole) {
  EXPECT_EQ(AllocationMap(10 * kChunk + 1).run(0, 10 * kChunk + 1),
            (Extent{10 * kChunk + 1, false}));
}

TEST(AllocationMap, AWriteMakesEveryChunkItTouchesData) {
  AllocationMap map(4 * kChunk);
  map.mark(kChunk - 1, 2);
  EXPECT_EQ(map.run(0, 4 * kChunk), (Extent{2 * kChunk, true}));
  EXPECT_EQ(map.run(5, 4 * kChunk - 5), (Extent{2 * kChunk - 5, true}));
  EXPECT_EQ(map.run(2 * kChunk, 2 * kChunk), (Extent{2 * kChunk, false}));
}

TEST(AllocationMap, ZeroesMakeHolesOfWholeChunksOnly) {
  AllocationMap map(4 * kChunk);
  map.mark(0, 4 * kChunk);
  map.clear(1, 2 * kChunk);
  EXPECT_EQ(map.run(0, 4 * kChunk), (Extent{kChunk, true}));
  EXPECT_EQ(map.run(kChunk, 3 * kChunk), (Extent{kChunk, false}));
  EXPECT_EQ(map.run(2 * kChunk, 2 * kChunk), (Extent{2 * kChunk, true}));
}

TEST(AllocationMap, TheLastChunkMayBeCutOff) {
  AllocationMap map(kChunk + 10);
  map.mark(0, kChunk + 10);
  map.clear(kChunk, 10);
  EXPECT_EQ(map.run(0, kChunk + 10), (Extent{kChunk, true}));
  EXPECT_EQ(map.run(kChunk, 10), (Extent{10, false}));
}

TEST(AllocationMap, ARunEndsWhereTheQuestionDoes) {
  AllocationMap map(1000 * kChunk);
  map.mark(200 * kChunk, 300 * kChunk);
  EXPECT_EQ(map.run(0, 1), (Extent{1, false}));
  EXPECT_EQ(map.run(0, 150 * kChunk + 7), (Extent{150 * kChunk + 7, false}));
  EXPECT_EQ(map.run(3, 1000 * kChunk - 3), (Extent{200 * kChunk - 3, false}));
  EXPECT_EQ(map.run(200 * kChunk, 65 * kChunk), (Extent{65 * kChunk, true}));
  EXPECT_EQ(map.run(200 * kChunk, 800 * kChunk), (Extent{300 * kChunk, true}));
}

// A byte that was written after it was last zeroed is never in a hole; a plain array is the
// reference.
TEST(AllocationMapProperty, WhatWasWrittenIsNeverInAHole) {
  Rng rng(7);
  for (int round = 0; round < 50; ++round) {
    const std::uint64_t size = rng.below(round % 10 == 0 ? 200 * kChunk : 6 * kChunk) + 1;
    AllocationMap map(size);
    std::vector<bool> written(size, false);
    for (int step = 0; step < 12; ++step) {
      const std::uint64_t offset = rng.below(size);
      const std::uint64_t length = rng.below(size - offset) + 1;
      const bool writes = rng.below(2) == 0;
      if (writes) map.mark(offset, length);
      if (!writes) map.clear(offset, length);
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(offset), length, writes);
    }
    for (std::uint64_t at = 0; at < size;) {
      const std::uint64_t asked = rng.below(size - at) + 1;
      const Extent run = map.run(at, asked);
      ASSERT_GT(run.length, 0U);
      ASSERT_LE(run.length, asked);
      if (!run.is_data) {
        const auto begin = written.begin() + static_cast<std::ptrdiff_t>(at);
        EXPECT_EQ(std::count(begin, begin + static_cast<std::ptrdiff_t>(run.length), true), 0);
      }
      at += run.length;
    }
  }
}

}  // namespace
}  // namespace weir::serve
