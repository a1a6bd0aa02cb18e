// SPDX-License-Identifier: Apache-2.0
#include "weir/base/nearest.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace {

constexpr std::array<std::string_view, 4> kKnown = {"capacity", "cost", "slots", "service"};

TEST(Nearest, FindsWhatWasProbablyMeant) {
  EXPECT_EQ(nearest("capcity", kKnown), "capacity");
  EXPECT_EQ(nearest("slot", kKnown), "slots");
  EXPECT_EQ(nearest("servcie", kKnown), "service");
  EXPECT_EQ(nearest("cost", kKnown), "cost");
}

TEST(Nearest, OffersNothingThatIsFarOff) {
  EXPECT_EQ(nearest("frequency", kKnown), std::nullopt);
  EXPECT_EQ(nearest("", kKnown), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 's'), kKnown), std::nullopt);
}

}  // namespace
}  // namespace weir
