// SPDX-License-Identifier: Apache-2.0
//
// Integers in network byte order: most significant byte first, at any alignment. The caller checks
// that there are enough bytes.
//
//   load_be<std::uint32_t>(bytes)         the number in bytes[0..4)
//   store_be<std::uint16_t>(bytes, 7)     writes bytes[0..2) and returns the position after them
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weir {

template <std::unsigned_integral T>
constexpr T big_endian(T value) {
  if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else {
    return __builtin_bswap64(value);
  }
}

template <std::unsigned_integral T>
T load_be(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return big_endian(value);
}

template <std::unsigned_integral T>
std::byte* store_be(std::byte* to, T value) {
  const T swapped = big_endian(value);
  std::memcpy(to, &swapped, sizeof swapped);
  return to + sizeof swapped;
}

}  // namespace weir
