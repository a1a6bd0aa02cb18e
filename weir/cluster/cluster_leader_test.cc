// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/cluster_leader.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/vectors.h"

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kLimit = 900 * kMilli;

// A member without a server: reports its demand and accepts its slices.
struct Peer {
  explicit Peer(std::int64_t demand, std::uint64_t first_serial = 1)
      : slices(SliceTerms{}), member({.first_serial = first_serial, .payload = &slices}) {
    slices.set_demand(slices.open("ost_io/dd/ops", kLimit), demand);
  }
  void call(Instant now) {
    member.next_epoch(
        std::max(epoch, kFirstEpoch), slices.demand(),
        [this](std::int64_t next, EpochView, Instant) {
          epoch = next;
          ++calls;
        },
        now);
  }
  SliceMember slices;
  EpochMember member;
  std::int64_t epoch = kFirstEpoch;
  int calls = 0;
};

struct ClusterLeaderTest : ::testing::Test {
  ClusterLeader::Hello hello(const std::string& name, std::uint64_t incarnation = 1) const {
    return {.protocol = kEpochProtocol, .name = name, .incarnation = incarnation, .term = 3};
  }
  void say(MemberId id, Peer& peer) {
    for (const EpochMessage& message : peer.member.take_outgoing()) {
      ASSERT_TRUE(leader.receive(id, "", encode(message), now));
    }
  }
  void answer(MemberId id, Peer& peer) {
    for (const auto& [to, course, message] : leader.take_outgoing()) {
      if (to == id && course.empty()) peer.member.receive(message, now);
    }
  }

  Instant now = instant_at(1'000'000'000);
  SliceLimits limits = {{"ost_io/dd/ops", kLimit}};
  ClusterLeader leader{{.name = "a", .term = 3, .is_first = true}, limits, now};
};

TEST_F(ClusterLeaderTest, AMemberIsRefusedForItsProtocolWithClearWords) {
  ClusterLeader::Hello other = hello("b");
  other.protocol = 7;
  const auto refused = leader.greet(other, now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::protocol_not_supported);
  EXPECT_EQ(refused.error().message(),
            "member 'b': uses version 7 of the protocol, but the leader, a, uses version 1; run "
            "compatible versions of weir");
}

TEST_F(ClusterLeaderTest, AMemberWithAnotherPartitionIsRefusedWithClearWords) {
  ClusterLeader::Hello other = hello("b");
  other.partition = Partition::kLast;
  const auto refused = leader.greet(other, now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::protocol_not_supported);
  EXPECT_EQ(refused.error().message(),
            "member 'b': has partition = \"last\", but the leader, a, has \"safe\"; set the same "
            "partition in [cluster] on all servers");
}

// Slices without an end need neither a confirmed leader nor one that waits.
TEST_F(ClusterLeaderTest, WithSlicesWithoutAnEndANewLeaderHearsMembersAtOnceAndGoesOnWithoutEtcd) {
  constexpr SliceTerms kTerms = {.partition = Partition::kLast};
  ClusterLeader next({.name = "a", .term = 3, .terms = kTerms}, limits, now);
  next.confirm(now + milliseconds{1});
  next.set_known({"b", "c"}, {"b"});
  ClusterLeader::Hello same = hello("b");
  same.partition = Partition::kLast;
  const MemberId b = next.greet(same, now)->id;
  Peer peer(kLimit);
  now += std::chrono::hours{1};
  peer.call(now);
  for (const EpochMessage& message : peer.member.take_outgoing()) {
    ASSERT_TRUE(next.receive(b, "", encode(message), now));
  }
  const auto answers = next.take_outgoing();
  ASSERT_EQ(answers.size(), 1U);
  peer.member.receive(answers[0].message, now);
  (void)peer.member.take_outgoing();
  EXPECT_TRUE(next.describe(now).waits_for_reports) << "c is away and has not reported";
  next.set_known({"b"}, {"b"});
  peer.call(now);
  next.tick(now);
  for (const EpochMessage& message : peer.member.take_outgoing()) {
    ASSERT_TRUE(next.receive(b, "", encode(message), now));
  }
  EXPECT_FALSE(next.describe(now).waits_for_reports);
}

TEST_F(ClusterLeaderTest, AnotherTermAndNamesThatAreNoneAreRefused) {
  ClusterLeader::Hello late = hello("b");
  late.term = 2;
  EXPECT_EQ(static_cast<int>(leader.greet(late, now).error().code), ESTALE);
  EXPECT_EQ(leader.greet(hello(""), now).error().code, std::errc::invalid_argument);
  EXPECT_EQ(leader.greet(hello(std::string(32, 'x')), now).error().code,
            std::errc::invalid_argument);
}

TEST_F(ClusterLeaderTest, ASecondServerOfANameIsRefusedWhileTheFirstIsAlive) {
  const auto first = leader.greet(hello("b", 1), now);
  ASSERT_TRUE(first);
  EXPECT_EQ(leader.greet(hello("b", 2), now).error().code, std::errc::file_exists);
  // The same server may reconnect at once, and keeps its number.
  const auto again = leader.greet(hello("b", 1), now);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->id, first->id);
  EXPECT_EQ(again->replaced, first->id);
  now += ClusterLeader::kSilence;
  const auto second = leader.greet(hello("b", 2), now);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->replaced, first->id);
  EXPECT_NE(second->id, first->id);
}

