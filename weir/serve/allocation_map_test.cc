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
  EXPECT_EQ(AllocationMap(10 * kChunk + 1).run(0), (Extent{10 * kChunk + 1, false}));
}

TEST(AllocationMap, AWriteMakesEveryChunkItTouchesData) {
  AllocationMap map(4 * kChunk);
  map.mark(kChunk - 1, 2);
  EXPECT_EQ(map.run(0), (Extent{2 * kChunk, true}));
  EXPECT_EQ(map.run(5), (Extent{2 * kChunk - 5, true}));
  EXPECT_EQ(map.run(2 * kChunk), (Extent{2 * kChunk, false}));
}

TEST(AllocationMap, ZeroesMakeHolesOfWholeChunksOnly) {
  AllocationMap map(4 * kChunk);
  map.mark(0, 4 * kChunk);
  map.clear(1, 2 * kChunk);
  EXPECT_EQ(map.run(0), (Extent{kChunk, true}));
  EXPECT_EQ(map.run(kChunk), (Extent{kChunk, false}));
  EXPECT_EQ(map.run(2 * kChunk), (Extent{2 * kChunk, true}));
}

TEST(AllocationMap, TheLastChunkMayBeCutOff) {
  AllocationMap map(kChunk + 10);
  map.mark(0, kChunk + 10);
  map.clear(kChunk, 10);
  EXPECT_EQ(map.run(0), (Extent{kChunk, true}));
  EXPECT_EQ(map.run(kChunk), (Extent{10, false}));
}

// A byte that was written after the last zero over it is never in a hole: a plain array of bytes
// says which those are.
TEST(AllocationMapProperty, WhatWasWrittenIsNeverInAHole) {
  Rng rng(7);
  for (int round = 0; round < 50; ++round) {
    const std::uint64_t size = rng.below(6 * kChunk) + 1;
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
      const Extent run = map.run(at);
      ASSERT_GT(run.length, 0U);
      ASSERT_LE(run.length, size - at);
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
