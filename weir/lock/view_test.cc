// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/view.h"

#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/lock/view.h"

namespace weir::lock {
namespace {

using namespace std::chrono_literals;
using In = ClientOp::Kind;

ClientOp op(In kind, std::string name = {}, Mode mode = Mode::kExclusive) {
  ClientOp made;
  made.kind = kind;
  made.name = std::move(name);
  made.mode = mode;
  made.features = kFeatureVolume;
  return made;
}

class View : public testing::Test {
 protected:
  ServerMessage send(LockServer::Connection connection, std::vector<ClientOp> ops) {
    server.receive(connection, {++numbers_[connection], std::move(ops)}, now);
    return server.take(connection);
  }
  void join(LockServer::Connection connection) {
    server.connect(connection, now);
    send(connection, {op(In::kHello), op(In::kReplayed)});
  }
  // Acquires this many separate locks.
  void hold(LockServer::Connection connection, int count) {
    std::vector<ClientOp> ops;
    ops.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      ops.push_back(op(In::kEnqueue, fmt::format("c{}/{}", connection, i)));
      ops.back().cookie = static_cast<std::uint64_t>(i) + 1;
    }
    send(connection, std::move(ops));
  }
  NamespaceView seen() { return look(server, "locks", now); }

  Instant now{};
  LockServer server{ServerOptions{.pool = {.limit = 1000}, .lease = 8s, .grace = 12s},
                    1,
                    LockServer::Start::kFresh,
                    {}};

 private:
  std::map<LockServer::Connection, std::uint64_t> numbers_;
};

TEST_F(View, ShowsThePoolAsItIs) {
  join(1);
  hold(1, 30);
  now += 2s;
  server.tick(now);
  const NamespaceView view = seen();
  EXPECT_EQ(view.name, "locks");
  EXPECT_EQ(view.limit, 1000);
  EXPECT_EQ(view.granted, 30);
  EXPECT_EQ(view.grant_rate, 15);
  EXPECT_EQ(view.cancel_rate, 0);
  EXPECT_EQ(view.grant_speed, 15);
  EXPECT_EQ(view.grants, 30U);
  EXPECT_EQ(view.resources, 30U);
  EXPECT_EQ(view.server_lock_volume, volume_max(1000));
  EXPECT_EQ(view.recalc_period, 1s);
  EXPECT_TRUE(view.state.starts_with("LDLM pool state (locks):\n  SLV: 36000000\n")) << view.state;
  EXPECT_FALSE(view.is_recovering);
}

TEST_F(View, ShowsThoseWithMostLocksAndTheSumOfTheOthers) {
  for (LockServer::Connection connection = 1; connection <= 3; ++connection) join(connection);
  hold(1, 4);
  hold(2, 60);
  hold(3, 30);
  const NamespaceView view = look(server, "locks", now + 1s, 2);
  ASSERT_EQ(view.top.size(), 2U);
  EXPECT_EQ(view.top[0].locks, 60U);
  EXPECT_EQ(view.top[1].locks, 30U);
  EXPECT_EQ(view.top[0].silent, 1s);
  EXPECT_TRUE(view.top[0].is_connected);
  EXPECT_TRUE(view.top[0].knows_volume);
  EXPECT_EQ(view.others.clients, 1U);
  EXPECT_EQ(view.others.locks, 4U);
  EXPECT_EQ(view.clients(), 3U);
}

TEST_F(View, ListsHoldersAndThoseWhoWait) {
  join(1);
  join(2);
  send(1, {op(In::kEnqueue, "a")});
  send(1, {op(In::kEnqueue, "b", Mode::kShared)});
  send(2, {op(In::kEnqueue, "a")});
  const LockList all = list_locks(server, {});
  EXPECT_EQ(all.next, 0U);
  ASSERT_EQ(all.locks.size(), 3U);
  EXPECT_EQ(all.locks[0].name, "a");
  EXPECT_EQ(all.locks[0].state, LockTable::State::kGranted);
  EXPECT_TRUE(all.locks[0].is_asked);
  EXPECT_NE(all.locks[0].fence, 0U);
  EXPECT_EQ(all.locks[1].mode, Mode::kShared);
  EXPECT_EQ(all.locks[2].state, LockTable::State::kWaiting);
  EXPECT_EQ(all.locks[2].fence, 0U);
  EXPECT_NE(all.locks[2].client, all.locks[0].client);
  EXPECT_EQ(seen().top[1].waiting, 1U);
  const LockList some = list_locks(server, {.filter = "b"});
  ASSERT_EQ(some.locks.size(), 1U);
  EXPECT_EQ(some.locks[0].name, "b");
}

TEST_F(View, ALongListComesInPartsThatTogetherAreAll) {
  join(1);
  hold(1, 500);
  std::map<std::string, int> met;
  ListOptions options{.max = 7};
  int parts = 0;
  do {
    const LockList list = list_locks(server, options);
    EXPECT_LE(list.locks.size(), 7U);
    for (const LockView& lock : list.locks) ++met[lock.name];
    options.from = list.next;
    ++parts;
  } while (options.from != 0);
  EXPECT_EQ(met.size(), 500U);
  EXPECT_GE(parts, 500 / 7);
  for (const auto& [name, times] : met) EXPECT_EQ(times, 1) << name;
}

TEST_F(View, WhatIsTurnedIsInForce) {
  EXPECT_TRUE(turn(server, Tunable::kLimit, 500));
  EXPECT_TRUE(turn(server, Tunable::kRecalcPeriod, 2'000'000'000));
  EXPECT_TRUE(turn(server, Tunable::kLruSize, 7));
  EXPECT_TRUE(turn(server, Tunable::kLruMaxAge, 3'000'000'000));
  const NamespaceView view = seen();
  EXPECT_EQ(view.limit, 500);
  EXPECT_EQ(view.recalc_period, 2s);
  EXPECT_EQ(view.lru_size, 7U);
  EXPECT_EQ(view.lru_max_age, 3s);
  EXPECT_EQ(server.pool().next_recalc(), Instant{} + 2s);
  join(1);
  const ServerMessage message = send(1, {});
  EXPECT_EQ(message.lru_size, 7U);
  EXPECT_EQ(message.lru_max_age, 3s);
}

TEST_F(View, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(turn(server, Tunable::kLimit, 0).error().code, std::errc::invalid_argument);
  EXPECT_EQ(turn(server, Tunable::kLimit, -5).error().code, std::errc::invalid_argument);
  EXPECT_FALSE(turn(server, Tunable::kRecalcPeriod, 0));
  EXPECT_FALSE(turn(server, Tunable::kLruSize, -1));
  EXPECT_FALSE(turn(server, Tunable::kLruMaxAge, -1));
  EXPECT_EQ(seen().limit, 1000);
}

}  // namespace
}  // namespace weir::lock
