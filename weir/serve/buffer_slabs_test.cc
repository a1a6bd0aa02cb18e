// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/buffer_slabs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include "weir/base/rng.h"

namespace weir::serve {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t bytes_of(unsigned power) { return std::size_t{1} << power; }

// The number of resident pages.
std::size_t resident(std::byte* data, unsigned power) {
  std::vector<unsigned char> pages(bytes_of(power) / kPage);
  EXPECT_EQ(mincore(data, bytes_of(power), pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1U; }));
}

bool is_all(std::byte* data, unsigned power, int value) {
  return std::all_of(data, data + bytes_of(power),
                     [&](std::byte one) { return one == static_cast<std::byte>(value); });
}

TEST(BufferSlabs, WhatIsGivenBackIsNotResident) {
  // Sizes of which three fit into a slab.
  for (unsigned power = BufferSlabs::kPowerMin; power <= BufferSlabs::kSlabPower - 2; ++power) {
    BufferSlabs slabs;
    std::vector<std::byte*> taken;
    for (int value = 1; value <= 3; ++value) {
      std::byte* const data = taken.emplace_back(slabs.take(power));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kPage, 0U);
      std::memset(data, value, bytes_of(power));
    }
    EXPECT_EQ(resident(taken[1], power), bytes_of(power) / kPage);
    slabs.give_back(taken[1], power);
    EXPECT_EQ(resident(taken[1], power), 0U) << power;
    EXPECT_TRUE(is_all(taken[0], power, 1));
    EXPECT_TRUE(is_all(taken[2], power, 3));
    EXPECT_EQ(slabs.take(power), taken[1]);
    EXPECT_TRUE(is_all(taken[1], power, 0));
    for (std::byte* const data : taken) slabs.give_back(data, power);
  }
}

TEST(BufferSlabs, EmptySlabsAreUnmapped) {
  BufferSlabs slabs;
  for (unsigned power = BufferSlabs::kPowerMin; power <= BufferSlabs::kPowerMax; ++power) {
    const std::size_t slab = bytes_of(std::max(power, BufferSlabs::kSlabPower));
    std::vector<std::byte*> taken;
    for (std::size_t i = 0; i < slab / bytes_of(power); ++i) taken.push_back(slabs.take(power));
    EXPECT_EQ(slabs.mapped(), slab) << power;
    taken.push_back(slabs.take(power));
    EXPECT_EQ(slabs.mapped(), 2 * slab) << power;
    for (std::byte* const data : taken) slabs.give_back(data, power);
    EXPECT_EQ(slabs.mapped(), 0U) << power;
  }
}

// So that the others become empty.
TEST(BufferSlabs, TheLowestSlabIsUsedFirst) {
  constexpr unsigned kPower = BufferSlabs::kSlabPower - 1;  // two in a slab
  BufferSlabs slabs;
  std::vector<std::byte*> taken;
  for (int i = 0; i < 20; ++i) taken.push_back(slabs.take(kPower));
  std::sort(taken.begin(), taken.end());
  for (const std::size_t i : {19U, 10U, 3U}) slabs.give_back(taken[i], kPower);
  EXPECT_EQ(slabs.take(kPower), taken[3]);
  EXPECT_EQ(slabs.take(kPower), taken[10]);
  EXPECT_EQ(slabs.take(kPower), taken[19]);
  for (std::byte* const data : taken) slabs.give_back(data, kPower);
}

TEST(BufferSlabsProperty, BuffersNeverOverlapWhateverTheMixOfSizes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    BufferSlabs slabs;
    struct Taken {
      std::byte* data;
      unsigned power;
      std::uint64_t mark;  // at both ends
    };
    std::vector<Taken> taken;
    std::uint64_t mark = 0;
    const auto check_and_give_back = [&](std::size_t at) {
      std::swap(taken[at], taken.back());
      const Taken one = taken.back();
      taken.pop_back();
      const std::byte* const end = one.data + bytes_of(one.power) - sizeof one.mark;
      EXPECT_EQ(std::memcmp(one.data, &one.mark, sizeof one.mark), 0) << "seed " << seed;
      EXPECT_EQ(std::memcmp(end, &one.mark, sizeof one.mark), 0) << "seed " << seed;
      slabs.give_back(one.data, one.power);
    };
    for (int step = 0; step < 2000; ++step) {
      if (!taken.empty() && rng.chance(1, 2)) {
        check_and_give_back(rng.below(taken.size()));
        continue;
      }
      const auto power = static_cast<unsigned>(rng.between(12, 22));
      std::byte* const data = slabs.take(power);
      EXPECT_EQ(resident(data, power), 0U) << "seed " << seed;
      taken.push_back({data, power, ++mark});
      std::memcpy(data, &mark, sizeof mark);
      std::memcpy(data + bytes_of(power) - sizeof mark, &mark, sizeof mark);
    }
    while (!taken.empty()) check_and_give_back(0);
    EXPECT_EQ(slabs.mapped(), 0U);
  }
}

// Clang has no macro for a sanitizer, as GCC has.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST(BufferSlabs, ABufferThatIsNotLentCannotBeTouched) {
  BufferSlabs slabs;
  std::byte* const data = slabs.take(12);
  std::byte* const other = slabs.take(12);
  EXPECT_FALSE(__asan_address_is_poisoned(data));
  slabs.give_back(data, 12);
  EXPECT_TRUE(__asan_address_is_poisoned(data));
  slabs.give_back(other, 12);
}
#endif

}  // namespace
}  // namespace weir::serve
