// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_gate.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace weir::cluster {
namespace {

using namespace std::chrono_literals;
using In = lock::ClientOp::Kind;
using Out = lock::ServerOp::Kind;

lock::ClientOp op(In kind) {
  lock::ClientOp made;
  made.kind = kind;
  return made;
}

lock::ClientOp enqueue(std::uint64_t cookie, std::string name) {
  lock::ClientOp made = op(In::kEnqueue);
  made.cookie = cookie;
  made.name = std::move(name);
  made.mode = lock::Mode::kExclusive;
  return made;
}

lock::ClientOp cancel(std::uint64_t handle) {
  lock::ClientOp made = op(In::kCancel);
  made.handle = handle;
  return made;
}

class LockGateTest : public testing::Test {
 protected:
  void open(LockGateOptions options = {}) {
    options.secret_of = lock::open_secret;
    auto made = LockGate::create(options, 1, lock::LockServer::Start::kFresh, now);
    ASSERT_TRUE(made) << made.error().message();
    gate = std::move(*made);
  }
  void join(LockGate::Connection connection, const char* job = "a") {
    Attributes who;
    who.job = JobId(job);
    gate->connect(connection, who, "", now);
    say(connection, {op(In::kHello), op(In::kReplayed)});
  }
  bool say(LockGate::Connection connection, std::vector<lock::ClientOp> ops) {
    const bool is_fine = gate->receive(connection, {++numbers[connection], std::move(ops)}, now);
    gate->turn(now);
    return is_fine;
  }
  std::vector<lock::ServerOp> hear(LockGate::Connection connection, Out kind) {
    gate->dirty().clear();
    std::vector<lock::ServerOp> ops = gate->take(connection).ops;
    std::erase_if(ops, [&](const lock::ServerOp& each) { return each.kind != kind; });
    return ops;
  }

  Instant now{};
  std::unique_ptr<LockGate> gate;
  std::map<LockGate::Connection, std::uint64_t> numbers;
};

TEST_F(LockGateTest, GrantsAndTakesBack) {
  open();
  join(1);
  say(1, {enqueue(5, "x")});
  const auto granted = hear(1, Out::kGranted);
  ASSERT_EQ(granted.size(), 1U);
  EXPECT_EQ(granted[0].cookie, 5U);
  say(1, {cancel(granted[0].handle)});
  EXPECT_EQ(gate->server().table().granted(), 0U);
}

TEST_F(LockGateTest, AnEnqueueThatWaitsForALockKeepsNoSlot) {
  open();
  join(1);
  for (std::uint64_t i = 0; i < 100; ++i) say(1, {enqueue(i, "same")});
  say(1, {enqueue(1000, "other")});
  const auto granted = hear(1, Out::kGranted);
  ASSERT_EQ(granted.size(), 2U);
  EXPECT_EQ(granted[1].cookie, 1000U);
  EXPECT_EQ(gate->gated(), 0U);
}

LockGateOptions limited() {
  LockGateOptions options;
  options.secret_of = lock::open_secret;
  options.policy = "tbf jobid";
  options.rules = {parse_rule("start scan jobid={scan} rate=10 burst=1").value()};
  return options;
}

TEST_F(LockGateTest, ARuleLimitsLocksHoweverTheyAreBatched) {
  open(limited());
  join(1, "scan");
  join(2, "other");
  std::vector<lock::ClientOp> many;
  for (std::uint64_t i = 0; i < 50; ++i) many.push_back(enqueue(i, "n" + std::to_string(i)));
  say(1, many);
  say(2, {enqueue(7, "mine")});
  EXPECT_EQ(hear(2, Out::kGranted).size(), 1U);
  std::size_t granted = hear(1, Out::kGranted).size();
  EXPECT_LE(granted, 3U);
  for (int i = 0; i < 100; ++i) {
    now += 10ms;
    gate->turn(now);
  }
  granted += hear(1, Out::kGranted).size();
  EXPECT_GE(granted, 10U);
  EXPECT_LE(granted, 13U);
}

TEST_F(LockGateTest, ALimitDoesNotCostALease) {
  LockGateOptions options = limited();
  options.server.lease = 1s;
  open(options);
  join(1, "scan");
  std::vector<lock::ClientOp> many;
  for (std::uint64_t i = 0; i < 50; ++i) many.push_back(enqueue(i, "n" + std::to_string(i)));
  say(1, many);
  for (int i = 0; i < 20; ++i) {
    now += 250ms;
    EXPECT_TRUE(say(1, {}));
  }
  EXPECT_EQ(gate->server().counters().evictions, 0U);
  EXPECT_GT(gate->server().table().granted(), 10U);
}

TEST_F(LockGateTest, CancelsGoBeforeEnqueuesOfTheSameMessage) {
  open();
  join(1);
  say(1, {enqueue(1, "x")});
  const auto first = hear(1, Out::kGranted);
  ASSERT_EQ(first.size(), 1U);
  say(1, {enqueue(2, "x"), cancel(first[0].handle)});
  const auto second = hear(1, Out::kGranted);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].cookie, 2U);
}

TEST_F(LockGateTest, AFloodIsRefusedAndTheOthersAreServed) {
  LockGateOptions options = limited();
  options.server.waiting_max = 5;
  open(options);
  join(1, "scan");
  join(2, "other");
  std::vector<lock::ClientOp> many;
  for (std::uint64_t i = 0; i < 50; ++i) many.push_back(enqueue(i, "n" + std::to_string(i)));
  say(1, many);
  EXPECT_GE(hear(1, Out::kRefused).size(), 44U);
  EXPECT_LE(gate->gated(), 5U);
  say(2, {enqueue(7, "mine")});
  EXPECT_EQ(hear(2, Out::kGranted).size(), 1U);
}

TEST_F(LockGateTest, WhatAClientAskedForGoesWithIt) {
  open(limited());
  join(1, "scan");
  std::vector<lock::ClientOp> many;
  for (std::uint64_t i = 0; i < 50; ++i) many.push_back(enqueue(i, "n" + std::to_string(i)));
  say(1, many);
  EXPECT_GT(gate->gated(), 0U);
  gate->disconnect(1, now);
  EXPECT_EQ(gate->gated(), 0U);
}

TEST_F(LockGateTest, ARuleThatIsNoneIsRefused) {
  LockGateOptions options = limited();
  options.rules = {parse_rule("start scan uid={5} rate=10").value()};
  EXPECT_FALSE(LockGate::create(options, 1, lock::LockServer::Start::kFresh, now));
}

}  // namespace
}  // namespace weir::cluster
