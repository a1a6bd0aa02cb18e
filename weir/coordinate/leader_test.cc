// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/leader.h"

#include <algorithm>
#include <cerrno>

#include <gtest/gtest.h>

#include "weir/coordinate/vectors.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using State = EpochLeader::State;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// A leader and the last answer to each member.
struct Round {
  explicit Round(EpochLeader::Options options = {.term = 5, .combine = add_vectors})
      : leader(std::move(options)) {}

  void ready(MemberId from, std::int64_t epoch, std::int64_t now_ms, EpochVector data = {1},
             std::int64_t timeout_ms = 100) {
    leader.receive(from,
                   Ready{.epoch = epoch,
                         .serial = ++serials[from],
                         .timeout = milliseconds{timeout_ms},
                         .order = native_order(),
                         .data = pack_vector(data),
                         .claim = {}},
                   at(now_ms));
    collect();
  }
  void taken(MemberId from, std::int64_t now_ms) {
    leader.receive(from, Taken{leader.epoch(), serials[from]}, at(now_ms));
  }
  void tick(std::int64_t now_ms) {
    leader.tick(at(now_ms));
    collect();
  }
  void collect() {
    for (auto& out : leader.take_outgoing()) {
      ++sent;
      answers[out.to] = out.message;
    }
  }
  // The epoch or error that was last sent to it; 0 if none was.
  std::int64_t told(MemberId member) const {
    const auto found = answers.find(member);
    if (found == answers.end()) return 0;
    if (const auto* const start = std::get_if<Start>(&found->second)) return start->epoch;
    return std::get<Refuse>(found->second).error;
  }
  EpochVector data(MemberId member) const {
    return unpack_vector(std::get<Start>(answers.at(member)).data);
  }

  EpochLeader leader;
  std::map<MemberId, std::uint64_t> serials;
  std::map<MemberId, EpochMessage> answers;
  int sent = 0;
};

TEST(EpochLeader, WalksThroughItsThreeStates) {
  Round round;
  EXPECT_EQ(round.leader.state(), State::kIdle);
  round.ready(1, kFirstEpoch, 0);
  EXPECT_EQ(round.told(1), epoch_number(5, 1));
  EXPECT_EQ(round.leader.state(), State::kWaiting);
  round.ready(2, kFirstEpoch, 1);
  EXPECT_EQ(round.leader.state(), State::kClosing);
  EXPECT_EQ(round.told(2), 0);
  round.ready(1, epoch_number(5, 1), 2);
  EXPECT_EQ(round.leader.state(), State::kWaiting);
  EXPECT_EQ(round.told(1), epoch_number(5, 2));
  EXPECT_EQ(round.told(2), epoch_number(5, 2));
  round.leader.receive(1, Leave{epoch_number(5, 2), 9}, at(3));
  EXPECT_EQ(round.leader.state(), State::kWaiting);
  round.leader.receive(2, Leave{epoch_number(5, 2), 9}, at(3));
  EXPECT_EQ(round.leader.state(), State::kIdle);
}

TEST(EpochLeader, GivesAllTheSameSumInTheShortestLength) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  round.ready(2, kFirstEpoch, 1, {1, 10, 100});
  round.ready(3, kFirstEpoch, 1, {2, 20});
  round.ready(1, epoch_number(5, 1), 2, {4, 40, 400, 4000});
  EXPECT_EQ(round.data(1), (EpochVector{7, 70}));
  EXPECT_EQ(round.data(2), round.data(1));
  EXPECT_EQ(round.data(3), round.data(1));
}

TEST(EpochLeader, EvictsWhoIsSlowerThanTheTimeoutFromTheFirstSignal) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  round.ready(2, kFirstEpoch, 0);
  round.ready(1, epoch_number(5, 1), 0);
  round.taken(1, 1);
  round.taken(2, 1);
  round.ready(1, epoch_number(5, 2), 1000);
  EXPECT_LE(round.leader.next_wake(), at(1100));
  round.tick(1099);
  EXPECT_EQ(round.told(1), epoch_number(5, 2));
  round.tick(1100);
  EXPECT_EQ(round.told(1), epoch_number(5, 3));
  EXPECT_EQ(round.leader.counters().evictions, 1U);
  EXPECT_EQ(round.leader.members(), 1U);
  round.ready(2, epoch_number(5, 2), 1101);
  EXPECT_EQ(round.told(2), -ESTALE);
  round.ready(2, kFirstEpoch, 1102);
  round.ready(1, epoch_number(5, 3), 1103);
  EXPECT_EQ(round.told(2), epoch_number(5, 4));
}