TEST_F(ClusterLeaderTest, AServerThatStartsAnewIsNobodyElse) {
  const auto first = leader.greet(hello("b", 1), now);
  leader.ended(first->id, now);
  const auto second = leader.greet(hello("b", 2), now);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->replaced, 0U);
  // Its serials start again, which is allowed for a new incarnation.
  Peer peer(100 * kMilli);
  peer.call(now);
  say(second->id, peer);
  answer(second->id, peer);
  EXPECT_EQ(peer.calls, 1);
  EXPECT_EQ(peer.epoch, epoch_number(3, 1));
}

TEST_F(ClusterLeaderTest, CutsTheLimitByDemand) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  const MemberId c = leader.greet(hello("c"), now)->id;
  Peer busy(900 * kMilli);
  Peer idle(0);
  // The first member has rounds alone before the other joins.
  for (int turn = 0; turn < 10; ++turn) {
    if (!busy.member.is_calling()) busy.call(now);
    if (!idle.member.is_calling()) idle.call(now);
    say(b, busy);
    say(c, idle);
    for (const auto& [to, course, message] : leader.take_outgoing()) {
      (to == b ? busy : idle).member.receive(message, now);
    }
    now += milliseconds{10};
  }
  EXPECT_GT(busy.slices.slice(0, now), 880 * kMilli);
  EXPECT_LE(busy.slices.slice(0, now) + idle.slices.slice(0, now), kLimit);
  const serve::LeaderStatus part = leader.describe(now);
  EXPECT_GE(part.rounds, 5U);
  ASSERT_EQ(part.members.size(), 2U);
  EXPECT_EQ(part.members[0].name, "b");
  EXPECT_TRUE(part.members[0].is_joined);
  EXPECT_GT(part.members[0].slices.at(0).milli, 880 * kMilli);
}

TEST_F(ClusterLeaderTest, ConnectedAreThoseThatWereHeardLately) {
  EXPECT_EQ(leader.connected(now), 1U) << "itself";
  const MemberId own = leader.greet(hello("a"), now)->id;
  const MemberId b = leader.greet(hello("b"), now)->id;
  EXPECT_EQ(leader.connected(now), 2U);
  Peer self(100 * kMilli);
  Peer peer(100 * kMilli);
  self.call(now);
  say(own, self);
  now += ClusterLeader::kSilence - milliseconds{1};
  peer.call(now);
  say(b, peer);
  leader.ended(b, now);  // it may reconnect at once
  now += ClusterLeader::kSilence - milliseconds{1};
  EXPECT_EQ(leader.connected(now), 2U);
  now += milliseconds{1};
  EXPECT_EQ(leader.connected(now), 1U);
}

