// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_relay.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

Ready ready(std::uint64_t serial) {
  return {.epoch = kFirstEpoch, .serial = serial, .data = {}, .claim = {}};
}
EpochBytes start(std::int64_t epoch) {
  return encode(Start{.epoch = epoch, .serial = 1, .data = {}, .grant = {}});
}

// Children 1, 2 and 3, by links 11, 12 and 13; the relay itself is member 9.
struct Relayed {
  void signal(MemberId member, std::int64_t now_ms, const std::string& course = "") {
    const EpochRelay::Link link = member == 9 ? EpochRelay::kOwn : 10 + member;
    EXPECT_TRUE(relay.up(link, {member, course, encode(ready(1))}, at(now_ms)));
  }
  void start_all(std::int64_t epoch) {
    EpochBundle bundle;
    for (const MemberId member : {1U, 2U, 3U, 9U}) bundle.push_back({member, {}, start(epoch)});
    relay.down(std::move(bundle));
  }
  // All of them are in an epoch.
  void begin() {
    for (const MemberId member : {1U, 2U, 3U, 9U}) signal(member, 0);
    (void)relay.take_up(at(0));
    start_all(1);
    (void)relay.take_down();
  }
  EpochRelay relay{9};
};

TEST(EpochRelay, AMessageIsPassedOnAtOnceBeforeTheFirstEpoch) {
  Relayed all;
  all.signal(1, 0);
  EXPECT_EQ(all.relay.take_up(at(0)).size(), 1U);
  EXPECT_TRUE(all.relay.take_up(at(0)).empty());
  EXPECT_EQ(all.relay.next_wake(), kNever);
}

TEST(EpochRelay, SendsOneBundleWhenAllHaveSignalled) {
  Relayed all;
  all.begin();
  for (const MemberId member : {1U, 9U, 3U}) {
    all.signal(member, 10);
    EXPECT_TRUE(all.relay.take_up(at(10)).empty());
  }
  all.signal(2, 11);
  const EpochBundle bundle = all.relay.take_up(at(11));
  ASSERT_EQ(bundle.size(), 4U);
  EXPECT_EQ(bundle[1].member, 9U);
}

TEST(EpochRelay, WaitsForALateMemberForABoundedTimeAndNotInTheNextEpoch) {
  Relayed all;
  all.begin();
  for (const MemberId member : {1U, 3U, 9U}) all.signal(member, 10);
  EXPECT_EQ(all.relay.next_wake(), at(10) + EpochRelay::kHold);
  EXPECT_TRUE(all.relay.take_up(at(14)).empty());
  EXPECT_EQ(all.relay.take_up(at(15)).size(), 3U);
  all.relay.down({{1, {}, start(2)}, {3, {}, start(2)}, {9, {}, start(2)}});
  for (const MemberId member : {1U, 3U, 9U}) all.signal(member, 20);
  EXPECT_EQ(all.relay.take_up(at(20)).size(), 3U) << "the dead one is not waited for";
}

TEST(EpochRelay, AnswersGoToTheLinkThatTheMessageCameBy) {
  Relayed all;
  all.begin();
  all.start_all(2);
  all.relay.down({{77, {}, start(2)}});
  const auto down = all.relay.take_down();
  ASSERT_EQ(down.size(), 4U) << "nobody is known as 77";
  EXPECT_EQ(down[0].to, EpochRelay::kOwn);
  EXPECT_EQ(down[0].bundle[0].member, 9U);
  EXPECT_EQ(down[3].to, 13U);
  EXPECT_EQ(down[3].bundle[0].member, 3U);
}

TEST(EpochRelay, ABundleFromARelayBelowKeepsItsMembersTogether) {
  EpochRelay relay{9};
  for (const MemberId member : {21U, 22U, 23U}) {
    EXPECT_TRUE(relay.up(5, {member, {}, encode(ready(1))}, at(0)));
  }
  EXPECT_TRUE(relay.has_children());
  relay.down({{21, {}, start(1)}, {23, {}, start(1)}});
  const auto down = relay.take_down();
  ASSERT_EQ(down.size(), 1U);
  EXPECT_EQ(down[0].bundle.size(), 2U);
}

TEST(EpochRelay, AChildWhoseStreamEndedIsNeitherWaitedForNorAnswered) {
  Relayed all;
  all.begin();
  all.relay.ended(12);
  for (const MemberId member : {1U, 3U, 9U}) all.signal(member, 10);
  EXPECT_EQ(all.relay.take_up(at(10)).size(), 3U);
  all.relay.down({{2, {}, start(2)}});
  EXPECT_TRUE(all.relay.take_down().empty());
}

