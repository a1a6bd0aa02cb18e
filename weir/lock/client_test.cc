// SPDX-License-Identifier: Apache-2.0
//
// The client against the real server, with a connection that the tests control.
#include "weir/lock/client.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/lock/server.h"

namespace weir::lock {
namespace {

using namespace std::chrono_literals;
using Kind = LockClient::Event::Kind;

constexpr Mode kS = Mode::kShared;
constexpr Mode kX = Mode::kExclusive;

class Client : public testing::Test {
 protected:
  void SetUp() override {
    join(one, 1);
    join(two, 2);
  }
  void join(LockClient& client, LockServer::Connection connection) {
    connections[&client == &one ? 0 : 1] = connection;
    server->connect(connection, now);
    client.connected(now);
    exchange();
  }
  void leave(LockClient& client) {
    LockServer::Connection& connection = connections[&client == &one ? 0 : 1];
    if (server) server->disconnect(connection);
    connection = 0;
    client.disconnected();
  }
  // Delivers all messages in both directions, until there are none.
  void exchange() {
    for (bool moved = true; moved;) {
      moved = false;
      LockClient* const clients[] = {&one, &two};
      for (int i = 0; i < 2; ++i) {
        if (connections[i] == 0 || !clients[i]->has_message(now)) continue;
        server->receive(connections[i], clients[i]->take(now), now);
        moved = true;
      }
      for (const LockServer::Connection connection : std::exchange(server->dirty(), {})) {
        const ServerMessage message = server->take(connection);
        for (int i = 0; i < 2; ++i) {
          if (connections[i] == connection) clients[i]->receive(message, now);
        }
        moved = true;
      }
    }
  }
  void pass(Nanoseconds time) {
    now += time;
    one.tick(now);
    two.tick(now);
    if (server) {
      server->tick(now);
      exchange();
    }
  }
  LockClient::Acquired acquire(LockClient& client, std::string_view name, Mode mode = kX,
                               LockTable::OrWait or_wait = LockTable::OrWait::kWait) {
    const auto got = client.acquire(name, mode, or_wait, now);
    exchange();
    return got;
  }
  void release(LockClient& client, LockClient::Ticket ticket) {
    client.release(ticket, now);
    exchange();
  }
  static std::vector<LockClient::Event> events(LockClient& client) {
    return std::exchange(client.events(), {});
  }
  // Expects exactly one event, with this kind and ticket.
  static void expect_event(LockClient& client, Kind kind, LockClient::Ticket ticket) {
    const auto all = events(client);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].kind, kind);
    EXPECT_EQ(all[0].ticket, ticket);
  }

  ServerOptions options{.pool = {.limit = 100}, .lease = 8s, .grace = 12s};
  Instant now{};
  std::unique_ptr<LockServer> server =
      std::make_unique<LockServer>(options, 1, LockServer::Start::kFresh, now);
  LockClient one{ClientOptions{}};
  LockClient two{ClientOptions{}};
  LockServer::Connection connections[2] = {};
};

TEST_F(Client, TakesACachedLockAgainWithoutAMessage) {
  const auto first = acquire(one, "a");
  EXPECT_FALSE(first.is_held);
  expect_event(one, Kind::kHeld, first.ticket);
  release(one, first.ticket);
  const std::uint64_t messages = one.counters().messages;
  const auto again = acquire(one, "a");
  EXPECT_TRUE(again.is_held);
  EXPECT_EQ(one.counters().messages, messages);
  EXPECT_EQ(one.counters().hits, 1U);
}

TEST_F(Client, GivesBackWhatTheServerAsksForWhenItsUserHasGone) {
  const auto mine = acquire(one, "a");
  events(one);
  const auto theirs = acquire(two, "a");
  EXPECT_TRUE(events(two).empty());
  release(one, mine.ticket);
  expect_event(two, Kind::kHeld, theirs.ticket);
  EXPECT_EQ(one.held(), 0U);
}

TEST_F(Client, ACachedLockGoesBackAtOnce) {
  release(one, acquire(one, "a").ticket);
  events(one);
  EXPECT_EQ(one.cached(), 1U);
  const auto theirs = acquire(two, "a");
  expect_event(two, Kind::kHeld, theirs.ticket);
  EXPECT_EQ(one.cached(), 0U);
}