TEST_F(ClusterLeaderTest, AMemberThatWasEvictedIsNotJoinedAndKeepsItsSliceUntilThatEnds) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  const MemberId c = leader.greet(hello("c"), now)->id;
  Peer silent(1000 * kMilli);
  Peer busy(1000 * kMilli);
  const auto round = [&](bool both) {
    if (both && !silent.member.is_calling()) silent.call(now);
    if (!busy.member.is_calling()) busy.call(now);
    if (both) say(b, silent);
    say(c, busy);
    leader.tick(now);
    for (const auto& [to, course, message] : leader.take_outgoing()) {
      if (to == c) busy.member.receive(message, now);
      if (both && to == b) silent.member.receive(message, now);
    }
    now += milliseconds{10};
  };
  const auto shown = [&] {
    std::int64_t sum = 0;
    const serve::LeaderStatus part = leader.describe(now);
    for (const serve::MemberStatus& one : part.members) {
      for (const serve::SliceStatus& slice : one.slices) sum += slice.milli;
    }
    EXPECT_LE(sum, kLimit);
    return part.members.at(0);
  };
  for (int i = 0; i < 20; ++i) round(true);
  EXPECT_TRUE(shown().is_joined);
  // It sends nothing from now on, and its stream stays open.
  for (int i = 0; i < 15; ++i) round(false);
  EXPECT_FALSE(shown().is_joined);
  EXPECT_TRUE(shown().slices.at(0).is_leased) << "it may be using its slice still";
  for (int i = 0; i < 60; ++i) round(false);
  EXPECT_FALSE(shown().slices.at(0).is_leased);
  EXPECT_EQ(shown().slices.at(0).milli, cut_off_slice(kLimit, 2));
}

TEST_F(ClusterLeaderTest, NobodyIsJoinedWhileTheLeaderIsNotSureOfItself) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  Peer peer(100 * kMilli);
  peer.call(now);
  say(b, peer);
  EXPECT_TRUE(leader.describe(now).members.at(0).is_joined);
  leader.confirm(now + milliseconds{5});
  now += milliseconds{5};
  EXPECT_FALSE(leader.describe(now).members.at(0).is_joined);
}

TEST_F(ClusterLeaderTest, GarbageIsToldAndTheOthersGoOn) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  const MemberId c = leader.greet(hello("c"), now)->id;
  const EpochBytes garbage(100, std::byte{0x57});
  EXPECT_FALSE(leader.receive(b, "", garbage, now));
  EXPECT_FALSE(leader.receive(b, "", encode(Start{.epoch = 1, .data = {}, .grant = {}}), now));
  leader.ended(b, now);
  EXPECT_EQ(leader.describe(now).garbage, 2U);
  Peer peer(100 * kMilli);
  peer.call(now);
  say(c, peer);
  answer(c, peer);
  EXPECT_EQ(peer.calls, 1);
}

TEST_F(ClusterLeaderTest, ALeaderAfterAnotherHearsNobodyUntilOldSlicesHaveNearlyRunOut) {
  ClusterLeader next({.name = "a", .term = 4}, limits, now);
  ClusterLeader::Hello b = hello("b");
  b.term = 4;
  const MemberId id = next.greet(b, now)->id;
  Peer peer(100 * kMilli);
  peer.call(now);
  const EpochBytes ready = encode(peer.member.take_outgoing().at(0));
  ASSERT_TRUE(next.receive(id, "", ready, now + milliseconds{370}));
  EXPECT_TRUE(next.take_outgoing().empty());
  ASSERT_TRUE(next.receive(id, "", ready, now + milliseconds{375}));
  EXPECT_EQ(next.take_outgoing().size(), 1U);
}

