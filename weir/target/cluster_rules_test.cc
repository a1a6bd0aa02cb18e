// SPDX-License-Identifier: Apache-2.0
#include "weir/target/cluster_rules.h"

#include <cerrno>
#include <deque>

#include <gtest/gtest.h>

#include "weir/coordinate/leader.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/vectors.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// One server in a cluster of its own, or alone.
struct Server {
  Server() {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
    EXPECT_TRUE(gate.apply_rule("start wide jobid={*} rate=1000 by=rule scope=cluster", at(0)));
  }
  ~Server() {
    gate.shutdown(at(1'000'000));
    served(1'000'000);
  }
  // Carries messages to and fro.
  void exchange(std::int64_t ms) {
    for (int turn = 0; turn < 3; ++turn) {
      for (const EpochMessage& message : member.take_outgoing()) leader.receive(1, message, at(ms));
      for (const auto& out : leader.take_outgoing()) member.receive(out.message, at(ms));
    }
  }
  void send(int count, std::int64_t ms) {
    for (int i = 0; i < count; ++i) gate.admit(requests.emplace_back(), Head::kRegular, at(ms));
  }
  int served(std::int64_t ms) {
    int count = 0;
    for (;;) {
      const Decision decision = gate.next(at(ms));
      if (decision.kind() != Decision::Kind::kRun) return count;
      gate.complete(decision.request(), at(ms));
      ++count;
    }
  }

  Gate gate{{.slots = 1000}};
  SliceMember slices{{}};
  EpochMember member{{.rider = &slices}};
  ClusterRules rules{gate, slices, milliseconds{10}};
  EpochParticipant participant{member, rules, {}};
  SliceLeader slice_leader{{.is_first = true},
                           [](std::string_view name) -> std::optional<std::int64_t> {
                             if (name != "wide/ops") return std::nullopt;
                             return 1000 * kMilli;
                           },
                           at(0)};
  EpochLeader leader{{.term = 1, .combine = add_vectors, .rider = &slice_leader}};
  std::deque<Request> requests;
};

TEST(ClusterRules, AServerThatIsAloneInItsClusterGetsAllOfTheLimit) {
  Server server;
  server.participant.start(at(0));
  server.send(1000, 0);
  EXPECT_LE(server.served(1), 3) << "the least rate until the first grant";
  server.exchange(1);
  EXPECT_GT(server.participant.epoch(), 0);
  int served = 0;
  for (std::int64_t ms = 2; ms <= 502; ++ms) {
    server.participant.tick(at(ms));
    server.exchange(ms);
    served += server.served(ms);
  }
  EXPECT_NEAR(served, 500, 15);
}

TEST(ClusterRules, TheAdministratorSeesTheLimitAndNotTheSlice) {
  Server server;
  const Tbf& tbf = *server.gate.tbf(Head::kRegular);
  const std::string before = tbf.rules(Head::kRegular).find("wide")->listing_line();
  server.participant.start(at(0));
  server.exchange(1);
  EXPECT_EQ(tbf.rules(Head::kRegular).find("wide")->listing_line(), before);
}

TEST(ClusterRules, CutOffItFallsBackWhenTheLeaseEnds) {
  Server server;
  server.participant.start(at(0));
  server.exchange(1);
  server.send(3000, 1);
  EXPECT_EQ(server.rules.next_apply(at(2)), at(400));
  int leased = 0;
  for (std::int64_t ms = 2; ms < 400; ++ms) leased += server.served(ms);
  EXPECT_NEAR(leased, 400, 15);
  server.rules.apply(at(400));
  server.served(400);
  int alone = 0;
  for (std::int64_t ms = 401; ms <= 1400; ++ms) alone += server.served(ms);
  EXPECT_NEAR(alone, 100, 4) << "limit / (10 x 1 member)";
}

TEST(ClusterRules, ItLeavesAtShutdown) {
  Server server;
  server.participant.start(at(0));
  server.exchange(1);
  EXPECT_EQ(server.leader.members(), 1U);
  server.participant.shutdown(at(2));
  server.exchange(2);
  EXPECT_EQ(server.leader.members(), 0U);
  EXPECT_EQ(server.leader.state(), EpochLeader::State::kIdle);
}

TEST(ClusterRules, AfterAnErrorItJoinsAnew) {
  Server server;
  server.participant.start(at(0));
  server.member.lose_leader(at(1));
  EXPECT_EQ(server.participant.errors(), 1U);
  EXPECT_EQ(server.participant.epoch(), kFirstEpoch);
  server.participant.tick(at(11));
  server.exchange(11);
  EXPECT_EQ(server.participant.epochs(), 1U);
}

// A gauge that asks for the demand of 100 requests waiting after 10 ms.
TEST(RuleGauge, CountsWhatWasServedAndWhatWaits) {
  Server server;
  Tbf& tbf = *server.gate.tbf(Head::kRegular);
  RuleGauge gauge("wide", at(0));
  server.send(100, 0);
  EXPECT_EQ(gauge.measure(tbf, at(10)).ops, 10'000 * kMilli);
  const int served = server.served(20);
  EXPECT_GT(served, 0);
  EXPECT_EQ(gauge.measure(tbf, at(20)).ops, 10'000 * kMilli);
}

}  // namespace
}  // namespace weir
