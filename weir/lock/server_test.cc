// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/server.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::lock {
namespace {

using namespace std::chrono_literals;
using In = ClientOp::Kind;
using Out = ServerOp::Kind;

ClientOp op(In kind) {
  ClientOp made;
  made.kind = kind;
  return made;
}
ClientOp hello(std::uint64_t client = 0, std::uint32_t features = kFeatureVolume) {
  ClientOp made = op(In::kHello);
  made.client = client;
  made.secret = open_secret(client, "");
  made.features = features;
  return made;
}
ClientOp enqueue(std::uint64_t cookie, std::string name, Mode mode = Mode::kExclusive,
                 LockTable::OrWait or_wait = LockTable::OrWait::kWait) {
  ClientOp made = op(In::kEnqueue);
  made.cookie = cookie;
  made.name = std::move(name);
  made.mode = mode;
  made.or_wait = or_wait;
  return made;
}
ClientOp cancel(std::uint64_t handle) {
  ClientOp made = op(In::kCancel);
  made.handle = handle;
  return made;
}
ClientOp replay(std::uint64_t cookie, std::string name, const ServerOp& granted,
                std::uint64_t incarnation) {
  ClientOp made = op(In::kReplay);
  made.cookie = cookie;
  made.name = std::move(name);
  made.mode = Mode::kExclusive;
  made.handle = granted.handle;
  made.fence = granted.fence;
  made.incarnation = incarnation;
  return made;
}

class Server : public testing::Test {
 protected:
  ServerMessage send(LockServer::Connection connection, std::vector<ClientOp> ops) {
    fine_ = server->receive(connection, {++numbers[connection], std::move(ops)}, now);
    return server->take(connection);
  }
  ServerMessage join(LockServer::Connection connection, std::uint64_t client = 0,
                     std::uint32_t features = kFeatureVolume) {
    server->connect(connection, now);
    numbers[connection] = 0;
    return send(connection, {hello(client, features), op(In::kReplayed)});
  }
  void restart(std::uint64_t incarnation) {
    server =
        std::make_unique<LockServer>(options, incarnation, LockServer::Start::kRecovering, now);
  }
  void pass(Nanoseconds time) {
    now += time;
    server->tick(now);
  }

