// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/leader_doubt.h"

#include <gtest/gtest.h>

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct LeaderDoubtTest : ::testing::Test {
  // Whether it yields at one of the listings of the next so many seconds, three of a lease.
  bool yields_within(Nanoseconds time) {
    for (const Instant end = now + time; now < end; now += kLease / 3) {
      if (hears) seen.others_heard = now - milliseconds{10};
      if (doubt.observe(seen, kLease, now)) return true;
    }
    return false;
  }

  static constexpr Nanoseconds kLease = seconds{3};
  LeaderDoubt doubt;
  LeaderDoubt::Seen seen{.leads = true, .others = 2, .others_heard = {}};
  bool hears = true;
  Instant now = Instant{} + seconds{1000};
};

TEST_F(LeaderDoubtTest, ALeaderThatHearsSomebodyStays) { EXPECT_FALSE(yields_within(seconds{60})); }

TEST_F(LeaderDoubtTest, YieldsAfterTwoLeasesInWhichNobodyWasHeard) {
  EXPECT_FALSE(yields_within(seconds{9}));
  hears = false;
  EXPECT_FALSE(yields_within(kLease * 2 - seconds{1}));
  EXPECT_TRUE(yields_within(seconds{2}));
}

TEST_F(LeaderDoubtTest, BeginsToCountWhenItBeginsToLead) {
  hears = false;
  seen.leads = false;
  EXPECT_FALSE(yields_within(seconds{60}));
  seen.leads = true;
  EXPECT_FALSE(yields_within(kLease * 2 - seconds{1}));
  EXPECT_TRUE(yields_within(seconds{2}));
}

TEST_F(LeaderDoubtTest, ServersThatDieTogetherLeaveTheLeaderInItsPlace) {
  EXPECT_FALSE(yields_within(seconds{9}));
  hears = false;
  EXPECT_FALSE(yields_within(kLease + seconds{1}));  // they are in etcd still
  seen.others = 0;
  EXPECT_FALSE(yields_within(seconds{60}));
  seen.others = 2;  // they come back, and it counts anew
  EXPECT_FALSE(yields_within(kLease * 2 - seconds{1}));
}

TEST_F(LeaderDoubtTest, OfTwoThatDoNotHearEachOtherOneLeadsOn) {
  hears = false;
  seen.others = 1;
  EXPECT_FALSE(yields_within(seconds{60}));
}

}  // namespace
}  // namespace weir::cluster