TEST(EpochRelay, MessagesOfOtherCoursesGoWithTheNextBundle) {
  Relayed all;
  all.begin();
  all.signal(1, 10, "ost_io");
  EXPECT_TRUE(all.relay.take_up(at(10)).empty());
  EXPECT_EQ(all.relay.take_up(at(15)).size(), 1U);
}

TEST(EpochRelay, WhatNoMemberMaySendIsRefused) {
  EpochRelay relay{9};
  EXPECT_FALSE(relay.up(1, {1, {}, EpochBytes(3)}, at(0)));
  EXPECT_FALSE(relay.up(1, {1, {}, start(1)}, at(0)));
  EXPECT_FALSE(relay.up(1, {1, {}, encode(Refuse{-EIO, 1})}, at(0)));
  EXPECT_TRUE(relay.take_up(at(100)).empty());
  EXPECT_FALSE(relay.has_children());
}

TEST(EpochRelay, AFullBundleIsSentAtOnce) {
  Relayed all;
  all.begin();
  Ready large = ready(2);
  large.claim.resize(kRoundPayloadMax);
  EXPECT_TRUE(all.relay.up(11, {1, {}, encode(large)}, at(10)));
  EXPECT_EQ(all.relay.take_up(at(10)).size(), 1U);
}

// Its own message went to the leader, and its answer comes with those for the others.
TEST(EpochRelay, AnswersForItselfNeedNoMessageBefore) {
  EpochRelay relay(9);
  EXPECT_FALSE(relay.has_children());
  relay.down({{9, {}, start(1)}, {1, {}, start(1)}});
  const auto down = relay.take_down();
  ASSERT_EQ(down.size(), 1U);
  EXPECT_EQ(down[0].to, EpochRelay::kOwn);
}

EpochMessage started(std::uint64_t serial) {
  return Start{.epoch = 1, .serial = serial, .data = {}, .grant = {}};
}

TEST(EpochWay, WithoutARelayAllGoesToTheLeader) {
  EpochWay way;
  EXPECT_EQ(way.of(ready(1), false), EpochWay::Way::kLeader);
  way.answered(started(1), EpochWay::Way::kLeader);
  EXPECT_EQ(way.of(ready(2), true), EpochWay::Way::kRelay) << "nothing has failed";
}

TEST(EpochWay, ARelayThatBringsNoAnswerIsAvoidedForAWhile) {
  EpochWay way;
  EXPECT_EQ(way.of(ready(1), true), EpochWay::Way::kRelay);
  EXPECT_EQ(way.of(ready(1), true), EpochWay::Way::kLeader) << "again";
  way.answered(started(1), EpochWay::Way::kLeader);
  EXPECT_EQ(way.of(Taken{1, 1}, true), EpochWay::Way::kLeader) << "the way of the answer";
  for (std::uint64_t i = 1; i < EpochWay::kAvoidCalls; ++i) {
    EXPECT_EQ(way.of(ready(1 + i), true), EpochWay::Way::kLeader) << i;
    way.answered(started(1 + i), EpochWay::Way::kLeader);
  }
  EXPECT_EQ(way.of(ready(50), true), EpochWay::Way::kRelay) << "it is tried again";
  way.answered(started(50), EpochWay::Way::kLeader);
  EXPECT_EQ(way.of(ready(51), true), EpochWay::Way::kLeader);
  way.renew();
  EXPECT_EQ(way.of(ready(52), true), EpochWay::Way::kRelay) << "it has another relay";
  EXPECT_EQ(way.of(Leave{1, 53}, true), EpochWay::Way::kLeader);
}

TEST(EpochWay, ARoundThatTakesLongIsNotTheFaultOfTheRelay) {
  EpochWay way;
  EXPECT_EQ(way.of(ready(1), true), EpochWay::Way::kRelay);
  EXPECT_EQ(way.of(ready(1), true), EpochWay::Way::kLeader);
  way.answered(started(1), EpochWay::Way::kRelay);
  EXPECT_EQ(way.of(Taken{1, 1}, true), EpochWay::Way::kRelay);
  way.answered(started(1), EpochWay::Way::kRelay);
  EXPECT_EQ(way.of(ready(2), true), EpochWay::Way::kRelay);
}

}  // namespace
}  // namespace weir
