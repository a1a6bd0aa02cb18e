// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/cluster_rules.h"

#include <array>
#include <cerrno>
#include <deque>
#include <map>

#include <gtest/gtest.h>

#include "weir/coordinate/leader.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/vectors.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// One server, in a cluster of one or without a cluster.
struct Server {
  Server() {
    EXPECT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, {}));
    EXPECT_TRUE(target.write_rule("start wide jobid={*} rate=1000 by=rule scope=cluster", at(0)));
  }
  ~Server() {
    EXPECT_TRUE(target.write_rule("stop wide", at(1'000'000)));  // whose limit would hold
    target.shutdown(at(1'000'000));
    served(1'000'000);
  }
  // Exchanges messages in both directions.
  void exchange(std::int64_t ms) {
    for (int turn = 0; turn < 3; ++turn) {
      for (const EpochMessage& message : member.take_outgoing()) leader.receive(1, message, at(ms));
      for (const auto& out : leader.take_outgoing()) member.receive(out.message, at(ms));
    }
  }
  void send(int count, std::int64_t ms) {
    for (int i = 0; i < count; ++i) target.admit(requests.emplace_back(), Head::kRegular, at(ms));
  }
  void grant(std::uint64_t rate) {
    const ClassSlice slice{.rule = "wide",
                           .key = std::nullopt,
                           .slice = {.ops = Rate::per_second(rate), .bytes = std::nullopt}};
    target.set_slices({&slice, 1}, at(0));
  }
  int served(std::int64_t ms) {
    int count = 0;
    for (;;) {
      const Decision decision = target.next(at(ms));
      if (decision.kind() != Decision::Kind::kRun) return count;
      target.complete(decision.request(), at(ms));
      ++count;
    }
  }

  Target target{{.gate = {.slots = 1000, .rules = {.in_cluster = true}}}, {}};
  SliceMember slices{{}};
  EpochMember member{{.payload = &slices}};
  ClusterRules rules{target, slices, milliseconds{10}};
  EpochParticipant participant{member, rules, {}};
  SliceLeader slice_leader{{.is_first = true},
                           [](std::string_view name) -> std::optional<std::int64_t> {
                             if (name != "wide/ops") return std::nullopt;
                             return 1000 * kMilli;
                           },
                           at(0)};
  EpochLeader leader{{.term = 1, .combine = add_vectors, .payload = &slice_leader}};
  std::deque<Request> requests;
};

