// SPDX-License-Identifier: Apache-2.0
#include "weir/base/control_characters.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(ControlCharacters, FindsWhatATerminalOrALineWouldObey) {
  EXPECT_FALSE(has_control(""));
  EXPECT_FALSE(has_control("scratch 1"));
  EXPECT_FALSE(has_control("gr\xc3\xb6\xc3\x9f"));
  EXPECT_TRUE(has_control("a\nb"));
  EXPECT_TRUE(has_control(std::string_view("a\0b", 3)));
  EXPECT_TRUE(has_control("a\x1b[2J"));
  EXPECT_TRUE(has_control("a\x7f"));
  EXPECT_TRUE(has_control("a\xc2\x9b"));  // CSI of Latin-1
}

}  // namespace
}  // namespace weir
