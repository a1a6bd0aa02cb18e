// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_wire.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/cluster/lock.pb.h"

namespace weir::cluster {
namespace {

namespace wire = lock::v1;
using In = lock::ClientOp::Kind;

lock::ClientOp op(In kind, std::string name = "") {
  lock::ClientOp made;
  made.kind = kind;
  made.mode = lock::Mode::kExclusive;
  made.cookie = 3;
  made.handle = std::uint64_t{5} << 40;
  made.fence = std::uint64_t{1} << 63;
  made.incarnation = 9;
  made.name = std::move(name);
  return made;
}

TEST(LockWire, WhatAClientSaysArrives) {
  lock::ClientMessage message{.number = 8, .volume = 1'234, .factor_percent = 150};
  lock::ClientOp hello = op(In::kHello);
  hello.client = 77;
  hello.secret = lock::open_secret(77, "somebody");
  hello.features = 1;
  lock::ClientOp attempt = op(In::kEnqueue, std::string("b\0c", 3));
  attempt.or_wait = lock::LockTable::OrWait::kTry;
  message.ops = {hello,   op(In::kReplay, "a"), op(In::kReplayed), op(In::kCancel),
                 attempt, op(In::kGoodbye)};
  wire::ClientBatch batch;
  to_wire(message, "ior.1", batch);
  wire::ClientBatch received;
  ASSERT_TRUE(received.ParseFromString(batch.SerializeAsString()));
  EXPECT_EQ(job_in(received), "ior.1");
  const auto read = from_wire(received);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, 8U);
  ASSERT_EQ(read->ops.size(), 6U);
  EXPECT_EQ(read->volume, 1'234U);
  EXPECT_EQ(read->factor_percent, 150U);
  EXPECT_EQ(read->ops[0].client, 77U);
  EXPECT_EQ(read->ops[0].secret, hello.secret);
  EXPECT_EQ(read->ops[0].features, 1U);
  EXPECT_EQ(read->ops[1].kind, In::kReplay);
  EXPECT_EQ(read->ops[1].name, "a");
  EXPECT_EQ(read->ops[1].fence, std::uint64_t{1} << 63);
  EXPECT_EQ(read->ops[1].incarnation, 9U);
  EXPECT_EQ(read->ops[2].kind, In::kReplayed);
  EXPECT_EQ(read->ops[3].handle, std::uint64_t{5} << 40);
  EXPECT_EQ(read->ops[4].name.size(), 3U);
  EXPECT_EQ(read->ops[4].mode, lock::Mode::kExclusive);
  EXPECT_EQ(read->ops[4].or_wait, lock::LockTable::OrWait::kTry);
  EXPECT_EQ(read->ops[5].kind, In::kGoodbye);
}

TEST(LockWire, ModesConversionsAndWatchesArrive) {
  lock::ClientMessage message{.number = 1};
  for (const lock::Mode mode : lock::kAllModes) {
    lock::ClientOp convert = op(In::kConvert);
    convert.mode = mode;
    convert.or_wait = lock::LockTable::OrWait::kTry;
    message.ops.push_back(convert);
  }
  message.ops.push_back(op(In::kWatch, "w"));
  message.ops.push_back(op(In::kUnwatch));
  wire::ClientBatch batch;
  to_wire(message, "", batch);
  const auto read = from_wire(batch);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->ops.size(), 8U);
  for (std::size_t i = 0; i < lock::kModes; ++i) {
    EXPECT_EQ(read->ops[i].kind, In::kConvert);
    EXPECT_EQ(read->ops[i].mode, lock::kAllModes[i]);
    EXPECT_EQ(read->ops[i].or_wait, lock::LockTable::OrWait::kTry);
    EXPECT_EQ(read->ops[i].handle, std::uint64_t{5} << 40);
  }
  EXPECT_EQ(read->ops[6].kind, In::kWatch);
  EXPECT_EQ(read->ops[6].name, "w");
  EXPECT_EQ(read->ops[7].kind, In::kUnwatch);
  EXPECT_EQ(read->ops[7].cookie, 3U);
  batch.mutable_converts(2)->set_mode(static_cast<wire::Mode>(7));
  EXPECT_FALSE(from_wire(batch)) << "no such mode";
}

TEST(LockWire, CyclesAndHoldersArrive) {
  lock::ServerMessage message;
  lock::ServerOp refused;
  refused.kind = lock::ServerOp::Kind::kNotConverted;
  refused.why = lock::Refusal::kDeadlock;
  lock::ServerOp converted;
  converted.kind = lock::ServerOp::Kind::kConverted;
  converted.mode = lock::Mode::kProtectedWrite;
  message.ops = {refused, converted};
  message.cycles = {{.cookie = 4,
                     .steps = {{1, lock::Mode::kShared, lock::Mode::kExclusive},
                               {2, lock::Mode::kNull, lock::Mode::kConcurrentWrite}}}};
  message.holders = {{.cookie = 5, .count = 70, .first = {{6, lock::Mode::kShared, 7}}}};
  wire::ServerBatch batch;
  to_wire(message, batch);
  const auto read = from_wire(batch);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->ops[0].why, lock::Refusal::kDeadlock);
  EXPECT_EQ(read->ops[1].mode, lock::Mode::kProtectedWrite);
  ASSERT_EQ(read->cycles.size(), 1U);
  EXPECT_EQ(read->cycles[0].cookie, 4U);
  EXPECT_EQ(read->cycles[0].steps, message.cycles[0].steps);
  ASSERT_EQ(read->holders.size(), 1U);
  EXPECT_EQ(read->holders[0].count, 70U);
  EXPECT_EQ(read->holders[0].first, message.holders[0].first);
  while (batch.cycles(0).steps_size() <= 64) batch.mutable_cycles(0)->add_steps();
  EXPECT_FALSE(from_wire(batch)) << "more than a server reports";
}

TEST(LockWire, WhatTheServerSaysArrivesInItsOrder) {
  lock::ServerMessage message;
  message.confirms = 4;
  message.volume = 1'000'000;
  message.limit = 100;
  message.is_recovering = true;
  message.lru_size = 7;
  message.lru_max_age = std::chrono::seconds{3};
  lock::ServerOp welcome;
  welcome.client = 5;
  welcome.secret = lock::open_secret(5, "");
  welcome.incarnation = 6;
  welcome.features = 1;
  welcome.lease = std::chrono::seconds{30};
  message.ops.push_back(welcome);
  using Out = lock::ServerOp::Kind;
  for (const Out kind : {Out::kGranted, Out::kQueued, Out::kRefused, Out::kAsk, Out::kKept,
                         Out::kLost, Out::kGoAway}) {
    lock::ServerOp& made = message.ops.emplace_back();
    made.kind = kind;
    made.cookie = 11;
    made.handle = 12;
    made.fence = 13;
    made.why = lock::Refusal::kTooMany;
  }
  wire::ServerBatch batch;
  to_wire(message, batch);
  const auto read = from_wire(batch);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->confirms, 4U);
  EXPECT_EQ(read->ops[0].secret, welcome.secret);
  EXPECT_EQ(read->volume, 1'000'000U);
  EXPECT_EQ(read->limit, 100);
  EXPECT_TRUE(read->is_recovering);
  EXPECT_EQ(read->lru_size, 7U);
  EXPECT_EQ(read->lru_max_age, std::chrono::seconds{3});
  ASSERT_EQ(read->ops.size(), message.ops.size());
  EXPECT_EQ(read->ops[0].lease, std::chrono::seconds{30});
  for (std::size_t i = 1; i < read->ops.size(); ++i) {
    EXPECT_EQ(read->ops[i].kind, message.ops[i].kind);
    EXPECT_EQ(read->ops[i].fence, 13U);
    EXPECT_EQ(read->ops[i].why, lock::Refusal::kTooMany);
  }
}