  ServerOptions options{.pool = {.limit = 100}, .lease = 8s, .grace = 12s};
  Instant now{};
  std::unique_ptr<LockServer> server =
      std::make_unique<LockServer>(options, 1, LockServer::Start::kFresh, now);
  std::map<LockServer::Connection, std::uint64_t> numbers;
  bool fine_ = true;
};

TEST_F(Server, WelcomesGrantsAndTellsTheVolumeEachTime) {
  const ServerMessage welcome = join(1);
  ASSERT_EQ(welcome.ops.size(), 1U);
  EXPECT_EQ(welcome.ops[0].kind, Out::kWelcome);
  EXPECT_EQ(welcome.ops[0].lease, 8s);
  EXPECT_NE(welcome.ops[0].client, 0U);
  EXPECT_EQ(welcome.volume, volume_max(100));
  const ServerMessage granted = send(1, {enqueue(7, "a")});
  ASSERT_EQ(granted.ops.size(), 1U);
  EXPECT_EQ(granted.ops[0].kind, Out::kGranted);
  EXPECT_EQ(granted.ops[0].cookie, 7U);
  EXPECT_EQ(granted.confirms, 2U);
  EXPECT_EQ(granted.limit, 100);
  const ServerMessage empty = send(1, {});
  EXPECT_EQ(empty.volume, volume_max(100));
  EXPECT_TRUE(empty.ops.empty());
}

TEST_F(Server, SendsNoVolumeToOldClients) {
  const ServerMessage welcome = join(1, 0, 0);
  EXPECT_EQ(welcome.ops[0].features, 0U);
  EXPECT_EQ(welcome.volume, 0U);
  EXPECT_EQ(welcome.limit, 0);
}

TEST_F(Server, AsksTheHolderAndGrantsWhenItCancels) {
  join(1);
  join(2);
  const ServerOp held = send(1, {enqueue(1, "a")}).ops[0];
  server->dirty().clear();
  EXPECT_EQ(send(2, {enqueue(2, "a")}).ops[0].kind, Out::kQueued);
  EXPECT_EQ(server->dirty(), (std::vector<LockServer::Connection>{2, 1}));
  const ServerMessage asked = server->take(1);
  ASSERT_EQ(asked.ops.size(), 1U);
  EXPECT_EQ(asked.ops[0].kind, Out::kAsk);
  EXPECT_EQ(asked.ops[0].cookie, 1U);
  send(1, {cancel(held.handle)});
  const ServerMessage granted = server->take(2);
  ASSERT_EQ(granted.ops.size(), 1U);
  EXPECT_EQ(granted.ops[0].kind, Out::kGranted);
  EXPECT_GT(granted.ops[0].fence, held.fence);
  EXPECT_EQ(server->pool().granted(), 1);
}

TEST_F(Server, AGoodbyeGivesAllBackAtOnce) {
  join(1);
  join(2);
  send(1, {enqueue(1, "a"), enqueue(2, "b")});
  EXPECT_EQ(send(2, {enqueue(3, "a")}).ops[0].kind, Out::kQueued);
  const ServerMessage last = send(1, {op(In::kGoodbye)});
  EXPECT_TRUE(fine_);
  EXPECT_EQ(last.ops.back().kind, Out::kGoAway);
  EXPECT_EQ(server->take(2).ops.at(0).kind, Out::kGranted);
  EXPECT_EQ(server->pool().granted(), 1);
  EXPECT_EQ(server->sessions(), 1U);
  EXPECT_EQ(server->counters().evictions, 0U);
  EXPECT_FALSE(server->receive(1, {4, {}}, now));
}

TEST_F(Server, OperationsMayComeLaterThanTheirMessage) {
  join(1);
  send(1, {});
  server->perform(1, enqueue(5, "a"));
  const ServerMessage granted = server->take(1);
  ASSERT_EQ(granted.ops.size(), 1U);
  EXPECT_EQ(granted.ops[0].kind, Out::kGranted);
  server->refuse(1, enqueue(6, "a"), Refusal::kTooMany);
  const ServerMessage refused = server->take(1);
  ASSERT_EQ(refused.ops.size(), 1U);
  EXPECT_EQ(refused.ops[0].why, Refusal::kTooMany);
  EXPECT_EQ(server->counters().too_many, 1U);
  server->perform(1, cancel(granted.ops[0].handle));
  EXPECT_EQ(server->pool().granted(), 0);
  server->disconnect(1);
  server->perform(1, enqueue(7, "a"));
  server->perform(99, enqueue(7, "a"));
  EXPECT_EQ(server->pool().granted(), 0);
}

TEST_F(Server, ANumberSomebodyMadeUpIsNotGivenToAnother) {
  const std::uint64_t first = join(1).ops[0].client;
  join(2, first + 1);
  const std::uint64_t third = join(3).ops[0].client;
  EXPECT_NE(third, first + 1);
  EXPECT_EQ(server->sessions(), 3U);
}

TEST_F(Server, AClientThatComesAgainEndsItsOldConnection) {
  const std::uint64_t client = join(1).ops[0].client;
  server->dirty().clear();
  join(2, client);
  const ServerMessage old = server->take(1);
  ASSERT_EQ(old.ops.size(), 1U);
  EXPECT_EQ(old.ops[0].kind, Out::kGoAway);
  EXPECT_EQ(server->sessions(), 1U);
}

TEST_F(Server, EvictsWhoIsSilentAfterItsLeaseAndAnEighth) {
  join(1);
  join(2);
  send(1, {enqueue(1, "a")});
  send(2, {enqueue(2, "a")});
  server->take(2);
  now += 8s;
  send(2, {});
  EXPECT_EQ(server->next_tick(), Instant{1s});  // the pool's
  pass(999ms);
  EXPECT_EQ(server->sessions(), 2U);
  pass(1ms);
  EXPECT_EQ(server->sessions(), 1U);
  EXPECT_EQ(server->counters().evictions, 1U);
  const ServerMessage granted = server->take(2);
  ASSERT_EQ(granted.ops.size(), 1U);
  EXPECT_EQ(granted.ops[0].kind, Out::kGranted);
  EXPECT_EQ(server->pool().granted(), 1);
  EXPECT_EQ(server->take(1).ops.back().kind, Out::kGoAway);
  EXPECT_FALSE(server->receive(1, {3, {}}, now));
}

TEST_F(Server, AReconnectedClientKeepsWhatItNames) {
  const std::uint64_t client = join(1).ops[0].client;
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  send(1, {enqueue(2, "b")});
  server->disconnect(1);
  server->connect(2, now);
  const ServerMessage again = send(2, {hello(client), replay(1, "a", a, 1), op(In::kReplayed)});
  ASSERT_EQ(again.ops.size(), 2U);
  EXPECT_EQ(again.ops[1].kind, Out::kKept);
  EXPECT_EQ(again.ops[1].handle, a.handle);
  EXPECT_EQ(server->pool().granted(), 1);
  EXPECT_EQ(server->sessions(), 1U);
}

TEST_F(Server, RecoversByReplayAndGrantsNothingUntilTheGraceEnds) {
  const std::uint64_t client = join(1).ops[0].client;
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  restart(2);
  join(2);
  const ServerMessage waits = send(2, {enqueue(5, "a"), enqueue(6, "b")});
  EXPECT_TRUE(waits.is_recovering);
  EXPECT_EQ(waits.ops[0].kind, Out::kQueued);
  EXPECT_EQ(waits.ops[1].kind, Out::kQueued);
  pass(5s);
  send(2, {});
  server->connect(1, now);
  numbers[1] = 0;
  const ServerMessage again = send(1, {hello(client), replay(1, "a", a, 1), op(In::kReplayed)});
  EXPECT_EQ(again.ops[1].kind, Out::kKept);
  EXPECT_EQ(server->pool().granted(), 1);
  EXPECT_EQ(server->pool().volume(), volume_max(100));
  pass(7s);
  EXPECT_FALSE(server->is_recovering());
  const ServerMessage granted = server->take(2);
  ASSERT_EQ(granted.ops.size(), 1U);  // "b"; "a" is held, and its holder asked
  EXPECT_EQ(granted.ops[0].cookie, 6U);
  EXPECT_EQ(server->take(1).ops.back().kind, Out::kAsk);
}

TEST_F(Server, AReplayAfterTheGraceIsLost) {
  const std::uint64_t client = join(1).ops[0].client;
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  restart(2);
  pass(12s);
  server->connect(1, now);
  numbers[1] = 0;
  const ServerMessage late = send(1, {hello(client), replay(1, "a", a, 1), op(In::kReplayed)});
  EXPECT_EQ(late.ops[1].kind, Out::kLost);
  EXPECT_EQ(server->counters().lost_replays, 1U);
  EXPECT_EQ(server->pool().granted(), 0);
}

TEST_F(Server, RefusesAReplayThatWasNeverGranted) {
  restart(2);
  server->connect(1, now);
  ServerOp invented;
  invented.fence = std::uint64_t{2} << kFenceCountBits | 1;  // of this server
  const ServerMessage answer =
      send(1, {hello(9), replay(1, "a", invented, 1),
               replay(2, std::string(10'240, 'n'), invented, 1), op(In::kReplayed)});
  EXPECT_EQ(answer.ops[1].kind, Out::kLost);
  EXPECT_EQ(answer.ops[2].kind, Out::kLost);
}

// ---- access ----

TEST_F(Server, ASessionIsNotTakenOverByItsNumber) {
  const std::uint64_t client = join(1).ops[0].client;
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  for (std::size_t bit = 0; bit < 128; ++bit) {
    ClientOp guess = hello(client);
    guess.secret[bit / 8] ^= std::byte{1} << bit % 8;
    const LockServer::Connection thief = 100 + bit;
    server->connect(thief, now);
    const ServerMessage answer = send(thief, {guess, replay(9, "a", a, 1), op(In::kReplayed)});
    ASSERT_EQ(answer.ops.size(), 2U);
    EXPECT_NE(answer.ops[0].client, client);
    EXPECT_FALSE(is_same(answer.ops[0].secret, open_secret(client, "")));
    EXPECT_EQ(answer.ops[1].kind, Out::kLost);
    send(thief, {cancel(a.handle)});
    send(thief, {op(In::kGoodbye)});
  }
  EXPECT_EQ(server->counters().wrong_secrets, 128U);
  EXPECT_EQ(server->counters().unknown_cancels, 128U);
  // The owner got no message, and still has its connection and its lock.
  EXPECT_TRUE(send(1, {}).ops.empty());
  EXPECT_TRUE(fine_);
  EXPECT_EQ(server->table().state(a.handle), LockTable::State::kGranted);
}

TEST_F(Server, ASessionBelongsToThePrincipalItWasOpenedBy) {
  server->connect(1, now, "CN=alice");
  const ServerOp welcome = send(1, {hello(), op(In::kReplayed)}).ops[0];
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  ClientOp again = hello(welcome.client);
  again.secret = welcome.secret;
  for (const char* const other : {"CN=mallory", "", "CN=alic"}) {
    server->connect(2, now, other);
    numbers[2] = 0;
    EXPECT_NE(send(2, {again, op(In::kReplayed)}).ops[0].client, welcome.client) << other;
    server->disconnect(2);
  }
  EXPECT_EQ(server->table().state(a.handle), LockTable::State::kGranted);
  server->connect(3, now, "CN=alice");
  const ServerMessage back = send(3, {again, replay(1, "a", a, 1), op(In::kReplayed)});
  EXPECT_EQ(back.ops[0].client, welcome.client);
  EXPECT_EQ(back.ops[1].kind, Out::kKept);
  EXPECT_EQ(server->take(1).ops.back().kind, Out::kGoAway);
}

// The secret stays valid with the next server; a number without it is not accepted.
TEST_F(Server, AfterARestartLocksAreTakenOverFromTheirClientsAlone) {
  const ServerOp welcome = join(1).ops[0];
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  restart(2);
  const auto claim = [&](LockServer::Connection connection, const ClientOp& as) {
    server->connect(connection, now);
    numbers[connection] = 0;
    return send(connection, {as, replay(9, "a", a, 1), op(In::kReplayed)}).ops[1].kind;
  };
  ClientOp thief = hello(welcome.client);
  thief.secret = {};
  EXPECT_EQ(claim(2, thief), Out::kLost);
  EXPECT_EQ(claim(3, hello()), Out::kLost);
  EXPECT_EQ(server->pool().granted(), 0);
  EXPECT_EQ(claim(1, hello(welcome.client)), Out::kKept);
  EXPECT_EQ(server->counters().wrong_secrets, 1U);
}

TEST_F(Server, AClientDoesNotTakeOverWhatIsOlderThanItself) {
  join(1);
  const ServerOp a = send(1, {enqueue(1, "a")}).ops[0];
  restart(2);
  const std::uint64_t young = join(2).ops[0].client;
  restart(3);
  server->connect(2, now);
  numbers[2] = 0;
  EXPECT_EQ(send(2, {hello(young), replay(9, "a", a, 1), op(In::kReplayed)}).ops[1].kind,
            Out::kLost);
}

TEST_F(Server, ANumberOfAServerThatIsYetToComeIsNone) {
  const std::uint64_t future = std::uint64_t{2} << 32 | 1;
  EXPECT_NE(join(1, future).ops[0].client, future);
}

TEST_F(Server, EnqueuesBeyondTheWallWait) {
  join(1);
  for (std::uint64_t i = 0; i < 125; ++i) {
    EXPECT_EQ(send(1, {enqueue(i, "n" + std::to_string(i))}).ops[0].kind, Out::kGranted);
  }
  const ServerMessage beyond =
      send(1, {enqueue(200, "x"), enqueue(201, "y", Mode::kExclusive, LockTable::OrWait::kTry)});
  EXPECT_EQ(beyond.ops[0].kind, Out::kQueued);
  EXPECT_EQ(beyond.ops[1].kind, Out::kRefused);
  EXPECT_EQ(server->pool().granted(), 125);
}

TEST_F(Server, ALimitLoweredBelowWhatIsGrantedStopsGrants) {
  join(1);
  for (std::uint64_t i = 0; i < 50; ++i) send(1, {enqueue(i, "n" + std::to_string(i))});
  EXPECT_TRUE(server->set_limit(10));
  EXPECT_EQ(server->pool().granted(), 50);
  EXPECT_EQ(send(1, {enqueue(99, "x")}).ops[0].kind, Out::kQueued);
  EXPECT_FALSE(server->set_limit(0));
  EXPECT_EQ(server->pool().limit(), 10);
}

// At once, not with the next period, which may be an hour away.
TEST_F(Server, ALimitThatIsRaisedLetsThoseInWhoWaitForRoom) {
  options.pool.limit = 4;
  options.pool.period = 1h;
  server = std::make_unique<LockServer>(options, 1, LockServer::Start::kFresh, now);
  join(1);
  for (std::uint64_t i = 0; i < 7; ++i) send(1, {enqueue(i, "n" + std::to_string(i))});
  EXPECT_EQ(server->table().parked(), 2U);
  server->dirty().clear();
  EXPECT_TRUE(server->set_limit(100));
  EXPECT_EQ(server->table().parked(), 0U);
  EXPECT_EQ(server->pool().granted(), 7);
  ASSERT_EQ(server->dirty().size(), 1U);
  EXPECT_EQ(server->take(1).ops.size(), 2U);
}

// Cached locks of other clients must make room, however small the limit is.
TEST_F(Server, NobodyWaitsForEverForRoomBehindCachesOfASmallLimit) {
  for (const std::int64_t limit : {1, 2, 3, 4, 7, 8}) {
    options.pool.limit = limit;
    server = std::make_unique<LockServer>(options, 1, LockServer::Start::kFresh, now);
    join(1);
    for (std::uint64_t i = 0; server->table().parked() == 0; ++i) {
      send(1, {enqueue(i, "n" + std::to_string(i))});
    }
    EXPECT_LE(server->pool().granted(), limit + std::max<std::int64_t>(1, limit / 4));
    for (int i = 0; i < 60; ++i) {
      pass(1s);
      send(1, {});
    }
    EXPECT_LT(server->pool().volume(), 60U) << limit << ": one unused for a minute would go";
  }
}

TEST_F(Server, BadNamesAndFloodsAreRefusedAndCounted) {
  options.waiting_max = 3;
  server = std::make_unique<LockServer>(options, 1, LockServer::Start::kFresh, now);
  join(1);
  const ServerMessage names = send(1, {enqueue(1, ""), enqueue(2, std::string(10'240, 'n'))});
  EXPECT_EQ(names.ops[0].why, Refusal::kBadName);
  EXPECT_EQ(names.ops[1].why, Refusal::kBadName);
  EXPECT_TRUE(fine_);
  std::vector<ClientOp> flood;
  for (std::uint64_t i = 0; i < 10; ++i) flood.push_back(enqueue(i, "same"));
  const ServerMessage answer = send(1, flood);
  EXPECT_EQ(answer.ops[4].kind, Out::kQueued);  // the third; the holder was asked in between
  EXPECT_EQ(answer.ops[5].why, Refusal::kTooMany);
  EXPECT_EQ(server->counters().too_many, 6U);
}

TEST_F(Server, CancellingTwiceOrWhatIsOthersIsCounted) {
  join(1);
  join(2);
  const ServerOp held = send(1, {enqueue(1, "a")}).ops[0];
  send(2, {cancel(held.handle), cancel(0), cancel(UINT64_MAX)});
  EXPECT_TRUE(fine_);
  send(1, {cancel(held.handle), cancel(held.handle)});
  EXPECT_EQ(server->counters().unknown_cancels, 4U);
  EXPECT_EQ(server->pool().granted(), 0);
}

TEST_F(Server, WhoBreaksTheRulesIsSentAway) {
  server->connect(1, now);
  EXPECT_EQ(send(1, {enqueue(1, "a")}).ops.back().kind, Out::kGoAway);
  EXPECT_FALSE(fine_);
  join(2);
  EXPECT_EQ(send(2, {hello()}).ops.back().kind, Out::kGoAway);  // twice
  join(3);
  EXPECT_FALSE(server->receive(3, {17, {}}, now));  // out of order
  join(4);
  send(4, {op(In::kReplay)});  // not while replaying
  EXPECT_FALSE(fine_);
  EXPECT_FALSE(server->receive(99, {1, {}}, now));  // no such connection
  EXPECT_EQ(server->counters().broken_rules, 4U);
}

TEST_F(Server, SessionsAreBounded) {
  options.sessions_max = 2;
  server = std::make_unique<LockServer>(options, 1, LockServer::Start::kFresh, now);
  join(1);
  join(2);
  join(3);
  EXPECT_FALSE(fine_);
  EXPECT_EQ(server->sessions(), 2U);
}

TEST(ServerOptions, AGraceThatIsNotLongerThanTheLeaseIsRefused) {
  EXPECT_TRUE(check(ServerOptions{}));
  EXPECT_FALSE(check(ServerOptions{.lease = 30s, .grace = 30s}));
  EXPECT_FALSE(check(ServerOptions{.lease = 30s, .grace = 0s}));
  EXPECT_FALSE(check(ServerOptions{.pool = {.limit = 0}}));
  EXPECT_FALSE(check(ServerOptions{.lease = 0s}));
}

// Whatever three clients send, in any order: counts stay correct and no locks conflict.
RC_GTEST_PROP(ServerProperty, GarbageHarmsNobodyElse, ()) {
  ServerOptions options{.pool = {.limit = 5}, .lease = 8s, .grace = 12s};
  LockServer server(options, 1, LockServer::Start::kFresh, Instant{});
  Instant now{};
  std::uint64_t connection = 0;
  for (int step = 0; step < 80; ++step) {
    if (connection == 0 || *rc::gen::inRange(0, 10) == 0) server.connect(++connection, now);
    ClientMessage message;
    message.number = *rc::gen::inRange<std::uint64_t>(1, 6);
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      ClientOp one = op(*rc::gen::element(In::kHello, In::kReplay, In::kReplayed, In::kEnqueue,
                                          In::kEnqueue, In::kCancel, In::kGoodbye));
      one.client = *rc::gen::inRange<std::uint64_t>(0, 3);
      one.secret = *rc::gen::element(SessionSecret{}, open_secret(one.client, ""));
      one.cookie = *rc::gen::arbitrary<std::uint64_t>();
      one.handle = *rc::gen::element<std::uint64_t>(0, 1, std::uint64_t{1} << 32, UINT64_MAX);
      one.fence = *rc::gen::arbitrary<std::uint64_t>();
      one.incarnation = *rc::gen::inRange<std::uint64_t>(0, 3);
      one.name = *rc::gen::element<std::string>("a", "b", "", std::string(300, 'x'));
      one.mode = *rc::gen::element(Mode::kShared, Mode::kExclusive);
      message.ops.push_back(one);
    }
    server.receive(*rc::gen::inRange<std::uint64_t>(1, connection + 2), message, now);
    if (*rc::gen::inRange(0, 5) == 0) server.tick(now += 3s);
    RC_ASSERT(server.table().is_valid());
    RC_ASSERT(server.pool().granted() == static_cast<std::int64_t>(server.table().granted()));
    RC_ASSERT(server.pool().granted() <= 6);
    for (const LockServer::Connection dirty : server.dirty()) server.take(dirty);
    server.dirty().clear();
  }
}

// ---- an administrator takes a lock away ----

TEST_F(Server, ARevokedLockIsLostWhenItsHolderReportsIt) {
  const std::uint64_t holder = join(1).ops[0].client;
  join(2);
  const ServerOp granted = send(1, {enqueue(7, "a")}).ops[0];
  const ServerOp kept = send(1, {enqueue(8, "b")}).ops[0];
  send(2, {enqueue(9, "a")});
  server->take(1);
  EXPECT_EQ(server->revoke("a"), 1U);
  ASSERT_EQ(server->take(1).ops.back().kind, Out::kGoAway);
  EXPECT_TRUE(server->take(2).ops.empty()) << "its holder does not know yet";
  server->connect(3, now);
  numbers[3] = 0;
  const ServerMessage back = send(
      3, {hello(holder), replay(7, "a", granted, 1), replay(8, "b", kept, 1), op(In::kReplayed)});
  ASSERT_EQ(back.ops.size(), 3U);
  EXPECT_EQ(back.ops[1].kind, Out::kLost);
  EXPECT_EQ(back.ops[2].kind, Out::kKept);
  const ServerMessage next = server->take(2);
  ASSERT_EQ(next.ops.size(), 1U);
  EXPECT_EQ(next.ops[0].kind, Out::kGranted);
  EXPECT_GT(next.ops[0].fence, granted.fence);
  EXPECT_EQ(server->counters().revoked, 1U);
}

TEST_F(Server, ARevokedLockOfAClientThatDoesNotReportEndsWithItsLease) {
  join(1);
  join(2);
  send(1, {enqueue(7, "a")});
  pass(2s);
  send(2, {enqueue(9, "a")});
  EXPECT_EQ(server->revoke("a"), 1U);
  pass(6s);
  send(2, {});
  EXPECT_EQ(server->table().waiting(), 1U);
  pass(1s);
  EXPECT_EQ(server->take(2).ops.at(0).kind, Out::kGranted);
}

TEST_F(Server, RevokesFromOneClientAndNothingThatIsNotHeld) {
  const std::uint64_t one = join(1).ops[0].client;
  join(2);
  send(1, {enqueue(7, "a", Mode::kShared)});
  send(2, {enqueue(8, "a", Mode::kShared)});
  EXPECT_EQ(server->revoke("b"), 0U);
  EXPECT_EQ(server->revoke("a", one + 77), 0U);
  EXPECT_EQ(server->revoke("a", one), 1U);
  send(2, {});
  EXPECT_TRUE(fine_) << "the other holder is not disturbed";
}

}  // namespace
}  // namespace weir::lock
