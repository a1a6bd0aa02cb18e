// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/intake.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

struct Client {
  std::uint32_t left = 0;   // requests that arrived and were not read
  std::uint32_t taken = 0;  // read in this turn
  bool waits = false;
};

class IntakeTest : public testing::Test {
 protected:
  std::uint32_t take(Client& client) {
    const std::uint32_t count = std::min(client.left, intake_.allowance());
    intake_.took(count);
    client.left -= count;
    client.taken += count;
    client.waits = client.left > 0;
    if (client.waits) intake_.wait(client);
    return count;
  }

  // The number of requests read.
  std::uint32_t turn(std::vector<Client>& clients) {
    std::uint32_t count = 0;
    for (Client& client : clients) client.taken = 0;
    intake_.begin_turn();
    for (Client& client : clients) {
      if (client.left > 0 && !client.waits) count += take(client);
    }
    intake_.begin_line();
    while (Client* const next = intake_.next()) count += take(*next);
    return count;
  }

  Intake<Client> intake_;
};

TEST_F(IntakeTest, AClientWithOneRequestIsTakenInItsTurnBesideAnyFlood) {
  std::vector<Client> clients(141);
  Client& neighbour = clients.back();
  for (int round = 0; round < 1000; ++round) {
    for (Client& client : clients) {
      if (client.left == 0) client.left = 1023;
    }
    neighbour.left = 1;
    const std::uint32_t count = turn(clients);
    ASSERT_EQ(neighbour.taken, 1U) << round;
    ASSERT_LE(count, 512U + 141U + 256U + 64U) << round;
  }
}

TEST_F(IntakeTest, AFewClientsWithDeepQueuesWaitForNobody) {
  std::vector<Client> clients(8);
  for (Client& client : clients) client.left = 64;
  EXPECT_EQ(turn(clients), 512U);
  EXPECT_FALSE(intake_.has_line());
}

TEST_F(IntakeTest, ThoseThatWaitTakeTurns) {
  std::vector<Client> clients(100);
  for (Client& client : clients) client.left = 1000;
  std::uint64_t turns = 0;
  do {
    turn(clients);
    ++turns;
    const auto [least, most] = std::minmax_element(
        clients.begin(), clients.end(),
        [](const Client& one, const Client& other) { return one.left < other.left; });
    ASSERT_LE(most->left - least->left, 2 * 64U) << turns;
  } while (intake_.has_line());
  for (const Client& client : clients) ASSERT_EQ(client.left, 0U);
  EXPECT_LE(turns, 100U * 1000U / 256U + 1);
}

TEST_F(IntakeTest, WhoHasGoneIsForgotten) {
  std::vector<Client> clients(3);
  for (Client& client : clients) client.left = 200;
  turn(clients);
  ASSERT_TRUE(intake_.has_line());
  intake_.forget(clients[1]);
  const std::uint32_t had = clients[1].left;
  turn(clients);
  turn(clients);
  EXPECT_EQ(clients[1].left, had);
  EXPECT_FALSE(intake_.has_line());
}

}  // namespace
}  // namespace weir::serve
