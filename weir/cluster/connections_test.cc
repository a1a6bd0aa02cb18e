// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/connections.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;

struct ConnectionsTest : ::testing::Test {
  ConnectionsTest() { connections.set_peers({{"a", 1, "A"}, {"b", 2, "B"}, {"c", 3, "C"}}); }
  Connections connections{"a"};
  Instant now = Instant{} + std::chrono::hours{1};
};

TEST_F(ConnectionsTest, ServersThatGreetedLatelyAreCounted) {
  EXPECT_EQ(connections.count(now), 1U) << "itself";
  connections.greeted("b", 2, now);
  connections.greeted("b", 2, now);
  EXPECT_EQ(connections.count(now), 2U);
  connections.greeted("c", 3, now + milliseconds{500});
  EXPECT_EQ(connections.count(now + Connections::kFresh - milliseconds{1}), 3U);
  EXPECT_EQ(connections.count(now + Connections::kFresh), 2U);
  EXPECT_EQ(connections.count(now + Connections::kFresh * 2), 1U);
}

TEST_F(ConnectionsTest, ItselfAndASecondServerOfItsNameAreCountedOnce) {
  connections.greeted("a", 1, now);
  connections.set_peers({{"a", 1, "A"}, {"a", 7, "A"}, {"b", 2, "B"}, {"b", 8, "B"}});
  connections.greeted("a", 7, now);
  EXPECT_EQ(connections.count(now), 1U);
  connections.greeted("b", 2, now);
  connections.greeted("b", 8, now);
  EXPECT_EQ(connections.count(now), 2U);
}

TEST_F(ConnectionsTest, AServerThatIsNotRegisteredIsNotCountedUntilItIs) {
  connections.greeted("d", 4, now);
  connections.greeted("b", 99, now);  // another incarnation
  EXPECT_EQ(connections.count(now), 1U);
  connections.set_peers({{"a", 1, "A"}, {"d", 4, "D"}});
  EXPECT_EQ(connections.count(now), 2U);
  connections.set_peers({{"a", 1, "A"}});
  EXPECT_EQ(connections.count(now), 1U);
}

TEST_F(ConnectionsTest, AFloodOfNamesLeavesRoomForThoseThatAreRegistered) {
  for (std::size_t i = 0; i < 4 * Connections::kUnregisteredMax; ++i) {
    connections.greeted(fmt::format("x{}", i), i, now);
  }
  connections.greeted("b", 2, now);
  EXPECT_EQ(connections.count(now), 2U);
  // After the flood other greetings are kept again.
  now += Connections::kFresh;
  connections.greeted("d", 4, now);
  connections.set_peers({{"a", 1, "A"}, {"d", 4, "D"}});
  EXPECT_EQ(connections.count(now), 2U);
}

}  // namespace
}  // namespace weir::cluster