TEST(EpochLeader, TheLargestTimeoutCounts) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  round.taken(1, 0);
  round.ready(2, kFirstEpoch, 1, {1}, 500);
  round.tick(400);
  EXPECT_EQ(round.leader.members(), 2U);
  round.tick(501);
  EXPECT_EQ(round.leader.members(), 1U);
}

// The member with the largest timeout leaves: the remaining timeout is shorter, and so is the wait.
TEST(EpochLeader, WakesInTimeWhenThePatientOneLeaves) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  round.ready(2, kFirstEpoch, 0, {1}, 5000);
  round.ready(3, kFirstEpoch, 0);
  round.ready(1, epoch_number(5, 1), 0);
  for (const MemberId member : {1U, 2U, 3U}) round.taken(member, 1);
  round.tick(50);
  round.ready(1, epoch_number(5, 2), 60);
  round.tick(61);
  EXPECT_EQ(round.leader.next_wake(), at(5060));
  round.leader.receive(2, Leave{epoch_number(5, 2), 9}, at(70));
  EXPECT_LE(round.leader.next_wake(), at(160));
  round.tick(160);
  EXPECT_EQ(round.told(1), epoch_number(5, 3)) << "the third was too slow";
  EXPECT_EQ(round.leader.members(), 1U);
}

TEST(EpochLeader, AnUnknownCallerIsStaleAtOnce) {
  Round round;
  round.ready(9, epoch_number(4, 17), 0);
  EXPECT_EQ(round.told(9), -ESTALE);
  EXPECT_EQ(round.leader.state(), State::kIdle);
  EXPECT_EQ(round.leader.counters().stale, 1U);
}

TEST(EpochLeader, EvictsWhoDoesNotConfirmItsStart) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  const int before = round.sent;
  round.tick(20);
  EXPECT_EQ(round.sent, before + 1) << "a Start is repeated until it is confirmed";
  round.tick(100);
  EXPECT_EQ(round.leader.members(), 0U);
  EXPECT_EQ(round.leader.state(), State::kIdle);
}

TEST(EpochLeader, ADoubleOrLateReadyChangesNothing) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  const EpochMessage first = round.answers.at(1);
  round.leader.receive(1, Ready{.serial = 1, .data = pack_vector(EpochVector{99}), .claim = {}},
                       at(1));
  round.answers.clear();
  round.collect();
  EXPECT_EQ(round.answers.at(1), first) << "the answer it got before";
  round.ready(1, epoch_number(5, 1), 2);
  round.answers.clear();
  round.leader.receive(1, Ready{.serial = 1, .data = {}, .claim = {}}, at(3));
  round.collect();
  EXPECT_TRUE(round.answers.empty());
  EXPECT_EQ(round.leader.counters().rounds, 2U);
}

TEST(EpochLeader, IsSilentWhenItIsNotConfirmed) {
  Round round;
  round.leader.confirm(at(50));
  round.ready(1, kFirstEpoch, 0);
  round.ready(1, epoch_number(5, 1), 50);
  EXPECT_EQ(round.told(1), epoch_number(5, 1));
  EXPECT_EQ(round.leader.counters().rounds, 1U);
  round.leader.confirm(at(500));
  round.ready(1, epoch_number(5, 1), 60);
  EXPECT_EQ(round.told(1), epoch_number(5, 2));
}

TEST(EpochLeader, TurnsForeignOpaqueDataRound) {
  const auto swab = [](std::span<std::byte> data) { std::reverse(data.begin(), data.end()); };
  const auto keep = [](std::span<std::byte> out, EpochView a, EpochView) {
    std::copy(a.begin(), a.end(), out.begin());
  };
  Round round({.term = 5, .combine = keep, .swab = swab});
  const ByteOrder foreign =
      native_order() == ByteOrder::kBig ? ByteOrder::kLittle : ByteOrder::kBig;
  round.leader.receive(
      1, Ready{.serial = 1, .order = foreign, .data = {std::byte{1}, std::byte{2}}, .claim = {}},
      at(0));
  round.collect();
  EXPECT_EQ(std::get<Start>(round.answers.at(1)).data, (EpochBytes{std::byte{2}, std::byte{1}}));
}

// Every order in which five members signal gives the same sum.
TEST(EpochLeader, TheReductionIsIndependentOfOrder) {
  std::vector<MemberId> order{1, 2, 3, 4, 5};
  do {
    Round round;
    round.ready(9, kFirstEpoch, 0, {0, 0});
    for (const MemberId id : order) {
      const auto value = static_cast<std::int64_t>(id * id);
      round.ready(id, kFirstEpoch, 1, {value, INT64_MAX / 3});
    }
    round.ready(9, epoch_number(5, 1), 2, {0, -7});
    ASSERT_EQ(round.data(3), (EpochVector{55, INT64_MAX}));
  } while (std::next_permutation(order.begin(), order.end()));
}