TEST(ClusterRules, AServerThatIsAloneInItsClusterGetsAllOfTheLimit) {
  Server server;
  server.participant.start(at(0));
  server.send(1000, 0);
  EXPECT_EQ(server.served(1), 0) << "the least rate until the first grant";
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

TEST(ClusterRules, BeforeTheFirstEpochItRunsAtThePartOfOneThatIsCutOff) {
  Server server;
  server.slices.expect_members(4);
  server.rules.follow(at(0));
  server.send(1000, 0);
  EXPECT_EQ(server.served(0), 0) << "a restart finds an empty bucket";
  int served = 0;
  for (std::int64_t ms = 1; ms <= 4000; ++ms) served += server.served(ms);
  EXPECT_EQ(served, 4 * 1000 / 40);
}

TEST(ClusterRules, ARuleThatIsChangedBeforeTheFirstEpochIsFollowed) {
  Server server;
  server.slices.expect_members(1);
  server.rules.follow(at(0));
  ASSERT_TRUE(server.target.write_rule("change wide rate=100", at(0)));
  server.rules.follow(at(0));
  server.send(1000, 0);
  int served = 0;
  for (std::int64_t ms = 1; ms <= 1000; ++ms) served += server.served(ms);
  EXPECT_EQ(served, 10);
}

TEST(ClusterRules, TheAdministratorSeesTheLimitAndNotTheSlice) {
  Server server;
  const RuleView& rules_now = *server.target.rules(Head::kRegular);
  const std::string before = rules_now.rules(Head::kRegular).find("wide")->listing_line();
  server.participant.start(at(0));
  server.exchange(1);
  EXPECT_EQ(rules_now.rules(Head::kRegular).find("wide")->listing_line(), before);
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

// One job on two servers, under a rule that limits each matching job separately.
struct Pair {
  explicit Pair(const std::string& rule) : name(rule.substr(6, rule.find(' ', 6) - 6)) {
    for (One& one : servers) {
      EXPECT_TRUE(one.target.set_policy("tbf", "jobid", Heads::kBoth, {}));
      EXPECT_TRUE(one.target.write_rule(rule, at(0)));
    }
  }
  ~Pair() {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(servers[i].target.write_rule("stop " + name, at(1'000'000)));
      servers[i].target.shutdown(at(1'000'000));
      served(i, 1'000'000);
    }
  }
  struct One {
    Target target{{.gate = {.slots = 1000, .rules = {.in_cluster = true, .classes_max = 64}}}, {}};
    SliceMember slices{{}};
    EpochMember member{{.payload = &slices}};
    ClusterRules rules{target, slices, milliseconds{10}};
    EpochParticipant participant{member, rules, {}};
    std::map<std::string, int> counts;
  };
  void exchange(std::int64_t ms) {
    for (int turn = 0; turn < 3; ++turn) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (const EpochMessage& message : servers[i].member.take_outgoing()) {
          leader.receive(i, message, at(ms));
        }
      }
      for (const auto& out : leader.take_outgoing()) {
        servers[out.to].member.receive(out.message, at(ms));
      }
    }
  }
  void send(std::size_t server, const std::string& job, int count, std::int64_t ms,
            Bytes bytes = Bytes{4096}) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.job = JobId(job);
      request.bytes = bytes;
      servers[server].target.admit(request, Head::kRegular, at(ms));
    }
  }
  void served(std::size_t server, std::int64_t ms) {
    One& one = servers[server];
    for (;;) {
      const Decision decision = one.target.next(at(ms));
      if (decision.kind() != Decision::Kind::kRun) return;
      ++one.counts[std::string(decision.request().attributes.job.text())];
      one.target.complete(decision.request(), at(ms));
    }
  }
  // Runs both servers from one time to another, and counts the served requests of each.
  void run(std::int64_t from_ms, std::int64_t to_ms) {
    for (One& one : servers) one.counts.clear();
    for (std::int64_t ms = from_ms; ms < to_ms; ++ms) step(ms);
  }
  void step(std::int64_t ms) {
    for (One& one : servers) one.participant.tick(at(ms));
    exchange(ms);
    for (std::size_t i = 0; i < 2; ++i) served(i, ms);
  }
  void start() {
    for (One& one : servers) one.participant.start(at(0));
    exchange(0);
  }
  std::optional<std::int64_t> limit_of(std::string_view slice) const {
    const std::string_view limit = limit_name(slice);
    const std::size_t slash = limit.find('/');
    const RuleList& rules = servers[0].target.rules(Head::kRegular)->rules(Head::kRegular);
    const Rule* const rule = rules.find(limit.substr(0, slash));
    return rule == nullptr ? std::nullopt
                           : slice_limit(rule->limits(), limit.substr(slash) == "/bytes");
  }

  std::string name;  // of the rule
  std::deque<Request> requests;
  std::array<One, 2> servers;
  SliceLeader slice_leader{
      {.is_first = true}, [this](std::string_view slice) { return limit_of(slice); }, at(0)};
  EpochLeader leader{{.term = 1, .combine = add_vectors, .payload = &slice_leader}};
};

TEST(ClusterRules, EachJobHasItsOwnLimitOnAllServersTogether) {
  Pair pair("start each jobid={*} rate=1000 scope=cluster");
  pair.start();
  for (const std::size_t server : {0U, 1U}) {
    pair.send(server, "a", 3000, 1);
    pair.send(server, "b", 3000, 1);
  }
  pair.run(1, 101);
  pair.run(101, 1101);
  auto& one = pair.servers[0].counts;
  auto& two = pair.servers[1].counts;
  EXPECT_NEAR(one["a"] + two["a"], 1000, 30);
  EXPECT_NEAR(one["b"] + two["b"], 1000, 30);
  EXPECT_NEAR(one["a"], 500, 50) << "its work is the same on both";
}

TEST(ClusterRules, AJobWhoseWorkIsOnOneServerHasItsWholeLimitThere) {
  Pair pair("start each jobid={*} rate=1000 scope=cluster");
  pair.start();
  pair.send(0, "a", 3000, 1);
  pair.send(1, "b", 3000, 1);
  pair.run(1, 101);
  pair.run(101, 1101);
  EXPECT_NEAR(pair.servers[0].counts["a"], 1000, 30);
  EXPECT_NEAR(pair.servers[1].counts["b"], 1000, 30);
}

TEST(ClusterRules, AllJobsOfARuleByRuleShareOneLimit) {
  Pair pair("start wide jobid={*} rate=1000 by=rule scope=cluster");
  pair.start();
  pair.send(0, "a", 3000, 1);
  pair.send(1, "b", 3000, 1);
  pair.run(1, 101);
  pair.run(101, 1101);
  EXPECT_NEAR(pair.servers[0].counts["a"] + pair.servers[1].counts["b"], 1000, 30);
}