// Three members that have been in epochs together.
struct ClusterLeaderNames : ClusterLeaderTest {
  void SetUp() override {
    for (const char* const name : {"b", "c", "d"}) come(name);
    for (int turn = 0; turn < 5; ++turn) round(leader);
  }
  void come(const std::string& name) {
    Member& member = members[name];
    member.id = leader.greet(hello(name), now)->id;
    member.is_there = true;
  }
  void go(const std::string& name) {
    leader.ended(members[name].id, now);
    members[name].is_there = false;
  }
  void round(ClusterLeader& one) {
    for (auto& [name, member] : members) {
      if (!member.is_there) continue;
      member.peer.member.tick(now);
      if (!member.peer.member.is_calling()) member.peer.call(now);
      for (const EpochMessage& message : member.peer.member.take_outgoing()) {
        ASSERT_TRUE(one.receive(member.id, {}, encode(message), now));
      }
    }
    one.tick(now);
    for (const auto& [to, course, message] : one.take_outgoing()) {
      for (auto& [name, member] : members) {
        if (member.id == to) member.peer.member.receive(message, now);
      }
    }
    now += milliseconds{10};
  }
  std::uint32_t counted(const std::string& name) { return members[name].peer.slices.members(); }
  std::int64_t slice(const std::string& name) { return members[name].peer.slices.slice(0, now); }

  struct Member {
    Peer peer{300 * kMilli};
    MemberId id = 0;
    bool is_there = false;
  };
  std::map<std::string, Member> members;
};

TEST_F(ClusterLeaderNames, WhoIsAwayIsReservedItsPartUntilItsNameIsGone) {
  leader.set_known({"b", "c", "d"});
  go("d");
  for (int turn = 0; turn < 60; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 3U);
  EXPECT_LE(slice("b") + slice("c"), kLimit - kLimit / 30);
  leader.set_known({"b", "c"});
  for (int turn = 0; turn < 10; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 2U);
  EXPECT_GE(slice("b") + slice("c"), kLimit * 999 / 1000);
  ASSERT_EQ(leader.describe(now).members.size(), 2U);
  // It joins as a new member, although it is the same server.
  come("d");
  for (int turn = 0; turn < 10; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 3U);
  EXPECT_LE(slice("b") + slice("c") + slice("d"), kLimit);
}

TEST_F(ClusterLeaderNames, AServerThatHasStartedAndNotComeYetIsLeftItsPart) {
  leader.set_known({"b", "c", "d", "e"}, {"b", "c", "d", "e"});
  for (int turn = 0; turn < 60; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 4U);
  EXPECT_LE(slice("b") + slice("c") + slice("d"), kLimit - kLimit / 40);
  EXPECT_GE(slice("b") + slice("c") + slice("d"), (kLimit - kLimit / 40) * 999 / 1000);
  // Away, and it never took part in epochs: it has only a name.
  leader.set_known({"b", "c", "d", "e"}, {"b", "c", "d"});
  for (int turn = 0; turn < 10; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 3U);
  EXPECT_GE(slice("b") + slice("c") + slice("d"), kLimit * 999 / 1000);
}

TEST_F(ClusterLeaderNames, OneThatCameBackAsAnotherIsLeftItsPartUntilItSignals) {
  leader.set_known({"b", "c", "d"}, {"b", "c", "d"});
  go("d");
  for (int turn = 0; turn < 60; ++turn) round(leader);
  ASSERT_TRUE(leader.greet(hello("d", 2), now));  // it sends nothing more
  for (int turn = 0; turn < 60; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 3U);
  EXPECT_LE(slice("b") + slice("c"), kLimit - kLimit / 30);
}

TEST_F(ClusterLeaderNames, WhoIsInTheEpochsIsNotForgotten) {
  leader.set_known({"b"});
  for (int turn = 0; turn < 60; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 3U);
  // But when its stream has ended.
  go("d");
  leader.set_known({"b", "c"});
  for (int turn = 0; turn < 60; ++turn) round(leader);
  EXPECT_EQ(counted("b"), 2U);
}

