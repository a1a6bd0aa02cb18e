// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/term.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "weir/lock/client.h"

namespace weir::lock {
namespace {

using namespace std::chrono_literals;
using Ask = Candidate::Ask;

constexpr Instant kStart = Instant{} + 100s;

// A candidate that was asked for everything up to its campaign, which it has won.
Candidate leader(Instant now, std::uint64_t term = 4) {
  Candidate one;
  EXPECT_EQ(one.next(now), Ask::kLook);
  one.looked({.term = term - 1, .term_modified = 7}, now);
  EXPECT_EQ(one.next(now), Ask::kGrant);
  one.granted(11, 2s, now);
  EXPECT_EQ(one.next(now), Ask::kCampaign);
  one.campaigned(true, one.campaign_term(0));
  EXPECT_EQ(one.next(now), Ask::kLook);
  one.looked({.term = term, .term_modified = 8, .active = {{term, "a", "x:1", 11}}}, now);
  return one;
}

TEST(Candidate, LeadsWhileNobodyElseDoes) {
  Candidate one = leader(kStart);
  EXPECT_TRUE(one.leads());
  EXPECT_EQ(one.term(), 4U);
  EXPECT_EQ(one.before().term, 3U);
  EXPECT_EQ(one.next(kStart), Ask::kNothing);
}

TEST(Candidate, WaitsWhileAnotherIsActive) {
  Candidate one;
  EXPECT_EQ(one.next(kStart), Ask::kLook);
  const TermRecord record{.term = 3, .term_modified = 7, .active = {{3, "b", "y:1", 5}}};
  one.looked(record, kStart);
  EXPECT_EQ(one.next(kStart), Ask::kNothing);
  EXPECT_EQ(one.wakes_at(), kStart + Candidate::kLookEvery);
  one.changed();
  EXPECT_EQ(one.next(kStart + 1ms), Ask::kLook);
}

TEST(Candidate, ProvesItsTermForHalfOfItsLeaseAndRenewsEveryQuarter) {
  Candidate one = leader(kStart);
  EXPECT_EQ(one.proven_until(), kStart + 1s);
  EXPECT_EQ(one.wakes_at(), kStart + 500ms);
  EXPECT_EQ(one.next(kStart + 499ms), Ask::kNothing);
  EXPECT_EQ(one.next(kStart + 500ms), Ask::kRenew);
  one.renewed(2s, kStart + 500ms);
  EXPECT_EQ(one.proven_until(), kStart + 1500ms);
}

TEST(Candidate, StepsDownWhenItsLeaseCanHaveEnded) {
  Candidate one = leader(kStart);
  EXPECT_EQ(one.next(kStart + 600ms), Ask::kRenew);
  one.failed(kStart + 1100ms);
  EXPECT_TRUE(one.leads());
  EXPECT_EQ(one.next(kStart + 1200ms), Ask::kNothing);
  EXPECT_EQ(one.next(kStart + 1300ms), Ask::kRenew);
  one.failed(kStart + 1800ms);
  (void)one.next(kStart + 2s);
  EXPECT_FALSE(one.leads());
}

TEST(Candidate, StepsDownWhenItsLeaseOrItsKeyIsGone) {
  Candidate one = leader(kStart);
  one.lease_is_gone();
  EXPECT_FALSE(one.leads());
  Candidate two = leader(kStart);
  two.changed();
  EXPECT_EQ(two.next(kStart), Ask::kLook);
  two.looked({.term = 5, .term_modified = 9, .active = {{5, "b", "y:1", 12}}}, kStart);
  EXPECT_FALSE(two.leads());
}

TEST(Candidate, ACampaignWithoutAnAnswerIsWonIfTheRecordSaysSo) {
  Candidate one;
  (void)one.next(kStart);
  one.looked({.term = 3, .term_modified = 7}, kStart);
  (void)one.next(kStart);
  one.granted(11, 2s, kStart);
  EXPECT_EQ(one.next(kStart), Ask::kCampaign);
  one.failed(kStart + 10ms);
  EXPECT_EQ(one.next(kStart + 20ms), Ask::kNothing);
  EXPECT_EQ(one.next(kStart + 210ms), Ask::kLook);
  one.looked({.term = 4, .term_modified = 8, .active = {{4, "a", "x:1", 11}}}, kStart + 210ms);
  EXPECT_TRUE(one.leads());
  EXPECT_EQ(one.term(), 4U);
  EXPECT_EQ(one.before().term, 3U);
}

TEST(Candidate, ALostCampaignIsFollowedByAnotherLook) {
  Candidate one;
  (void)one.next(kStart);
  one.looked({}, kStart);
  (void)one.next(kStart);
  one.granted(11, 2s, kStart);
  (void)one.next(kStart);
  one.campaigned(false, 1);
  EXPECT_FALSE(one.leads());
  EXPECT_EQ(one.next(kStart), Ask::kLook);
}

TEST(Candidate, TermsAreLargerThanAllBefore) {
  Candidate one;
  one.looked({.term = 9, .term_modified = 7}, kStart);
  EXPECT_EQ(one.campaign_term(3), 10U);
  EXPECT_EQ(one.campaign_term(30), 31U);
}

// ---- succession ----

constexpr Nanoseconds kLease = 30s;

Succession after(const TermRecord& before, OwnState own = OwnState::kClean) {
  return succession_of(before, 10, own, kLease, 2s);
}

TEST(Succession, TheFirstServerTrustsItsOwnState) {
  EXPECT_EQ(after({}).start, LockServer::Start::kFresh);
  const Succession unknown = after({}, OwnState::kUnknown);
  EXPECT_EQ(unknown.start, LockServer::Start::kRecovering);
  EXPECT_EQ(unknown.grace, kLease);
}

TEST(Succession, AfterACrashTheGracePeriodIsShorterByWhatTheTermOutlivedItsProof) {
  const Succession next = after({.term = 9, .term_modified = 1});
  EXPECT_EQ(next.start, LockServer::Start::kRecovering);
  EXPECT_EQ(next.grace, kLease - 750ms);
  EXPECT_TRUE(next.clients.empty());
  // Worst case: the server crashes just after it has renewed its lease, and etcd notices late.
  EXPECT_LE(2s + 500ms + next.grace, kLease + 2s);
  // The last lease that it can have confirmed has ended, with clocks that differ by 8 %.
  EXPECT_GE((2s + next.grace) * 92 / 100, (1s + client_lease(kLease)) * 108 / 100);
}

TEST(Succession, AfterAnOrderlyStopItWaitsForTheClientsThatMayHoldLocks) {
  const Handover left{.term = 9, .knows = Handover::Knows::kClients, .clients = {7, 8}};
  const Succession next = after({.term = 9, .term_modified = 1, .left = left});
  EXPECT_EQ(next.start, LockServer::Start::kRecovering);
  EXPECT_EQ(next.grace, kLease);
  EXPECT_EQ(next.clients, (std::vector<std::uint64_t>{7, 8}));
  const Handover nobody{.term = 9, .knows = Handover::Knows::kClients};
  EXPECT_EQ(after({.term = 9, .term_modified = 1, .left = nobody}).start,
            LockServer::Start::kFresh);
  const Handover unknown{.term = 9};
  EXPECT_EQ(after({.term = 9, .term_modified = 1, .left = unknown}).grace, kLease);
}

TEST(Succession, TheHandoverOfAnEarlierTermDoesNotCount) {
  const Handover left{.term = 8, .knows = Handover::Knows::kClients};
  const Succession next = after({.term = 9, .term_modified = 1, .left = left});
  EXPECT_EQ(next.start, LockServer::Start::kRecovering);
  EXPECT_EQ(next.grace, kLease - 750ms);
}

// ---- servers ----

// A client that is connected, and its messages carried at once.
struct Attached {
  Attached(LockServer& to, LockServer::Connection connection, Instant now)
      : server(&to), number(connection), client(ClientOptions{}) {
    attach(to, connection, now);
  }
  void attach(LockServer& to, LockServer::Connection connection, Instant now) {
    client.disconnected();
    server = &to;
    number = connection;
    to.connect(connection, now);
    client.connected(now);
    carry(now);
  }
  void carry(Instant now) {
    while (client.has_message(now)) server->receive(number, client.take(now), now);
    client.receive(server->take(number), now);
  }
  bool holds(LockClient::Ticket ticket) const { return client.is_held(ticket); }