TEST_F(Client, ReadersShareAndAWriterWaitsItsTurn) {
  const auto a = acquire(one, "a", kS);
  const auto b = acquire(one, "a", kS);
  EXPECT_TRUE(b.is_held);
  const auto writer = acquire(one, "a", kX);
  const auto late = acquire(one, "a", kS);
  events(one);
  EXPECT_FALSE(late.is_held);
  release(one, a.ticket);
  EXPECT_TRUE(events(one).empty());
  release(one, b.ticket);
  expect_event(one, Kind::kHeld, writer.ticket);
  release(one, writer.ticket);
  expect_event(one, Kind::kHeld, late.ticket);
  EXPECT_EQ(server->pool().granted(), 1);
}

TEST_F(Client, ATryIsRefusedByTheServerOrAtHome) {
  acquire(one, "a");
  const auto remote = acquire(two, "a", kX, LockTable::OrWait::kTry);
  expect_event(two, Kind::kRefused, remote.ticket);
  events(one);
  const auto local = acquire(one, "a", kX, LockTable::OrWait::kTry);
  expect_event(one, Kind::kRefused, local.ticket);
  release(two, remote.ticket);
  release(one, local.ticket);
  EXPECT_EQ(server->pool().granted(), 1);
}

TEST_F(Client, AWaitingAcquireCanBeWithdrawn) {
  acquire(one, "a");
  const auto waiting = acquire(two, "a");
  release(two, waiting.ticket);
  EXPECT_EQ(server->table().waiting(), 0U);
  // Also before its answer has arrived.
  const auto sent = two.acquire("a", kX, LockTable::OrWait::kWait, now);
  two.release(sent.ticket, now);
  exchange();
  EXPECT_EQ(server->table().waiting(), 0U);
  EXPECT_EQ(two.held(), 0U);
}

TEST_F(Client, ReleasingTwiceOrWhatIsUnknownIsCounted) {
  const auto a = acquire(one, "a");
  release(one, a.ticket);
  release(one, a.ticket);
  release(one, 0);
  release(one, UINT64_MAX);
  EXPECT_EQ(one.counters().unknown_releases, 3U);
  EXPECT_EQ(one.cached(), 1U);
}

TEST_F(Client, RefusesNamesThatAreNone) {
  for (const std::string& name : {std::string(), std::string(10'240, 'n')}) {
    const auto got = acquire(one, name);
    const auto all = events(one);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].why, Refusal::kBadName);
    release(one, got.ticket);
  }
}

TEST_F(Client, KeepsItselfAlive) {
  acquire(one, "a");
  events(one);
  for (int i = 0; i < 100; ++i) pass(1s);
  EXPECT_TRUE(events(one).empty());
  EXPECT_EQ(server->counters().evictions, 0U);
}

// The answer is slow: the lease counts from when the message was sent.
TEST_F(Client, TheLeaseCountsFromWhenTheConfirmedMessageWasSent) {
  pass(2s);  // a keep-alive was sent and answered
  EXPECT_EQ(one.lease_end(), Instant{2s} + 8s);
  now += 3s;
  const ClientMessage sent = one.take(now);
  const Instant sent_at = now;
  server->receive(1, sent, now);
  const ServerMessage answer = server->take(1);
  now += 3s;
  one.receive(answer, now);
  EXPECT_EQ(one.lease_end(), sent_at + 8s);
}

TEST_F(Client, PastItsLeaseAllLocksAreLost) {
  const auto used = acquire(one, "used");
  release(one, acquire(one, "cached").ticket);
  events(one);
  leave(one);
  now += 7999ms;
  one.tick(now);
  EXPECT_TRUE(one.acquire("cached", kX, LockTable::OrWait::kWait, now).is_held);
  now += 1ms;
  EXPECT_EQ(one.next_tick(), now);
  const auto late = one.acquire("cached", kX, LockTable::OrWait::kWait, now);
  EXPECT_FALSE(late.is_held);
  const auto all = events(one);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].kind, Kind::kLost);
  EXPECT_EQ(all[0].ticket, used.ticket);
  EXPECT_EQ(one.held(), 0U);
}

TEST_F(Client, ABrokenConnectionWithinTheLeaseCostsNothing) {
  const auto a = acquire(one, "a");
  events(one);
  leave(one);
  pass(5s);
  join(one, 3);
  for (int i = 0; i < 60; ++i) pass(1s);
  EXPECT_TRUE(events(one).empty());
  EXPECT_EQ(one.held(), 1U);
  EXPECT_EQ(server->pool().granted(), 1);
  release(one, a.ticket);
  EXPECT_TRUE(acquire(one, "a").is_held);
}

