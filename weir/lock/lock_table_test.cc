// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/lock_table.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace weir::lock {
namespace {

using State = LockTable::State;
using Kind = LockTable::Event::Kind;

constexpr Mode kS = Mode::kShared;
constexpr Mode kX = Mode::kExclusive;

class Table : public testing::Test {
 protected:
  LockTable::Enqueued want(LockTable::Session session, Mode mode, std::string_view name = "a",
                           LockTable::OrWait or_wait = LockTable::OrWait::kWait) {
    return table.enqueue(session, ++cookie, name, mode, or_wait);
  }
  std::vector<LockTable::Event> events() { return std::exchange(table.events(), {}); }

  LockTable table{1};
  LockTable::Session one = table.open();
  LockTable::Session two = table.open();
  LockTable::Session three = table.open();
  std::uint64_t cookie = 0;
};

TEST_F(Table, SharesAmongReadersAndExcludesWriters) {
  EXPECT_EQ(want(one, kS).state, State::kGranted);
  EXPECT_EQ(want(two, kS).state, State::kGranted);
  EXPECT_EQ(want(three, kX).state, State::kWaiting);
  EXPECT_EQ(want(three, kX, "b").state, State::kGranted);
  EXPECT_EQ(want(one, kS, "b").state, State::kWaiting);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Table, ReadersDoNotOvertakeAWriter) {
  const auto reader = want(one, kS);
  const auto writer = want(two, kX);
  const auto later = want(three, kS);
  EXPECT_EQ(later.state, State::kWaiting);
  events();
  table.cancel(one, reader.handle);
  const auto woken = events();
  ASSERT_EQ(woken.size(), 2U);
  EXPECT_EQ(woken[0].kind, Kind::kGranted);
  EXPECT_EQ(woken[0].handle, writer.handle);
  EXPECT_EQ(woken[1].kind, Kind::kAsked);  // the next reader already waits for it
  EXPECT_EQ(woken[1].handle, writer.handle);
  EXPECT_EQ(table.state(later.handle), State::kWaiting);
}

TEST_F(Table, OneCancelWakesAllReadersInFront) {
  const auto writer = want(one, kX);
  want(two, kS);
  want(three, kS);
  const auto last = want(one, kX);
  events();
  table.cancel(one, writer.handle);
  const auto woken = events();
  EXPECT_EQ(woken.size(), 4U);  // two grants, and both are asked for the writer behind
  EXPECT_EQ(table.state(last.handle), State::kWaiting);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Table, HoldersAreAskedOnce) {
  const auto reader = want(one, kS);
  want(two, kX);
  want(three, kX);
  const auto asked = events();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].kind, Kind::kAsked);
  EXPECT_EQ(asked[0].handle, reader.handle);
  EXPECT_TRUE(table.is_asked(reader.handle));
}

TEST_F(Table, AWithdrawnWriterLetsReadersPass) {
  want(one, kS);
  const auto writer = want(two, kX);
  const auto reader = want(three, kS);
  events();
  EXPECT_EQ(table.cancel(two, writer.handle), State::kWaiting);
  const auto woken = events();
  ASSERT_EQ(woken.size(), 1U);
  EXPECT_EQ(woken[0].handle, reader.handle);
}

TEST_F(Table, ATryIsRefusedWhereItWouldWait) {
  want(one, kX);
  EXPECT_EQ(want(two, kS, "a", LockTable::OrWait::kTry).handle, 0U);
  EXPECT_EQ(want(two, kS, "b", LockTable::OrWait::kTry).state, State::kGranted);
  EXPECT_EQ(table.resources(), 2U);
  EXPECT_TRUE(events().empty());  // a try asks no holder
}

TEST_F(Table, CancellingWhatOneDoesNotHoldIsRefused) {
  const auto mine = want(one, kX);
  EXPECT_EQ(table.cancel(two, mine.handle), State::kFree);
  EXPECT_EQ(table.cancel(one, mine.handle), State::kGranted);
  EXPECT_EQ(table.cancel(one, mine.handle), State::kFree);  // twice
  for (const LockTable::Handle handle : {std::uint64_t{0}, UINT64_MAX, mine.handle + 7}) {
    EXPECT_EQ(table.cancel(one, handle), State::kFree);
  }
  // The slot has a new owner; the old handle does not reach it.
  const auto next = want(one, kX);
  EXPECT_NE(next.handle, mine.handle);
  EXPECT_EQ(table.cancel(one, mine.handle), State::kFree);
  EXPECT_EQ(table.granted(), 1U);
}

