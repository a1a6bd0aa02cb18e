// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lock_check.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

TEST(HolderCheck, IsContentWithHoldersInTurn) {
  Findings findings;
  HolderCheck check(2, findings);
  check.begin(0, 1, 5, Instant{});
  check.begin(1, 2, 6, Instant{});
  check.end(0, 1);
  check.begin(0, 2, 7, Instant{});
  check.end(0, 9);  // holds nothing
  EXPECT_EQ(findings.count(), 0U);
}

TEST(HolderCheck, FindsTwoHolders) {
  Findings findings;
  HolderCheck check(1, findings);
  check.begin(0, 1, 5, Instant{});
  check.begin(0, 2, 6, Instant{});
  EXPECT_EQ(findings.count(), 1U);
}

TEST(HolderCheck, FindsAnOldFence) {
  Findings findings;
  HolderCheck check(1, findings);
  check.begin(0, 1, 6, Instant{});
  check.end(0, 1);
  check.begin(0, 2, 5, Instant{});
  EXPECT_EQ(findings.count(), 1U);
}

}  // namespace
}  // namespace weir::sim
