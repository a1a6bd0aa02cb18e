// SPDX-License-Identifier: Apache-2.0
//
// A hash that is the same in every run, with every compiler and on every machine, so that runs with
// a seed or a trace can be repeated. Library hashes do not guarantee this, and some use a random
// seed per process.
//
// One step multiplies two words to 128 bits and folds the halves, as in wyhash and Abseil's
// low-level hash; the steps of one key are independent. It does not resist deliberate collisions:
// tables that use it are bounded.
#pragma once

#include <cstdint>

namespace weir {

// Constants of wyhash: odd, with as many ones as zeros, so that zero and small words mix as well as
// others.
inline constexpr std::uint64_t kHashKeys[] = {0xa076'1d64'78bd'642f, 0xe703'7ed1'a0b4'28db,
                                              0x8ebc'6af0'9c88'c6e3, 0x5899'65cc'7537'4cc3};

constexpr std::uint64_t hash_fold(std::uint64_t a, std::uint64_t b) {
  using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

constexpr std::uint64_t hash_words(std::uint64_t a, std::uint64_t b) {
  return hash_fold(a ^ kHashKeys[0], b ^ kHashKeys[1]);
}

}  // namespace weir
