// SPDX-License-Identifier: Apache-2.0
//
// Conversions and watches of the table.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/lock/lock_table.h"

namespace weir::lock {
namespace {

using State = LockTable::State;
using Kind = LockTable::Event::Kind;
using Outcome = LockTable::Converted::Outcome;
using OrWait = LockTable::OrWait;

constexpr Mode kNl = Mode::kNull;
constexpr Mode kS = Mode::kShared;
constexpr Mode kX = Mode::kExclusive;

class Convert : public testing::Test {
 protected:
  LockTable::Enqueued want(LockTable::Session session, Mode mode, std::string_view name = "a") {
    return table.enqueue(session, ++cookie, name, mode, OrWait::kWait);
  }
  Outcome convert(LockTable::Session session, const LockTable::Enqueued& lock, Mode mode,
                  OrWait or_wait = OrWait::kWait) {
    return table.convert(session, lock.handle, mode, or_wait).outcome;
  }
  std::vector<LockTable::Event> events() { return std::exchange(table.events(), {}); }

  LockTable table{1};
  LockTable::Session one = table.open();
  LockTable::Session two = table.open();
  LockTable::Session three = table.open();
  std::uint64_t cookie = 0;
};

TEST_F(Convert, DownIsDoneAtOnceAndLetsOthersIn) {
  const auto writer = want(one, kX);
  const auto reader = want(two, kS);
  events();
  const auto down = table.convert(one, writer.handle, kS, OrWait::kWait);
  EXPECT_EQ(down.outcome, Outcome::kDone);
  EXPECT_EQ(down.fence, writer.fence) << "nobody can have held it in between";
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, Kind::kGranted);
  EXPECT_EQ(told[0].handle, reader.handle);
  EXPECT_FALSE(table.is_asked(writer.handle));
}

TEST_F(Convert, UpWaitsForOtherHoldersAheadOfNewOnes) {
  const auto mine = want(one, kS);
  const auto theirs = want(two, kS);
  const auto waits = want(three, kX);
  events();
  EXPECT_EQ(convert(one, mine, kX), Outcome::kWaits);
  EXPECT_EQ(want(two, kS).state, State::kWaiting) << "a stream of readers would starve it";
  EXPECT_EQ(table.converting(), 1U);
  events();
  table.cancel(two, theirs.handle);
  const auto told = events();
  ASSERT_GE(told.size(), 1U);
  EXPECT_EQ(told[0].kind, Kind::kConverted);
  EXPECT_EQ(told[0].mode, kX);
  EXPECT_GT(told[0].fence, theirs.fence);
  EXPECT_EQ(table.state(waits.handle), State::kWaiting);
  EXPECT_EQ(table.converting(), 0U);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Convert, HoldersInTheWayAreAsked) {
  const auto mine = want(one, kS);
  const auto theirs = want(two, kS);
  convert(one, mine, kX);
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, Kind::kAsked);
  EXPECT_EQ(told[0].handle, theirs.handle);
}

TEST_F(Convert, TheSecondOfTwoIsRefusedAndBothAreNamed) {
  const auto mine = want(one, kS);
  const auto theirs = want(two, kS);
  EXPECT_EQ(convert(one, mine, kX), Outcome::kWaits);
  const auto refused = table.convert(two, theirs.handle, kX, OrWait::kWait);
  EXPECT_EQ(refused.outcome, Outcome::kDeadlock);
  ASSERT_EQ(refused.cycle.size(), 2U);
  EXPECT_EQ(refused.cycle[0].session, two);
  EXPECT_EQ(refused.cycle[1].session, one);
  EXPECT_EQ(refused.cycle[1].held, kS);
  EXPECT_EQ(refused.cycle[1].wanted, kX);
  events();
  table.cancel(two, theirs.handle);
  EXPECT_EQ(events().at(0).kind, Kind::kConverted);
}

TEST_F(Convert, ATryDoesNotWait) {
  const auto mine = want(one, kS);
  const auto theirs = want(two, kS);
  EXPECT_EQ(convert(one, mine, kX, OrWait::kTry), Outcome::kWouldWait);
  table.cancel(two, theirs.handle);
  EXPECT_EQ(convert(one, mine, kX, OrWait::kTry), Outcome::kDone);
}

