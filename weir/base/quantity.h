// SPDX-License-Identifier: Apache-2.0
//
// Types for counts that must not be confused: Tokens (held by buckets, the cost of requests) and
// Bytes. Unsigned 64 bits each, with conversion only through count(). Addition and subtraction wrap
// like integers: callers know their bounds, and input is checked where it is parsed. Signed
// amounts, such as lending records, have no such type.
//
//   Tokens{1} + Tokens{2} == Tokens{3}       Tokens{4096} + Bytes{1} does not compile
#pragma once

#include <compare>
#include <cstdint>

namespace weir {

template <class Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::uint64_t count) : count_(count) {}

  constexpr std::uint64_t count() const { return count_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) { return count_ += other.count_, *this; }
  constexpr Quantity& operator-=(Quantity other) { return count_ -= other.count_, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }

 private:
  std::uint64_t count_ = 0;
};

using Tokens = Quantity<struct TokenUnit>;
using Bytes = Quantity<struct ByteUnit>;

}  // namespace weir
