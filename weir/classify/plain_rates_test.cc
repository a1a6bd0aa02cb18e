// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/plain_rates.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(PlainRates, ConvertsUnitsAndNothingElse) {
  EXPECT_EQ(with_plain_rates("start a jobid={x} rate=10k"), "start a jobid={x} rate=10000");
  EXPECT_EQ(with_plain_rates("change a rate=1.5k burst=7"), "change a rate=1500 burst=7");
  EXPECT_EQ(with_plain_rates("change a rate=2M\n"), "change a rate=2000000\n");
  EXPECT_EQ(with_plain_rates("change a rate=5"), "change a rate=5");
}

TEST(PlainRates, LeavesWhatItDoesNotKnowToTheParser) {
  for (const char* text : {"", "rate=", "start a jobid={rate=10k} rate=1",
                           "start a jobid={ rate=10k }", "rate=k", "rate=1.5", "rate=10kB",
                           "rate=99999999999999E", "xrate=10k", "start a jobid={x rate=10k"}) {
    EXPECT_EQ(with_plain_rates(text), text);
  }
}

}  // namespace
}  // namespace weir
