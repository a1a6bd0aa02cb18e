// SPDX-License-Identifier: Apache-2.0
#include "weir/base/assert.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(AssertDeathTest, SaysWhereWhatAndWithWhichNumbers) {
  const std::int64_t depth = 0;
  const unsigned count = 5;
  EXPECT_DEATH(WEIR_ASSERT(depth > 0, depth, count),
               "assert_test\\.cc:[0-9]+: assertion failed: depth > 0  \\[depth, count = 0, 5\\]\n");
  EXPECT_DEATH(WEIR_ASSERT(depth > 0, depth - 7), "depth > 0  \\[depth - 7 = -7\\]\n");
  EXPECT_DEATH(WEIR_ASSERT(count == 0, UINT64_MAX), "= 18446744073709551615\\]\n");
}

TEST(AssertDeathTest, SaysNoNumbersWhereNoneAreNamed) {
  EXPECT_DEATH(WEIR_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3\n");
}

TEST(AssertDeathTest, ACommaInTheConditionNeedsParenthesesOnly) {
  const auto sum = [](int a, int b) { return a + b; };
  EXPECT_DEATH(WEIR_ASSERT((sum(1, 2) == 4)), "sum\\(1, 2\\) == 4");
}

TEST(Assert, EvaluatesItsConditionOnceAndItsNumbersOnlyOnFailure) {
  int asked = 0;
  int named = 0;
  WEIR_ASSERT(++asked == 1, ++named);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(named, 0);
}

// The macro is one statement, so that it works without braces and before an else.
TEST(Assert, IsOneStatement) {
  bool otherwise = false;
  if (otherwise)
    WEIR_ASSERT(false);
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

constexpr int checked_half(int n) {
  WEIR_ASSERT(n % 2 == 0, n);
  return n / 2;
}
static_assert(checked_half(4) == 2, "assertions that hold are fine in constant expressions");

}  // namespace
}  // namespace weir