  LockServer* server;
  LockServer::Connection number;
  LockClient client;
};

LockClient::Acquired take(Attached& one, std::string_view name, Instant now) {
  const auto taken = one.client.acquire(name, Mode::kExclusive, LockTable::OrWait::kWait, now);
  one.carry(now);
  return taken;
}

TEST(Handover, NamesTheClientsThatMayHoldLocks) {
  LockServer server({}, 5, LockServer::Start::kFresh, kStart);
  Attached holder(server, 1, kStart);
  Attached idle(server, 2, kStart);
  Attached waiter(server, 3, kStart);
  take(holder, "a", kStart);
  take(waiter, "a", kStart);
  const Handover left = handover_of(server);
  EXPECT_EQ(left.term, 5U);
  EXPECT_EQ(left.knows, Handover::Knows::kClients);
  EXPECT_EQ(left.clients.size(), 2U);
  const LockServer recovering({}, 6, LockServer::Start::kRecovering, kStart);
  EXPECT_EQ(handover_of(recovering).knows, Handover::Knows::kNothing);
}

TEST(Handover, TheGracePeriodEndsWhenAllHaveReported) {
  LockServer first({}, 5, LockServer::Start::kFresh, kStart);
  Attached one(first, 1, kStart);
  Attached two(first, 2, kStart);
  const auto held = take(one, "a", kStart);
  take(two, "b", kStart);
  LockServer next({}, 6, LockServer::Start::kRecovering, kStart);
  next.await(handover_of(first).clients);
  Attached fresh(next, 1, kStart);
  const auto wanted = take(fresh, "c", kStart + 1ms);
  one.attach(next, 2, kStart + 2ms);
  next.tick(kStart + 2ms);
  EXPECT_TRUE(next.is_recovering());
  two.attach(next, 3, kStart + 3ms);
  EXPECT_LE(next.next_tick(), kStart + 3ms);
  next.tick(kStart + 3ms);
  EXPECT_FALSE(next.is_recovering());
  fresh.carry(kStart + 3ms);
  EXPECT_TRUE(fresh.holds(wanted.ticket));
  EXPECT_TRUE(one.holds(held.ticket));
}

TEST(Handover, AClientThatDoesNotReportIsAwaitedForTheGracePeriod) {
  const ServerOptions options{.lease = 24s, .grace = 30s};
  LockServer first(options, 5, LockServer::Start::kFresh, kStart);
  Attached one(first, 1, kStart);
  take(one, "a", kStart);
  LockServer next(options, 6, LockServer::Start::kRecovering, kStart);
  next.await(handover_of(first).clients);
  next.tick(kStart + 29s);
  EXPECT_TRUE(next.is_recovering());
  next.tick(kStart + 30s);
  EXPECT_FALSE(next.is_recovering());
}

// What storage that compares fences sees if a server acts although its term has ended.
TEST(Fences, OfTwoServersThatBothBelieveTheyAreActiveTheNextTermWins) {
  LockServer old({}, 5, LockServer::Start::kFresh, kStart);
  LockServer next({}, 6, LockServer::Start::kFresh, kStart);
  Attached to_old(old, 1, kStart);
  Attached to_next(next, 1, kStart);
  std::uint64_t last = 0;
  const auto fence_of = [](Attached& client) {
    const auto taken = take(client, "a", kStart);
    for (const LockClient::Event& event : client.client.events()) {
      if (event.ticket == taken.ticket) return event.fence;
    }
    return taken.fence;
  };
  last = fence_of(to_next);
  EXPECT_GT(last, 0U);
  EXPECT_LT(fence_of(to_old), last);
}

}  // namespace
}  // namespace weir::lock