TEST_F(ClusterLeaderNames, ANewLeaderReservesForThoseThatHaveNamesOnly) {
  ClusterLeader next({.name = "a", .term = 4}, limits, now);
  next.set_known({"b", "c"});
  for (auto& [name, member] : members) {
    member.is_there = name != "d";
    if (!member.is_there) continue;
    ClusterLeader::Hello come = hello(name);
    come.term = 4;
    member.id = next.greet(come, now)->id;
    member.peer.member.lose_leader(now);
  }
  for (int turn = 0; turn < 100; ++turn) {
    round(next);
    if (turn > 45) {
      ASSERT_EQ(counted("b"), 2U) << turn;
    }
  }
  EXPECT_GE(slice("b") + slice("c"), kLimit * 999 / 1000);
  // A server that has a name and has not joined is away.
  ClusterLeader third({.name = "a", .term = 5}, limits, now);
  third.set_known({"b", "c"});
  members["c"].is_there = false;
  ClusterLeader::Hello come = hello("b");
  come.term = 5;
  members["b"].id = third.greet(come, now)->id;
  members["b"].peer.member.lose_leader(now);
  for (int turn = 0; turn < 100; ++turn) round(third);
  EXPECT_EQ(counted("b"), 2U);
  EXPECT_LE(slice("b"), kLimit - kLimit / 20);
}

TEST_F(ClusterLeaderTest, OneThatIsNotConfirmedFallsSilent) {
  leader.confirm(now + milliseconds{100});
  const MemberId b = leader.greet(hello("b"), now)->id;
  Peer peer(100 * kMilli);
  now += milliseconds{100};
  peer.call(now);
  say(b, peer);
  leader.tick(now);
  EXPECT_TRUE(leader.take_outgoing().empty());
  leader.confirm(now + milliseconds{100});
  now += milliseconds{30};
  peer.member.tick(now);
  say(b, peer);
  answer(b, peer);
  EXPECT_EQ(peer.calls, 1);
}

// ---- courses ----

Ready ready_of(std::uint64_t serial, std::int64_t epoch = kFirstEpoch) {
  return {.epoch = epoch,
          .serial = serial,
          .timeout = milliseconds{100},
          .order = native_order(),
          .data = pack_vector(EpochVector{1, 2}),
          .claim = {}};
}

TEST_F(ClusterLeaderTest, CoursesHaveNumbersAndMembersOfTheirOwn) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  const MemberId c = leader.greet(hello("c"), now)->id;
  ASSERT_TRUE(leader.receive(b, "ost_io", encode(ready_of(1)), now));
  auto out = leader.take_outgoing();
  ASSERT_EQ(out.size(), 1U) << "b is all there are in this course, and need not wait for c";
  EXPECT_EQ(out[0].course, "ost_io");
  EXPECT_EQ(std::get<Start>(out[0].message).epoch, epoch_number(3, 1));
  ASSERT_TRUE(leader.receive(c, "other", encode(ready_of(1)), now));
  out = leader.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].course, "other");
  EXPECT_EQ(std::get<Start>(out[0].message).epoch, epoch_number(3, 1));
  const serve::LeaderStatus part = leader.describe(now);
  ASSERT_EQ(part.courses.size(), 2U);
  EXPECT_EQ(part.courses[0].service, "ost_io");
  EXPECT_EQ(part.courses[0].members, 1U);
  EXPECT_EQ(part.courses[0].rounds, 1U);
  EXPECT_EQ(part.rounds, 0U) << "of slices";
}