TEST_F(Table, ClosingASessionGivesBackAllItHas) {
  want(one, kX, "a");
  want(one, kX, "b");
  want(two, kX, "a");
  want(one, kX, "a");
  EXPECT_EQ(table.close(one), 2U);
  EXPECT_EQ(table.granted(), 1U);
  EXPECT_EQ(table.waiting(), 0U);
  EXPECT_EQ(table.resources(), 1U);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Table, FencesGrowAcrossRestarts) {
  const auto first = want(one, kS, "a");
  const auto second = want(two, kS, "a");
  EXPECT_GT(second.fence, first.fence);
  LockTable restarted(2);
  const auto after = restarted.enqueue(restarted.open(), 1, "a", kS, LockTable::OrWait::kWait);
  EXPECT_GT(after.fence, second.fence);
}

TEST_F(Table, ReplayTakesOverUnlessItConflicts) {
  const auto held = want(one, kX);
  LockTable restarted(2);
  restarted.set_room(0);
  const auto a = restarted.open();
  const auto b = restarted.open();
  EXPECT_NE(restarted.replay(a, 1, "a", kX, held.fence), 0U);
  EXPECT_EQ(restarted.replay(b, 1, "a", kX, held.fence), 0U);
  EXPECT_EQ(restarted.replay(b, 1, "a", kS, held.fence), 0U);
  EXPECT_NE(restarted.replay(b, 1, "b", kS, held.fence), 0U);
  EXPECT_EQ(restarted.replay(b, 1, "c", kS, 0), 0U);
  EXPECT_EQ(restarted.replay(b, 1, "c", kS, UINT64_MAX), 0U);  // never issued
  EXPECT_EQ(restarted.granted(), 2U);
}

TEST_F(Table, WithoutRoomEnqueuesAreParkedInOrder) {
  table.set_room(2);
  const auto a = want(one, kS, "a");
  want(two, kX, "a");  // waits, and takes room
  const auto c = want(three, kX, "c");
  const auto d = want(three, kX, "d");
  EXPECT_EQ(c.state, State::kParked);
  EXPECT_EQ(want(three, kX, "e", LockTable::OrWait::kTry).handle, 0U);
  events();
  table.cancel(one, a.handle);
  EXPECT_EQ(table.state(c.handle), State::kGranted);
  EXPECT_EQ(table.state(d.handle), State::kParked);
  EXPECT_EQ(events().size(), 2U);
  EXPECT_EQ(table.cancel(three, d.handle), State::kParked);
  EXPECT_TRUE(table.is_valid());
}

TEST_F(Table, RoomZeroStopsAllGrants) {
  table.set_room(0);
  const auto a = want(one, kS);
  EXPECT_EQ(a.state, State::kParked);
  table.set_room(10);
  EXPECT_EQ(table.state(a.handle), State::kGranted);
  EXPECT_EQ(events().size(), 1U);
}

TEST_F(Table, AReconnectedSessionKeepsWhatItNames) {
  const auto kept = want(one, kX, "a");
  const auto forgotten = want(one, kX, "b");
  const auto waiting = want(two, kX, "b");
  EXPECT_TRUE(table.keep(one, kept.handle, kX));
  EXPECT_FALSE(table.keep(one, waiting.handle, kX));
  EXPECT_EQ(table.drop_unkept(one), 1U);
  EXPECT_EQ(table.state(kept.handle), State::kGranted);
  EXPECT_EQ(table.state(forgotten.handle), State::kFree);
  EXPECT_EQ(table.state(waiting.handle), State::kGranted);
  EXPECT_EQ(table.close(one), 1U);
}

TEST_F(Table, NamesAreBounded) {
  EXPECT_FALSE(LockTable::is_name(""));
  EXPECT_TRUE(LockTable::is_name(std::string(kNameMax, 'x')));
  EXPECT_FALSE(LockTable::is_name(std::string(10'240, 'x')));
  EXPECT_EQ(want(one, kX, std::string_view("\0\xff", 2)).state, State::kGranted);
}

}  // namespace
}  // namespace weir::lock
