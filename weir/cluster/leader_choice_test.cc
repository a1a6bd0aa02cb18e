// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/leader_choice.h"

#include <gtest/gtest.h>

namespace weir::cluster {
namespace {

constexpr Nanoseconds kLease = std::chrono::seconds{6};
constexpr Nanoseconds kNow{0};

std::optional<Nanoseconds> wait(std::size_t registered, std::size_t connected,
                                bool was_connected = false) {
  return wait_to_lead({registered, connected, was_connected}, kLease);
}

TEST(LeaderChoice, AServerThatIsAloneInEtcdLeadsAtOnce) { EXPECT_EQ(wait(1, 1), kNow); }

TEST(LeaderChoice, AServerConnectedWithMoreThanHalfLeadsAtOnce) {
  EXPECT_EQ(wait(2, 2), kNow);
  EXPECT_EQ(wait(3, 2), kNow);
  EXPECT_EQ(wait(5, 3), kNow);
  EXPECT_NE(wait(4, 2), kNow);
  EXPECT_NE(wait(5, 2), kNow);
}

TEST(LeaderChoice, AServerThatNobodyEverReachedDoesNotLead) {
  EXPECT_EQ(wait(2, 1), std::nullopt);
  EXPECT_EQ(wait(1000, 1), std::nullopt);
  EXPECT_NE(wait(2, 1, true), std::nullopt);
}

TEST(LeaderChoice, WithoutAMajorityTheBetterConnectedServerIsFirst) {
  for (std::size_t registered = 3; registered <= 100; ++registered) {
    for (std::size_t connected = 2; 2 * connected <= registered; ++connected) {
      const auto more = wait(registered, connected);
      const auto fewer = wait(registered, connected - 1, true);
      ASSERT_TRUE(more && fewer);
      EXPECT_GT(*more, kNow);
      EXPECT_GT(*fewer, *more);
      EXPECT_LE(*fewer, kLease);
    }
  }
}

TEST(LeaderChoice, ALeaderYieldsToABetterConnectedServerOnly) {
  const Connectivity leader{.registered = 5, .connected = 2, .was_connected = true};
  EXPECT_TRUE(should_yield(leader, 3));
  EXPECT_FALSE(should_yield(leader, 2)) << "a tie leaves the leader in its place";
  EXPECT_FALSE(should_yield(leader, 0)) << "nobody challenges it";
}

TEST(LeaderChoice, OfTwoServersThatDoNotReachEachOtherNeitherChallenges) {
  EXPECT_FALSE(should_challenge({.registered = 2, .connected = 1, .was_connected = true}));
  EXPECT_TRUE(should_challenge({.registered = 3, .connected = 2, .was_connected = false}));
}

}  // namespace
}  // namespace weir::cluster
