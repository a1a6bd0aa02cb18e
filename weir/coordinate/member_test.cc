// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/member.h"

#include <cerrno>

#include <gtest/gtest.h>

#include "weir/coordinate/leader.h"
#include "weir/coordinate/vectors.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

struct Caller {
  explicit Caller(EpochMember::Options options = {}) : member(std::move(options)) {}

  void call(std::int64_t epoch, std::int64_t now_ms) {
    member.next_epoch(
        epoch, pack_vector(EpochVector{1}),
        [this](std::int64_t started, EpochView, Instant) { callbacks.push_back(started); },
        at(now_ms));
  }
  // Of the Ready that was sent last; 0 if none was.
  std::uint64_t sent_serial() {
    std::uint64_t serial = 0;
    for (const EpochMessage& message : member.take_outgoing()) {
      if (const auto* const ready = std::get_if<Ready>(&message)) serial = ready->serial;
    }
    return serial;
  }
  void start(std::int64_t epoch, std::uint64_t serial, std::int64_t now_ms) {
    member.receive(Start{.epoch = epoch,
                         .serial = serial,
                         .timeout = milliseconds{100},
                         .members = members,
                         .data = {},
                         .grant = {}},
                   at(now_ms));
  }

  EpochMember member;
  std::uint32_t members = 1;  // as leaders tell
  std::vector<std::int64_t> callbacks;
};

TEST(EpochMember, CallsBackOnceForAnEpoch) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  const std::uint64_t serial = caller.sent_serial();
  caller.start(7, serial, 1);
  caller.start(7, serial, 2);
  caller.start(8, serial, 2);
  EXPECT_EQ(caller.callbacks, (std::vector<std::int64_t>{7}));
  EXPECT_EQ(caller.member.take_outgoing().size(), 1U) << "a Start that is repeated is confirmed";
}

TEST(EpochMember, TheNextReadyConfirmsAStart) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  caller.start(7, caller.sent_serial(), 1);
  EXPECT_TRUE(caller.member.take_outgoing().empty());
  caller.call(7, 10);
  EXPECT_EQ(caller.member.take_outgoing().size(), 1U);
  caller.member.tick(at(16));
  EXPECT_TRUE(caller.member.take_outgoing().empty());
}

TEST(EpochMember, WithoutAnotherCallAStartIsConfirmedBeforeItIsRepeated) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  caller.start(7, caller.sent_serial(), 1);
  EXPECT_EQ(caller.member.next_wake(), at(16));
  EXPECT_LT(EpochMember::kConfirmWithin, EpochLeader::Options{}.resend);
  caller.member.tick(at(16));
  const auto out = caller.member.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(std::get<Taken>(out[0]).epoch, 7);
  EXPECT_EQ(caller.member.next_wake(), kNever);
  caller.member.tick(at(100));
  EXPECT_TRUE(caller.member.take_outgoing().empty());
}

// A leader that is slow for a moment is not sent more because of that.
TEST(EpochMember, RepeatsLessOftenTheLongerItWaitsInLargeClusters) {
  Caller caller;
  caller.member.expect_members(EpochMember::kFewMembers + 1);
  caller.call(kFirstEpoch, 0);
  const std::uint64_t serial = caller.sent_serial();
  std::vector<std::int64_t> sent;
  for (std::int64_t ms = 1; ms < 150; ++ms) {
    caller.member.tick(at(ms));
    if (!caller.member.take_outgoing().empty()) sent.push_back(ms);
  }
  EXPECT_EQ(sent, (std::vector<std::int64_t>{20, 60, 140}));
  caller.members = 1000;
  caller.start(7, serial, 149);
  caller.member.expect_members(2);  // the leader knows better
  caller.call(7, 200);
  (void)caller.member.take_outgoing();
  EXPECT_EQ(caller.member.next_wake(), at(250)) << "answers take long: half of the timeout";
}

TEST(EpochMember, RepeatsAtAConstantRateInSmallClusters) {
  Caller caller;
  caller.member.expect_members(EpochMember::kFewMembers);
  caller.call(kFirstEpoch, 0);
  (void)caller.member.take_outgoing();
  std::vector<std::int64_t> sent;
  for (std::int64_t ms = 1; ms < 90; ++ms) {
    caller.member.tick(at(ms));
    if (!caller.member.take_outgoing().empty()) sent.push_back(ms);
  }
  EXPECT_EQ(sent, (std::vector<std::int64_t>{20, 40, 60, 80}));
}

TEST(EpochMember, TakesOnlyEpochsThatGrow) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  caller.start(epoch_number(2, 9), caller.sent_serial(), 1);
  caller.call(epoch_number(2, 9), 2);
  const std::uint64_t serial = caller.sent_serial();
  caller.start(epoch_number(1, 100), serial, 3);
  caller.start(epoch_number(2, 9), serial, 3);
  EXPECT_EQ(caller.callbacks.size(), 1U);
  caller.start(epoch_number(3, 1), serial, 4);
  EXPECT_EQ(caller.callbacks.back(), epoch_number(3, 1));
}

TEST(EpochMember, AsksAgainUntilItIsAnswered) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  const std::uint64_t serial = caller.sent_serial();
  EXPECT_EQ(caller.member.next_wake(), at(20));
  caller.member.tick(at(20));
  EXPECT_EQ(caller.sent_serial(), serial);
}

TEST(EpochMember, GivesUpAfterTheTimeoutAndAShortWhile) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  const std::uint64_t serial = caller.sent_serial();
  caller.member.tick(at(149));
  EXPECT_TRUE(caller.callbacks.empty());
  caller.member.tick(at(150));
  EXPECT_EQ(caller.callbacks, (std::vector<std::int64_t>{-ETIMEDOUT}));
  caller.start(7, serial, 151);
  EXPECT_EQ(caller.callbacks.size(), 1U) << "an answer that came too late says nothing";
}

TEST(EpochMember, HandsErrorsOn) {
  Caller caller;
  caller.call(5, 0);
  const std::uint64_t serial = caller.sent_serial();
  caller.member.receive(Refuse{-ESTALE, serial + 1}, at(1));
  EXPECT_TRUE(caller.callbacks.empty());
  caller.member.receive(Refuse{-ESTALE, serial}, at(1));
  EXPECT_EQ(caller.callbacks, (std::vector<std::int64_t>{-ESTALE}));
}

TEST(EpochMember, ALostLeaderEndsTheCall) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  caller.member.lose_leader(at(1));
  EXPECT_EQ(caller.callbacks, (std::vector<std::int64_t>{-ENOTCONN}));
  EXPECT_FALSE(caller.member.is_calling());
}

TEST(EpochMember, LeavesAtOnceAndIsNotCalledBack) {
  Caller caller;
  caller.call(kFirstEpoch, 0);
  const std::uint64_t serial = caller.sent_serial();
  caller.member.last_epoch(kFirstEpoch, at(1));
  caller.start(7, serial, 2);
  EXPECT_TRUE(caller.callbacks.empty());
  const auto out = caller.member.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_GT(std::get<Leave>(out[0]).serial, serial);
}

TEST(LocalEpochHandler, CallsBackAtOnceWithTheSameData) {
  LocalEpochHandler handler;
  std::vector<std::int64_t> epochs;
  for (int i = 0; i < 3; ++i) {
    handler.next_epoch(
        kFirstEpoch, pack_vector(EpochVector{42}),
        [&](std::int64_t epoch, EpochView data, Instant) {
          epochs.push_back(epoch);
          EXPECT_EQ(unpack_vector(data), EpochVector{42});
        },
        at(0));
  }
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace weir