// The server keeps a lock that was reported in time, but the answer comes after the lease.
TEST_F(Client, WhatIsKeptAfterTheLeaseHasEndedIsReturned) {
  const auto a = acquire(one, "a");
  events(one);
  leave(one);
  now += 7s;
  connections[0] = 3;
  server->connect(3, now);
  one.connected(now);
  const ClientMessage report = one.take(now);
  now += 1s;
  one.tick(now);
  expect_event(one, Kind::kLost, a.ticket);
  server->receive(3, report, now);
  exchange();
  EXPECT_EQ(server->pool().granted(), 0);
  EXPECT_TRUE(acquire(two, "a", kX, LockTable::OrWait::kTry).is_held ||
              events(two).at(0).kind == Kind::kHeld);
}

TEST_F(Client, ReplaysToARestartedServer) {
  const auto a = acquire(one, "a");
  events(one);
  const auto b = acquire(two, "a");  // waits
  leave(one);
  leave(two);
  server = std::make_unique<LockServer>(options, 2, LockServer::Start::kRecovering, now);
  join(two, 4);
  pass(2s);
  join(one, 5);
  EXPECT_EQ(server->pool().granted(), 1);
  for (int i = 0; i < 12; ++i) pass(1s);
  EXPECT_TRUE(events(two).empty());  // still held by one, which was asked
  release(one, a.ticket);
  expect_event(two, Kind::kHeld, b.ticket);
}

TEST_F(Client, WhatAServerCannotConfirmIsLost) {
  const auto a = acquire(one, "a");
  events(one);
  leave(one);
  leave(two);
  // A server without state that does not recover, as if it had lost its state file.
  server = std::make_unique<LockServer>(options, 2, LockServer::Start::kFresh, now);
  join(one, 4);
  expect_event(one, Kind::kLost, a.ticket);
  EXPECT_EQ(one.held(), 0U);
}

// Between an enqueue and its answer, its ticket may be released and another be the first waiter.
TEST_F(Client, AnAnswerToATryIsNotForAnotherThatWaits) {
  const auto held = acquire(two, "a");
  const auto tries = one.acquire("a", kX, LockTable::OrWait::kTry, now);
  const auto waits = one.acquire("a", kX, LockTable::OrWait::kWait, now);
  one.release(tries.ticket, now);
  exchange();
  EXPECT_TRUE(events(one).empty()) << "the try would have to wait, and is over";
  release(two, held.ticket);
  expect_event(one, Kind::kHeld, waits.ticket);
}

TEST_F(Client, ATryDoesNotInheritAPlaceInTheLine) {
  acquire(two, "a");
  const auto waits = one.acquire("a", kX, LockTable::OrWait::kWait, now);
  one.release(waits.ticket, now);
  const auto tries = one.acquire("a", kX, LockTable::OrWait::kTry, now);
  exchange();
  const auto told = events(one);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, Kind::kRefused);
  EXPECT_EQ(told[0].ticket, tries.ticket);
  EXPECT_EQ(told[0].why, Refusal::kWouldWait);
  EXPECT_EQ(server->table().waiting(), 0U) << "nobody wants it any more";
}

TEST_F(Client, DropsWhatTheVolumeSaysAndTellsWithItsNextMessage) {
  for (int i = 0; i < 20; ++i) release(one, acquire(one, "n" + std::to_string(i)).ticket);
  events(one);
  EXPECT_EQ(one.cached(), 20U);
  server->pool().shrink(volume_max(100) - 10);  // volume 10
  pass(1s);
  for (int i = 0; i < 4; ++i) pass(1s);
  EXPECT_LT(one.cached(), 20U);
  EXPECT_GT(one.counters().cancels_for_volume, 0U);
  EXPECT_EQ(server->pool().granted(), static_cast<std::int64_t>(one.held()));
}

TEST_F(Client, DropsNothingWhileTheServerRecovers) {
  for (int i = 0; i < 20; ++i) release(one, acquire(one, "n" + std::to_string(i)).ticket);
  leave(one);
  leave(two);
  server = std::make_unique<LockServer>(options, 2, LockServer::Start::kRecovering, now);
  join(one, 3);
  server->pool().shrink(volume_max(100) - 1);
  for (int i = 0; i < 11; ++i) pass(1s);
  EXPECT_EQ(one.cached(), 20U);
  for (int i = 0; i < 9; ++i) pass(1s);
  EXPECT_LT(one.cached(), 20U);
}

TEST_F(Client, ShrinksWhenTold) {
  for (int i = 0; i < 20; ++i) release(one, acquire(one, "n" + std::to_string(i)).ticket);
  EXPECT_EQ(one.shrink(0, now), 20U) << "it counts";
  EXPECT_EQ(one.shrink(5, now), 5U);
  EXPECT_EQ(one.relieve(now), 4U);  // 30 % of 15
  pass(2s);
  EXPECT_EQ(server->pool().granted(), 11);
  EXPECT_EQ(one.shrink(SIZE_MAX, now), 11U);
  EXPECT_EQ(one.shrink(0, now), 0U);
  EXPECT_EQ(one.relieve(now), 0U);
}