// A member whose stream has broken may not know whether its call had arrived.
TEST(EpochLeader, ACallThatEndedWithItsMemberIsTakenWhenItIsRepeated) {
  Round round;
  round.ready(1, kFirstEpoch, 0);
  round.ready(2, kFirstEpoch, 1);
  round.leader.evict(2, at(2));
  EXPECT_FALSE(round.leader.has_received(2, Ready{.serial = 1, .data = {}, .claim = {}}));
  round.serials[2] = 0;
  round.ready(2, kFirstEpoch, 3);
  EXPECT_EQ(round.leader.members(), 2U);
  round.ready(1, epoch_number(5, 1), 4);
  EXPECT_EQ(round.told(2), epoch_number(5, 2));
  round.ready(2, epoch_number(5, 2), 5);
  round.leader.evict(2, at(6));
  round.serials[2] = 1;
  round.ready(2, epoch_number(5, 2), 7);
  EXPECT_EQ(round.told(2), -ESTALE) << "it names the epoch that it is not in any more";
}

// For the way of an answer: a call that waits for others says nothing about it.
TEST(EpochLeader, KnowsCallsThatWaitForTheirAnswer) {
  Round round;
  const auto call = [](std::uint64_t serial) {
    return Ready{.epoch = kFirstEpoch, .serial = serial, .data = {}, .claim = {}};
  };
  EXPECT_FALSE(round.leader.has_received(1, call(1)));
  round.ready(1, kFirstEpoch, 0);
  EXPECT_FALSE(round.leader.has_received(1, call(1))) << "answered: the answer was lost";
  round.ready(2, kFirstEpoch, 1);
  EXPECT_TRUE(round.leader.has_received(2, call(1))) << "it waits for 1";
  EXPECT_FALSE(round.leader.has_received(2, call(2)));
  EXPECT_TRUE(round.leader.has_received(2, Taken{1, 1}));
}

// Opaque data of all, in the order of members; what has no room is refused.
TEST(EpochLeader, GathersTheDataOfAllWithTheirLengths) {
  Round round({.term = 5, .gathers = true});
  round.ready(2, kFirstEpoch, 0, {});
  round.ready(1, kFirstEpoch, 1, {7});
  round.ready(2, epoch_number(5, 1), 2, {8, 9});
  const EpochBytes& all = std::get<Start>(round.answers.at(2)).data;
  ASSERT_EQ(all.size(), 4U + 8 + 4 + 16);
  EXPECT_EQ(all[3], std::byte{8});
  EXPECT_EQ(all[4 + 7], std::byte{7});
  EXPECT_EQ(all[12 + 3], std::byte{16});
  const EpochVector half(kVectorMax / 2 - 1);
  round.ready(1, epoch_number(5, 2), 3, half);
  round.ready(3, kFirstEpoch, 4, half);
  EXPECT_EQ(round.told(3), 0);
  round.ready(4, kFirstEpoch, 5, half);
  EXPECT_EQ(round.told(4), -EMSGSIZE);
  round.ready(2, epoch_number(5, 2), 6, {});
  EXPECT_EQ(round.told(3), epoch_number(5, 3)) << "the others go on";
}

// With long rounds an answer takes longer than the usual 20 ms.
TEST(EpochLeader, RepeatsStartsLessOftenWhenRoundsAreLong) {
  Round round;
  const auto is_repeated_at = [&](std::int64_t ms) {
    const int before = round.sent;
    round.tick(ms - 1);
    EXPECT_EQ(round.sent, before) << ms;
    round.tick(ms);
    return round.sent == before + 1;
  };
  round.ready(1, kFirstEpoch, 0);
  EXPECT_TRUE(is_repeated_at(20));
  round.ready(1, epoch_number(5, 1), 30);
  EXPECT_TRUE(is_repeated_at(80)) << "half of the timeout";
  round.ready(1, epoch_number(5, 2), 85);
  round.ready(1, epoch_number(5, 3), 100);
  EXPECT_TRUE(is_repeated_at(130)) << "twice the time between the last rounds";
  round.ready(1, epoch_number(5, 4), 135);
  round.ready(1, epoch_number(5, 5), 140);
  EXPECT_TRUE(is_repeated_at(160));
}

}  // namespace
}  // namespace weir
