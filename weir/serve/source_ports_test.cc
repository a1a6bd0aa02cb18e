// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/source_ports.h"

#include <set>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

constexpr std::uint64_t kClient = 1;
constexpr std::uint64_t kOther = 2;

TEST(SourcePortsTest, ASuccessorGetsThePortOfItsPredecessor) {
  SourcePorts ports;
  EXPECT_EQ(ports.last_of(kClient), 0);
  const std::uint16_t first = ports.take(kClient);
  ports.used(kClient, first);
  ports.give_back(first);
  for (int i = 0; i < 100; ++i) {
    const std::uint16_t other = ports.take(kOther);
    EXPECT_NE(other, first);  // unused for the shortest time
    ports.give_back(other);
  }
  EXPECT_EQ(ports.last_of(kClient), first);
  EXPECT_EQ(ports.take(kClient), first);
  EXPECT_NE(ports.take(kClient), first);  // it is in use
}

TEST(SourcePortsTest, EachReservedPortIsUsedOnce) {
  SourcePorts ports;
  std::set<std::uint16_t> taken;
  for (int port = SourcePorts::kFirst; port <= SourcePorts::kLast; ++port) {
    taken.insert(ports.take(static_cast<std::uint64_t>(port)));
  }
  EXPECT_EQ(taken.size(), 512U);
  EXPECT_EQ(*taken.begin(), SourcePorts::kFirst);
  EXPECT_EQ(*taken.rbegin(), SourcePorts::kLast);
  EXPECT_EQ(ports.take(kClient), 0);
  ports.give_back(700);
  EXPECT_EQ(ports.take(kClient), 700);
}

TEST(SourcePortsTest, ForgetsTheOldestClients) {
  SourcePorts ports;
  for (std::uint64_t client = 0; client <= SourcePorts::kKept; ++client) ports.used(client, 600);
  EXPECT_EQ(ports.last_of(0), 0);
  EXPECT_EQ(ports.last_of(1), 600);
  EXPECT_EQ(ports.last_of(SourcePorts::kKept), 600);
}

}  // namespace
}  // namespace weir::serve
