// SPDX-License-Identifier: Apache-2.0
//
// A rate: a number of tokens in a number of nanoseconds, stored as a reduced fraction, so that one
// token a day and 10^12 tokens a second are both exact. Never zero: use an optional for "no rate".
//
//   Rate::per_second(3)          3 tokens / 10^9 ns
//   Rate(Tokens{1}, 24h)         1 token  / 86,400 * 10^9 ns
//   Rate(Tokens{7}, 20ms)        an allocation of 7 tokens for a period of 20 ms
#pragma once

#include <compare>
#include <cstdint>
#include <numeric>

#include "weir/base/assert.h"
#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir {

// The fastest rate that input may specify: 10^12 tokens per second.
inline constexpr std::uint64_t kTokensPerNanosecondMax = 1000;

class Rate {
 public:
  // REQUIRES: tokens > 0, time > 0.
  constexpr Rate(Tokens tokens, Nanoseconds time)
      : tokens_(tokens.count()), time_ns_(static_cast<std::uint64_t>(time.count())) {
    WEIR_ASSERT(tokens.count() > 0 && time.count() > 0, tokens.count(), time.count());
    const std::uint64_t common = std::gcd(tokens_, time_ns_);
    tokens_ /= common;
    time_ns_ /= common;
  }
  static constexpr Rate per_second(std::uint64_t tokens) {
    return {Tokens{tokens}, std::chrono::seconds{1}};
  }

  // The reduced fraction tokens() / time_ns().
  constexpr std::uint64_t tokens() const { return tokens_; }
  constexpr std::uint64_t time_ns() const { return time_ns_; }

  constexpr bool operator==(const Rate&) const = default;
  constexpr std::strong_ordering operator<=>(const Rate& other) const {
    using Wide = unsigned __int128;
    return Wide{tokens_} * other.time_ns_ <=> Wide{other.tokens_} * time_ns_;
  }

 private:
  std::uint64_t tokens_;
  std::uint64_t time_ns_;
};

// Whole tokens of a rate in a time, rounded down; saturates at 2^64 - 1.
constexpr Tokens tokens_in(Rate rate, Nanoseconds time) {
  WEIR_ASSERT(time.count() >= 0, time.count());
  using Wide = unsigned __int128;
  const Wide tokens =
      Wide{rate.tokens()} * static_cast<std::uint64_t>(time.count()) / rate.time_ns();
  return Tokens{tokens > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(tokens)};
}

}  // namespace weir