TEST_F(Client, FollowsWhatTheServerSaysOfAllCaches) {
  for (int i = 0; i < 20; ++i) release(one, acquire(one, "n" + std::to_string(i)).ticket);
  server->advise(4, 0s);
  release(one, acquire(one, "another").ticket);
  pass(2s);
  EXPECT_EQ(one.cached(), 4U);
  server->advise(0, 3s);
  for (int i = 0; i < 10; ++i) pass(1s);
  EXPECT_EQ(one.cached(), 0U) << "it heard of the age with its keep-alive";
}

TEST_F(Client, HasAFixedSizeWithAnOldServer) {
  options.features = 0;
  server = std::make_unique<LockServer>(options, 2, LockServer::Start::kFresh, now);
  LockClient old(ClientOptions{.lru = {.fallback_size = 3}});
  server->connect(9, now);
  old.connected(now);
  const auto talk = [&] {
    while (old.has_message(now)) {
      server->receive(9, old.take(now), now);
      old.receive(server->take(9), now);
    }
  };
  talk();
  EXPECT_TRUE(old.lru().has_fixed_size());
  for (int i = 0; i < 10; ++i) {
    const auto got = old.acquire("n" + std::to_string(i), kX, LockTable::OrWait::kWait, now);
    talk();
    old.release(got.ticket, now);
  }
  EXPECT_EQ(old.cached(), 3U);
}

TEST_F(Client, AnEndlessMessageIsSentInParts) {
  leave(one);
  for (int i = 0; i < 10; ++i) {
    one.acquire("n" + std::to_string(i), kX, LockTable::OrWait::kWait, now);
  }
  one.connected(now);
  server->connect(9, now);
  connections[0] = 9;
  std::size_t messages = 0;
  while (one.has_message(now)) {
    const ClientMessage part = one.take(now, 4);
    EXPECT_LE(part.ops.size(), 4U);
    EXPECT_TRUE(server->receive(9, part, now));
    ++messages;
  }
  EXPECT_EQ(messages, 3U);  // hello, replayed and ten enqueues
  EXPECT_EQ(one.unconfirmed(), 3U);
  one.receive(server->take(9), now);
  EXPECT_EQ(one.unconfirmed(), 0U);
  EXPECT_EQ(one.held(), 10U);
}

// ---- modes, conversions and watches ----

TEST_F(Client, UsersOfCompatibleModesShareOneLockOrHaveTheirOwn) {
  const auto strong = acquire(one, "a", Mode::kProtectedWrite);
  const auto covered = acquire(one, "a", Mode::kConcurrentRead);
  EXPECT_TRUE(covered.is_held) << "what it excludes is excluded already";
  EXPECT_EQ(one.held(), 1U);
  const auto excluded = acquire(one, "a", kS);
  EXPECT_FALSE(one.is_held(excluded.ticket));
  release(one, excluded.ticket);
  release(one, strong.ticket);
  release(one, covered.ticket);
  const auto weak = acquire(two, "b", Mode::kConcurrentRead);
  const auto beside = acquire(two, "b", Mode::kProtectedWrite);
  EXPECT_TRUE(two.is_held(weak.ticket) && two.is_held(beside.ticket));
  EXPECT_EQ(two.held(), 2U) << "the second has a lock of its own";
  release(two, beside.ticket);
  EXPECT_EQ(two.held(), 1U) << "which is not cached";
}

TEST_F(Client, ConvertsDownAtOnceAndUpWhenItMay) {
  const auto mine = acquire(one, "a", kX);
  const auto theirs = acquire(two, "a", kS);
  events(one);
  const auto down = one.convert(mine.ticket, kS, LockTable::OrWait::kWait, now);
  EXPECT_TRUE(down.is_done);
  exchange();
  expect_event(two, Kind::kHeld, theirs.ticket);
  EXPECT_TRUE(events(one).empty()) << "it was told at once";
  EXPECT_FALSE(one.convert(mine.ticket, kX, LockTable::OrWait::kWait, now).is_done);
  exchange();
  EXPECT_TRUE(events(one).empty());
  release(two, theirs.ticket);
  expect_event(one, Kind::kConverted, mine.ticket);
  const auto late = acquire(two, "a", kS);
  EXPECT_FALSE(two.is_held(late.ticket));
  release(one, mine.ticket);
  EXPECT_TRUE(two.is_held(late.ticket));
  EXPECT_EQ(one.held(), 0U);
}

