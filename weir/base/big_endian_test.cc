// SPDX-License-Identifier: Apache-2.0
#include "weir/base/big_endian.h"

#include <array>

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(BigEndian, TheMostSignificantByteComesFirst) {
  std::array<std::byte, 7> bytes{};
  std::byte* end = store_be<std::uint32_t>(store_be<std::uint16_t>(bytes.data() + 1, 0x0102), 3);
  EXPECT_EQ(end, bytes.data() + bytes.size());
  EXPECT_EQ(bytes[1], std::byte{1});
  EXPECT_EQ(bytes[2], std::byte{2});
  EXPECT_EQ(bytes[6], std::byte{3});
  EXPECT_EQ(load_be<std::uint16_t>(bytes.data() + 1), 0x0102);
  EXPECT_EQ(load_be<std::uint32_t>(bytes.data() + 1), 0x0102'0000U);
}

TEST(BigEndian, WhatIsStoredIsLoadedAtAnyAlignment) {
  std::array<std::byte, 16> bytes{};
  for (std::size_t place = 0; place <= 8; ++place) {
    store_be<std::uint64_t>(bytes.data() + place, 0x0123'4567'89ab'cdef);
    EXPECT_EQ(load_be<std::uint64_t>(bytes.data() + place), 0x0123'4567'89ab'cdefU);
    EXPECT_EQ(bytes[place + 7], std::byte{0xef});
  }
}

}  // namespace
}  // namespace weir
