// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_wire.h"

#include <gtest/gtest.h>

#include "weir/cluster/epoch.pb.h"

namespace weir::cluster {
namespace {

TEST(EpochWire, CarriesWhatALeaderTells) {
  serve::LeaderStatus told{.term = 3,
                           .epoch = 12,
                           .rounds = 40,
                           .evictions = 1,
                           .refused = 2,
                           .garbage = 4,
                           .round_median = std::chrono::milliseconds{5},
                           .round_p99 = std::chrono::milliseconds{9},
                           .bundles = 11};
  told.members.push_back(
      {.name = "b", .is_joined = true, .slices = {{"ost_io/r/ops", 500, false}}});
  told.courses.push_back({"ost_io", 7, 6, 5, 4});
  DescribeReply reply;
  to_wire(told, reply);
  const serve::LeaderStatus back = from_wire(reply);
  EXPECT_EQ(back.term, 3U);
  EXPECT_EQ(back.epoch, 12);
  EXPECT_EQ(back.rounds, 40U);
  EXPECT_EQ(back.evictions, 1U);
  EXPECT_EQ(back.refused, 2U);
  EXPECT_EQ(back.garbage, 4U);
  EXPECT_EQ(back.bundles, 11U);
  EXPECT_EQ(back.round_median, std::chrono::milliseconds{5});
  EXPECT_EQ(back.round_p99, std::chrono::milliseconds{9});
  ASSERT_EQ(back.members.size(), 1U);
  EXPECT_EQ(back.members[0].name, "b");
  EXPECT_TRUE(back.members[0].is_joined);
  ASSERT_EQ(back.members[0].slices.size(), 1U);
  EXPECT_EQ(back.members[0].slices[0].of, "ost_io/r/ops");
  EXPECT_EQ(back.members[0].slices[0].milli, 500);
  EXPECT_FALSE(back.members[0].slices[0].is_leased);
  ASSERT_EQ(back.courses.size(), 1U);
  EXPECT_EQ(back.courses[0].service, "ost_io");
  EXPECT_EQ(back.courses[0].members, 4U);
}

}  // namespace
}  // namespace weir::cluster