TEST_F(ClusterLeaderTest, AStreamThatEndsIsGoneFromAllCourses) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  const MemberId c = leader.greet(hello("c"), now)->id;
  ASSERT_TRUE(leader.receive(b, "ost_io", encode(ready_of(1)), now));
  EXPECT_EQ(leader.take_outgoing().size(), 1U);
  ASSERT_TRUE(leader.receive(b, "ost_io", encode(Taken{epoch_number(3, 1), 1}), now));
  ASSERT_TRUE(leader.receive(c, "ost_io", encode(ready_of(1)), now));
  EXPECT_TRUE(leader.take_outgoing().empty()) << "b is waited for";
  ASSERT_TRUE(leader.receive(b, "ost_io", encode(ready_of(2, epoch_number(3, 1))), now));
  EXPECT_EQ(leader.take_outgoing().size(), 2U);
  ASSERT_TRUE(leader.receive(b, "ost_io", encode(Taken{epoch_number(3, 2), 2}), now));
  ASSERT_TRUE(leader.receive(b, "ost_io", encode(ready_of(3, epoch_number(3, 2))), now));
  EXPECT_TRUE(leader.take_outgoing().empty()) << "c is waited for";
  leader.ended(c, now);
  const auto out = leader.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, b);
  EXPECT_EQ(std::get<Start>(out[0].message).epoch, epoch_number(3, 3));
}

TEST_F(ClusterLeaderTest, ASilentLeaderIsSilentInAllCourses) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  ASSERT_TRUE(leader.receive(b, "before", encode(ready_of(1)), now));
  EXPECT_EQ(leader.take_outgoing().size(), 1U);
  leader.confirm(now);
  ASSERT_TRUE(leader.receive(b, "before", encode(ready_of(2, epoch_number(3, 1))), now));
  ASSERT_TRUE(leader.receive(b, "after", encode(ready_of(1)), now));
  EXPECT_TRUE(leader.take_outgoing().empty());
}

TEST_F(ClusterLeaderTest, MoreCoursesThanThereMayBeAreRefusedAndHarmNobody) {
  const MemberId b = leader.greet(hello("b"), now)->id;
  for (std::size_t i = 0; i < ClusterLeader::kCoursesMax; ++i) {
    ASSERT_TRUE(leader.receive(b, "s" + std::to_string(i), encode(ready_of(1)), now));
  }
  EXPECT_EQ(leader.take_outgoing().size(), ClusterLeader::kCoursesMax);
  ASSERT_TRUE(leader.receive(b, "late", encode(ready_of(7)), now));
  ASSERT_TRUE(leader.receive(b, "late", encode(Leave{kFirstEpoch, 8}), now));
  const auto out = leader.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(std::get<Refuse>(out[0].message).error, -ENOSPC);
  EXPECT_EQ(std::get<Refuse>(out[0].message).serial, 7U);
  EXPECT_FALSE(leader.receive(b, std::string(32, 'x'), encode(ready_of(9)), now));
}

// ---- a tree ----

// With a fan-out of one: a is the leader's own server, b a relay, and c is below it.
struct TreeTest : ::testing::Test {
  MemberId join(const std::string& name) {
    return leader
        .greet({.protocol = kEpochProtocol,
                .name = name,
                .incarnation = 1,
                .term = 3,
                .address = name + ":1"},
               now)
        ->id;
  }
  static EpochBytes ready(std::uint64_t serial) {
    SliceMember slices(SliceTerms{});
    return encode(Ready{.epoch = kFirstEpoch,
                        .serial = serial,
                        .timeout = milliseconds{100},
                        .data = {},
                        .claim = slices.claim(instant_at(0))});
  }
  static EpochBytes bundle_of(MemberId member, EpochBytes message) {
    return pack_bundle({{member, {}, std::move(message)}});
  }

  SliceLimits limits;
  Instant now = instant_at(1'000'000'000);
  ClusterLeader leader{{.name = "a", .term = 3, .is_first = true, .fanout = 1}, limits, now};
  MemberId a = join("a");
  MemberId b = join("b");
  MemberId c = join("c");
};

TEST_F(TreeTest, MembersAreToldTheirRelayAndTheLeadersOwnHasNone) {
  const auto routes = leader.take_routes();
  ASSERT_EQ(routes.size(), 1U);
  EXPECT_EQ(routes[0].to, c);
  EXPECT_EQ(routes[0].address, "b:1");
  leader.ended(b, now);
  const auto again = leader.take_routes();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].address, "") << "it is a direct member now";
}