TEST(LockWire, GarbageOfClientsIsRefused) {
  wire::ClientBatch mode;
  mode.add_enqueues()->set_mode(static_cast<wire::Mode>(7));
  EXPECT_FALSE(from_wire(mode));
  wire::ClientBatch replay;
  replay.add_replays()->set_mode(static_cast<wire::Mode>(-1));
  EXPECT_FALSE(from_wire(replay));
  wire::ClientBatch many;
  for (std::size_t i = 0; i <= kOpsMax; ++i) many.add_cancels(i);
  EXPECT_FALSE(from_wire(many));
  many.mutable_cancels()->RemoveLast();
  EXPECT_TRUE(from_wire(many));
}

TEST(LockWire, GarbageOfServersIsRefused) {
  wire::ServerBatch none;
  none.add_ops();
  EXPECT_FALSE(from_wire(none));
  wire::ServerBatch lease;
  lease.mutable_welcome()->set_lease_ns(-1);
  EXPECT_FALSE(from_wire(lease));
  wire::ServerBatch limit;
  limit.set_limit(lock::kLimitMax + 1);
  EXPECT_FALSE(from_wire(limit));
  wire::ServerBatch volume;
  volume.set_volume(UINT64_MAX);
  EXPECT_FALSE(from_wire(volume));
  wire::ServerBatch why;
  why.add_ops()->set_kind(wire::ServerOp::REFUSED);
  EXPECT_TRUE(from_wire(why));
  why.mutable_ops(0)->set_why(static_cast<wire::ServerOp::Refusal>(9));
  EXPECT_FALSE(from_wire(why));
}

TEST(LockWire, CarriesTheFiguresOfAService) {
  lock::LockStats stats;
  stats.view.name = "locks";
  stats.view.limit = 1000;
  stats.view.granted = 30;
  stats.view.others.clients = 3;
  stats.view.counters.evictions = 2;
  stats.incarnation = 7;
  stats.lease = std::chrono::seconds{8};
  stats.gated = 5;
  wire::StatsReply reply;
  to_wire(stats, reply);
  const lock::LockStats back = from_wire(reply);
  EXPECT_EQ(back.view.name, "locks");
  EXPECT_EQ(back.view.limit, 1000);
  EXPECT_EQ(back.view.granted, 30);
  EXPECT_EQ(back.view.clients(), 3U);
  EXPECT_EQ(back.view.counters.evictions, 2U);
  EXPECT_EQ(back.incarnation, 7U);
  EXPECT_EQ(back.lease, std::chrono::seconds{8});
  EXPECT_EQ(back.gated, 5U);
}

TEST(LockWire, ASecretIsWholeOrNotThere) {
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 1000U}) {
    const bool is_fine = size == 0 || size == 16;
    wire::ClientBatch said;
    said.mutable_hello()->set_secret(std::string(size, 's'));
    EXPECT_EQ(from_wire(said).has_value(), is_fine) << size;
    wire::ServerBatch told;
    told.mutable_welcome()->set_secret(std::string(size, 's'));
    EXPECT_EQ(from_wire(std::as_const(told)).has_value(), is_fine) << size;
  }
  wire::ClientBatch older;
  older.mutable_hello()->set_client(7);
  EXPECT_EQ(from_wire(older)->ops[0].secret, lock::SessionSecret{});
}

}  // namespace
}  // namespace weir::cluster