// Every window of 5 s: 5 x 5, a token of each server, and 10 ms of the limit, which is none.
TEST(ClusterRules, TheLowestLimitsHoldInEveryWindow) {
  Pair pair("start wide jobid={*} rate=5 by=rule scope=cluster");
  pair.start();
  std::vector<std::int64_t> times;
  for (std::int64_t ms = 1; ms <= 60'000; ++ms) {
    // High load on both, then on one, then on the other.
    const std::int64_t phase = ms / 7'000 % 3;
    for (const std::size_t server : {0U, 1U}) {
      const bool is_hot = phase == 0 || phase == static_cast<std::int64_t>(server) + 1;
      if (is_hot && pair.servers[server].target.queued() < 20) pair.send(server, "a", 1, ms);
    }
    for (auto& one : pair.servers) one.counts.clear();
    pair.step(ms);
    for (auto& one : pair.servers) times.insert(times.end(), std::size_t(one.counts["a"]), ms);
  }
  EXPECT_GE(times.size(), 60U * 5 * 90 / 100);
  for (std::size_t first = 0, last = 0; last < times.size(); ++last) {
    while (times[first] <= times[last] - 5000) ++first;
    ASSERT_LE(last - first + 1, 25U + 2) << "up to " << times[last] << " ms";
  }
}

TEST(ClusterRules, AJobThatIsGoneGivesItsPlaceBack) {
  Pair pair("start each jobid={*} rate=1000 scope=cluster");
  pair.start();
  for (int job = 0; job < 5; ++job) {
    std::string name = "job";
    name += std::to_string(job);
    pair.send(0, name, 100, 1);
  }
  pair.run(1, 501);
  EXPECT_EQ(pair.servers[0].rules.classes(), 5U);
  EXPECT_EQ(pair.servers[0].slices.open_classes(), 5U);
  EXPECT_EQ(pair.servers[1].rules.classes(), 0U) << "it has nothing to ask for";
  pair.run(501, 3001);
  EXPECT_EQ(pair.servers[0].rules.classes(), 0U);
  EXPECT_EQ(pair.servers[0].slices.open_classes(), 0U);
  pair.send(1, "job3", 3000, 3001);
  pair.run(3001, 3101);
  pair.run(3101, 4101);
  EXPECT_NEAR(pair.servers[1].counts["job3"], 1000, 30);
}

// One of two servers has small requests at a steady rate, the other has a backlog of large ones. If
// demand were counted in requests, the first would seem to need almost nothing.
TEST(ClusterRules, DemandIsInTokensOfTheRule) {
  Pair pair("start each jobid={*} rate=400000 cost=bytes burst=8192 by=rule scope=cluster");
  pair.start();
  pair.send(1, "a", 1000, 1, Bytes{4000});
  for (std::int64_t ms = 1; ms < 2201; ++ms) {
    pair.send(0, "a", 1, ms, Bytes{100});
    if (ms == 201) {
      for (auto& one : pair.servers) one.counts.clear();
    }
    pair.step(ms);
  }
  EXPECT_NEAR(100 * pair.servers[0].counts["a"], 200'000, 6'000) << "all it sent";
  EXPECT_NEAR(4000 * pair.servers[1].counts["a"], 600'000, 20'000) << "the rest of the limit";
}

TEST(ClusterRules, TheNameOfASliceSaysWhichLimitItIsOf) {
  EXPECT_EQ(limit_name("wide/ops"), "wide/ops");
  EXPECT_EQ(limit_name("ost_io/each/bytes:a/b:c+500"), "ost_io/each/bytes");
}

TEST(RuleGauge, CountsWhatWasServedAndWhatWaits) {
  Server server;
  const RuleView& rules = *server.target.rules(Head::kRegular);
  server.grant(1000);
  RuleGauge gauge("wide", at(0));
  server.send(5, 0);
  EXPECT_EQ(gauge.measure(rules, at(10)).ops, 500 * kMilli);
  const int served = server.served(20);
  EXPECT_GT(served, 0);
  server.send(served, 20);
  EXPECT_EQ(gauge.measure(rules, at(20)).ops, (served + 5) * 100 * kMilli) << "as many came";
}

// The requests of a load that has ended are not counted again when they are served.
TEST(RuleGauge, SeesTheEndOfALoadInTheNextEpoch) {
  Server server;
  const RuleView& rules = *server.target.rules(Head::kRegular);
  server.grant(1000);
  RuleGauge gauge("wide", at(0));
  server.send(5, 0);
  const int served = server.served(2);
  EXPECT_LT(served, 5);
  EXPECT_EQ(gauge.measure(rules, at(10)).ops, 500 * kMilli);
  EXPECT_EQ(server.served(15), 5 - served);
  EXPECT_EQ(gauge.measure(rules, at(20)).ops, 0) << "nothing came";
  server.send(1, 21);
  EXPECT_EQ(gauge.measure(rules, at(30)).ops, 100 * kMilli);
}

// Demand beyond the limit cannot be used, and long queues take long to count.
TEST(RuleGauge, CountsNoMoreThanTheLimitLetsThrough) {
  Server server;
  RuleGauge gauge("wide", at(0));
  server.send(1000, 0);
  EXPECT_EQ(gauge.measure(*server.target.rules(Head::kRegular), at(10)).ops, 1100 * kMilli);
}

}  // namespace
}  // namespace weir
