// SPDX-License-Identifier: Apache-2.0
#include "weir/base/rng.h"

namespace weir {
namespace {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014, with
// the constants of Vigna's splitmix64.c): a counter that steps by 2^64 divided by the golden ratio,
// and a bijection of 64 bits that scatters it.
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

std::uint64_t scatter(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Keeps a child's seed out of its parent's own sequence of state words, which are scattered from
// seed + kStep, seed + 2 * kStep ... Any odd constant would do; this one is the fraction of pi.
constexpr std::uint64_t kSplitMark = 0x243f6a8885a308d3;

}  // namespace

Rng::Rng(std::uint64_t seed) : seed_(seed), state_{} {
  // scatter() is a bijection and its four arguments differ, so at most one word is 0: the all-zero
  // state, which xoshiro would never leave, is impossible.
  std::uint64_t counter = seed;
  for (std::uint64_t& word : state_) word = scatter(counter += kStep);
}

Rng Rng::split(std::string_view name) const {
  std::uint64_t child = scatter(seed_ ^ kSplitMark);
  for (const char letter : name) {
    child = scatter(child + kStep + static_cast<unsigned char>(letter));
  }
  // The length ends the name, so "a" followed by "b" differs from "ab".
  return Rng(scatter(child ^ (kSplitMark + name.size())));
}

std::int64_t Rng::between(std::int64_t lo, std::int64_t hi) {
  WEIR_ASSERT(lo <= hi, lo, hi);
  // In unsigned arithmetic hi - lo is right even where it does not fit the signed type.
  const std::uint64_t start = static_cast<std::uint64_t>(lo);
  const std::uint64_t span = static_cast<std::uint64_t>(hi) - start;
  const std::uint64_t offset = span == UINT64_MAX ? next() : below(span + 1);
  return static_cast<std::int64_t>(start + offset);
}

}  // namespace weir