TEST_F(Convert, ToThePresentModeWithdrawsOneThatWaits) {
  const auto mine = want(one, kS);
  want(two, kS);
  const auto waits = want(three, kS);
  convert(one, mine, kX);
  const auto late = want(three, kS);
  EXPECT_EQ(late.state, State::kWaiting);
  const auto back = table.convert(one, mine.handle, kS, OrWait::kWait);
  EXPECT_EQ(back.outcome, Outcome::kDone);
  EXPECT_TRUE(back.has_withdrawn_one);
  EXPECT_EQ(table.state(late.handle), State::kGranted);
  EXPECT_EQ(table.state(waits.handle), State::kGranted);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Convert, OnlyWhatTheSessionHoldsIsConverted) {
  const auto mine = want(one, kX);
  const auto waits = want(two, kX);
  EXPECT_EQ(convert(two, mine, kS), Outcome::kUnknown);
  EXPECT_EQ(convert(two, waits, kS), Outcome::kUnknown);
  EXPECT_EQ(table.convert(one, 0, kS, OrWait::kWait).outcome, Outcome::kUnknown);
}

TEST_F(Convert, DuringRecoveryNothingIsConvertedUp) {
  const auto mine = want(one, kS);
  table.set_room(0);
  EXPECT_EQ(convert(one, mine, kX), Outcome::kWaits);
  EXPECT_TRUE(events().empty());
  table.set_room(10);
  EXPECT_EQ(events().at(0).kind, Kind::kConverted);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Convert, AReconnectedSessionReportsItsModes) {
  const auto lowered = want(one, kX, "lowered");
  const auto raised = want(one, kNl, "raised");
  const auto waits = want(one, kS, "waits");
  want(two, kS, "waits");
  convert(one, waits, kX);
  EXPECT_TRUE(table.keep(one, lowered.handle, kS));
  EXPECT_TRUE(table.keep(one, raised.handle, kNl));
  EXPECT_TRUE(table.keep(one, waits.handle, kS));
  EXPECT_EQ(table.converting(), 0U) << "the client sends it again";
  EXPECT_EQ(table.drop_unkept(one), 0U);
  EXPECT_EQ(want(two, kS, "lowered").state, State::kGranted);
  EXPECT_FALSE(table.keep(one, waits.handle, kX)) << "others hold it beside";
}

class Watch : public Convert {};

TEST_F(Watch, IsToldOnceWhenALockWouldBeGranted) {
  const auto holder = want(one, kS);
  EXPECT_TRUE(table.watch(two, 70, "a", kS)) << "free for readers";
  EXPECT_FALSE(table.watch(two, 71, "a", kX));
  EXPECT_EQ(table.watches(), 1U);
  EXPECT_EQ(events().at(0).kind, Kind::kAsked) << "its holder may only have it cached";
  table.cancel(one, holder.handle);
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, Kind::kFree);
  EXPECT_EQ(told[0].cookie, 71U);
  EXPECT_EQ(told[0].session, two);
  EXPECT_EQ(table.watches(), 0U);
  EXPECT_TRUE(table.watch(two, 72, "a", kX));
}

TEST_F(Watch, ComesAfterThoseWhoWait) {
  const auto first = want(one, kX);
  const auto second = want(two, kX);
  table.watch(three, 70, "a", kX);
  events();
  table.cancel(one, first.handle);
  EXPECT_EQ(events().size(), 1U) << "only the grant";
  table.cancel(two, second.handle);
  EXPECT_EQ(events().at(0).kind, Kind::kFree);
}

TEST_F(Watch, EndsWithItsSession) {
  want(one, kX);
  table.watch(two, 70, "a", kX);
  table.watch(two, 71, "a", kX);
  EXPECT_TRUE(table.unwatch(two, 70));
  EXPECT_FALSE(table.unwatch(two, 70));
  EXPECT_FALSE(table.unwatch(one, 71));
  table.close(two);
  EXPECT_EQ(table.watches(), 0U);
  events();
  table.close(one);
  EXPECT_TRUE(events().empty());
}

TEST_F(Watch, NamesTheHolders) {
  const auto first = want(one, kS);
  want(two, kS);
  std::vector<std::uint64_t> fences;
  const auto see = [&](const LockTable::Seen& seen) { fences.push_back(seen.fence); };
  EXPECT_EQ(table.visit_holders("a", 1, see), 2U);
  EXPECT_EQ(fences, std::vector<std::uint64_t>{first.fence});
  EXPECT_EQ(table.visit_holders("b", 1, see), 0U);
}

}  // namespace
}  // namespace weir::lock
