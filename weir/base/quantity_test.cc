// SPDX-License-Identifier: Apache-2.0
//
// A quantity is defined by what does not compile.
#include "weir/base/quantity.h"

#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

namespace weir {
namespace {

template <class A, class B>
concept CanBeAdded = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept CanBeCompared = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept CanBeMultiplied = requires(A a, B b) {
  a* b;
};

static_assert(CanBeAdded<Tokens, Tokens> && CanBeCompared<Tokens, Tokens>);
static_assert(!CanBeAdded<Tokens, Bytes> && !CanBeCompared<Tokens, Bytes>);
static_assert(!CanBeAdded<Tokens, std::uint64_t> && !CanBeCompared<Tokens, std::uint64_t>);
static_assert(!CanBeMultiplied<Tokens, Tokens>, "token-squares mean nothing");
static_assert(!std::is_convertible_v<std::uint64_t, Tokens> &&
              !std::is_convertible_v<Tokens, std::uint64_t>);
static_assert(!std::is_constructible_v<Tokens, Bytes> && !std::is_assignable_v<Tokens&, Bytes>);
static_assert(sizeof(Tokens) == 8 && std::is_trivially_copyable_v<Tokens>);

TEST(Quantity, CountsLikeTheIntegerBeneath) {
  Tokens tokens{5};
  tokens += Tokens{7};
  tokens -= Tokens{2};
  EXPECT_EQ(tokens.count(), 10u);
  EXPECT_EQ(tokens + Tokens{1}, Tokens{11});
  EXPECT_LT(tokens - Tokens{1}, tokens);
  EXPECT_EQ(Tokens{}.count(), 0u);
  EXPECT_EQ((Tokens{0} - Tokens{1}).count(), UINT64_MAX) << "wraps, as its header says";
}

}  // namespace
}  // namespace weir