TEST_F(TreeTest, ABundleIsAsGoodAsTheMessagesInIt) {
  ASSERT_TRUE(leader.receive_bundle(b, bundle_of(c, ready(1)), now));
  const auto out = leader.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, c);
  EXPECT_TRUE(std::holds_alternative<Start>(out[0].message));
  EXPECT_EQ(leader.way_to(c), b);
  ASSERT_TRUE(leader.receive(c, {}, ready(2), now));
  EXPECT_EQ(leader.way_to(c), c) << "its relay does not answer";
}

TEST_F(TreeTest, ARelayIsNotBelievedAboutMembersThatAreNotBelowIt) {
  ASSERT_TRUE(leader.receive_bundle(c, bundle_of(b, ready(1)), now));
  ASSERT_TRUE(leader.receive_bundle(b, bundle_of(a, ready(1)), now));
  ASSERT_TRUE(leader.receive_bundle(b, bundle_of(77, ready(1)), now)) << "it may have just left";
  EXPECT_TRUE(leader.take_outgoing().empty());
  EXPECT_EQ(leader.describe(now).rounds, 0U);
}

TEST_F(TreeTest, WhatARelayCarriesIsItsOwnFault) {
  EXPECT_FALSE(leader.receive_bundle(b, EpochBytes(3), now));
  EXPECT_FALSE(leader.receive_bundle(b, bundle_of(c, EpochBytes(9)), now));
  EXPECT_FALSE(leader.receive_bundle(b, bundle_of(c, encode(Refuse{-EIO, 1})), now));
  EXPECT_EQ(leader.describe(now).garbage, 3U);
}

TEST_F(TreeTest, MembersThatNameNoAddressHaveNoRelay) {
  const auto old =
      leader.greet({.protocol = kEpochProtocol, .name = "old", .incarnation = 1, .term = 3}, now);
  ASSERT_TRUE(old);
  for (const auto& route : leader.take_routes()) EXPECT_NE(route.to, old->id);
}

TEST_F(TreeTest, SchedulersOfOtherProgramsChooseTheirReduction) {
  const auto call = [&](MemberId from, const std::string& course, std::uint64_t serial,
                        EpochBytes data) {
    return leader.receive(from, course,
                          encode(Ready{.epoch = kFirstEpoch,
                                       .serial = serial,
                                       .timeout = milliseconds{100},
                                       .data = std::move(data),
                                       .claim = {}}),
                          now);
  };
  const auto answer_of = [&](const std::string& course) {
    EpochMessage last = Leave{};
    for (auto& out : leader.take_outgoing()) {
      if (out.course == course) last = std::move(out.message);
    }
    return last;
  };
  // b is alone in the first round; both are in the second.
  for (const std::string course : {"~max:x", "~gather:x"}) {
    ASSERT_TRUE(call(b, course, 1, pack_vector(EpochVector{1})));
    ASSERT_TRUE(call(c, course, 1, pack_vector(EpochVector{7, 1})));
    ASSERT_TRUE(call(b, course, 2, pack_vector(EpochVector{5})));
    const EpochMessage answer = answer_of(course);
    const auto* const start = std::get_if<Start>(&answer);
    ASSERT_NE(start, nullptr) << course;
    if (course == "~max:x") {
      EXPECT_EQ(unpack_vector(start->data), EpochVector{7}) << "as long as the shortest";
    } else {
      EXPECT_EQ(start->data.size(), 4U + 8 + 4 + 16) << "all of it, with its lengths";
      EXPECT_EQ(start->data[3], std::byte{8});
    }
  }
  ASSERT_TRUE(call(b, "~mean:x", 1, {}));
  const EpochMessage answer = answer_of("~mean:x");
  const auto* const refuse = std::get_if<Refuse>(&answer);
  ASSERT_NE(refuse, nullptr);
  EXPECT_EQ(refuse->error, -EINVAL);
}

}  // namespace
}  // namespace weir::cluster
