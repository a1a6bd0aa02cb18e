// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/number.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Number, TellsItsBaseAsInC) {
  EXPECT_EQ(read_number("0"), 0U);
  EXPECT_EQ(read_number("10"), 10U);
  EXPECT_EQ(read_number("010"), 8U);
  EXPECT_EQ(read_number("0x10"), 16U);
  EXPECT_EQ(read_number("0XaF"), 175U);
  EXPECT_EQ(read_decimal("010"), 10U);
}

TEST(Number, IsDigitsOnly) {
  for (const char* text :
       {"", " 1", "1 ", "+1", "-1", "08", "0x", "0xg", "1a", "a", "1.5", "0b1"}) {
    EXPECT_FALSE(read_number(text)) << text;
  }
  for (const char* text : {"", "0x1", "+1", "-1", "1 "}) EXPECT_FALSE(read_decimal(text)) << text;
}

TEST(Number, BeyondSixtyFourBitsIsTheLargest) {
  EXPECT_EQ(read_number("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(read_number("18446744073709551616"), UINT64_MAX);
  EXPECT_EQ(read_number("0x10000000000000000"), UINT64_MAX);
  EXPECT_EQ(read_number("99999999999999999999999999999999999"), UINT64_MAX);
  EXPECT_FALSE(read_number("99999999999999999999999999999999999x"));
}

}  // namespace
}  // namespace weir
