// SPDX-License-Identifier: Apache-2.0
#include "weir/base/quote.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Quote, ShowsPlainTextAsItIs) { EXPECT_EQ(quote("500MiB/s"), "'500MiB/s'"); }

TEST(Quote, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(quote("a\x1b[2J\r\n"), "'a\\x1b[2J\\x0d\\x0a'");
  EXPECT_EQ(quote(std::string_view("a\0b", 3)), "'a\\x00b'");
  EXPECT_EQ(quote("\xc3\xa4\x7f"), "'\\xc3\\xa4\\x7f'");
}

TEST(Quote, CannotBeClosedFromInside) { EXPECT_EQ(quote("a' b\\"), "'a\\x27 b\\x5c'"); }

TEST(Quote, CutsLongText) {
  EXPECT_EQ(quote(std::string(kQuoteMax, 'x')), "'" + std::string(kQuoteMax, 'x') + "'");
  EXPECT_EQ(quote(std::string(kQuoteMax + 1, 'x')), "'" + std::string(kQuoteMax, 'x') + "...'");
}

TEST(Visible, EscapesWhatATerminalWouldObeyAndLeavesTheRest) {
  EXPECT_EQ(visible("no 'a\\b'\nno \x1b[2J\r\x9b\x7f"), "no 'a\\b'\nno \\x1b[2J\\x0d\\x9b\\x7f");
  EXPECT_EQ(visible(std::string(1000, 'x')), std::string(1000, 'x'));
}

}  // namespace
}  // namespace weir