TEST_F(Client, ADeadlockOfConversionsIsNamed) {
  const auto mine = acquire(one, "a", kS);
  const auto theirs = acquire(two, "a", kS);
  events(one);
  events(two);
  one.convert(mine.ticket, kX, LockTable::OrWait::kWait, now);
  exchange();
  two.convert(theirs.ticket, kX, LockTable::OrWait::kWait, now);
  exchange();
  const auto refused = events(two);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].kind, Kind::kNotConverted);
  EXPECT_EQ(refused[0].why, Refusal::kDeadlock);
  const auto cycle = two.cycle(theirs.ticket);
  ASSERT_EQ(cycle.size(), 2U);
  EXPECT_EQ(cycle[0].wanted, kX);
  EXPECT_NE(cycle[0].client, cycle[1].client);
  EXPECT_TRUE(two.is_held(theirs.ticket));
  release(two, theirs.ticket);
  expect_event(one, Kind::kConverted, mine.ticket);
}

TEST_F(Client, OnlyTheAnswerToTheLastConversionCounts) {
  const auto mine = acquire(one, "a", kS);
  const auto theirs = acquire(two, "a", kS);
  events(one);
  one.convert(mine.ticket, kX, LockTable::OrWait::kWait, now);
  exchange();
  one.convert(mine.ticket, kS, LockTable::OrWait::kWait, now);  // withdraws it
  one.convert(mine.ticket, kX, LockTable::OrWait::kTry, now);
  exchange();
  const auto told = events(one);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, Kind::kNotConverted);
  EXPECT_EQ(told[0].number, 3U);
  release(two, theirs.ticket);
  EXPECT_TRUE(events(one).empty());
  EXPECT_EQ(server->table().converting(), 0U);
}

TEST_F(Client, AConversionIsSentAgainAfterTheConnectionBroke) {
  const auto mine = acquire(one, "a", kS);
  const auto theirs = acquire(two, "a", kS);
  events(one);
  one.convert(mine.ticket, kX, LockTable::OrWait::kWait, now);
  exchange();
  leave(one);
  join(one, 7);
  EXPECT_EQ(server->table().converting(), 1U);
  release(two, theirs.ticket);
  expect_event(one, Kind::kConverted, mine.ticket);
  // What was lowered without a connection is reported.
  leave(one);
  EXPECT_TRUE(one.convert(mine.ticket, kS, LockTable::OrWait::kWait, now).is_done);
  join(one, 8);
  const auto again = acquire(two, "a", kS);
  EXPECT_TRUE(two.is_held(again.ticket));
  release(one, mine.ticket);
  EXPECT_EQ(one.held(), 0U);
}

TEST_F(Client, WhatOthersOfThisClientUseIsNotConverted) {
  const auto mine = acquire(one, "a", kS);
  acquire(one, "a", kS);
  events(one);
  one.convert(mine.ticket, kX, LockTable::OrWait::kWait, now);
  const auto told = events(one);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].why, Refusal::kInUse);
}

TEST_F(Client, AnOldServerIsNotAskedForWhatItDoesNotKnow) {
  options.features = kFeatureVolume;
  server = std::make_unique<LockServer>(options, 2, LockServer::Start::kFresh, now);
  leave(one);
  join(one, 9);
  const auto mode = one.acquire("a", Mode::kConcurrentRead, LockTable::OrWait::kWait, now);
  const auto watch = one.watch("a", kX, now);
  const auto told = events(one);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].ticket, mode.ticket);
  EXPECT_EQ(told[1].ticket, watch);
  EXPECT_EQ(told[1].why, Refusal::kUnsupported);
}

TEST_F(Client, AWatchTellsWhoHoldsAndWhenItIsFree) {
  const auto theirs = acquire(two, "a", kX);
  const auto watch = one.watch("a", kS, now);
  exchange();
  expect_event(one, Kind::kHolders, watch);
  const Holders holders = one.holders(watch);
  EXPECT_EQ(holders.count, 1U);
  ASSERT_EQ(holders.first.size(), 1U);
  EXPECT_EQ(holders.first[0].mode, kX);
  leave(one);
  join(one, 7);
  expect_event(one, Kind::kHolders, watch);
  release(two, theirs.ticket);
  EXPECT_EQ(two.cached(), 0U) << "it was asked for";
  expect_event(one, Kind::kFree, watch);
  one.release(watch, now);
  exchange();
  EXPECT_EQ(server->counters().unknown_cancels, 0U);
  EXPECT_EQ(server->table().watches(), 0U);
}

}  // namespace
}  // namespace weir::lock
