// SPDX-License-Identifier: Apache-2.0
//
// Groups of clients: requests of the preferred group go first if they can run, otherwise those of
// other groups run, and limits hold whichever group is preferred.
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/pace/token_bucket.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

NidList nids(const char* text) { return *NidList::parse(text); }

// Clients 1-9 are group 0, 11-19 group 1, all others none.
RuleOptions two_groups() {
  RuleOptions options;
  options.classes_max = 64;
  options.groups = {nids("10.0.0.[1-9]@tcp"), nids("10.0.0.[11-19]@tcp")};
  return options;
}

struct Clients {
  explicit Clients(const RuleOptions& options = two_groups(), const char* type = "jobid")
      : gate({.slots = 1'000'000, .rules = options}) {
    EXPECT_TRUE(gate.start_policy("tbf", type, Heads::kBoth));
    EXPECT_TRUE(gate.write_rule("change default rate=900000", at(0)));
  }
  ~Clients() {
    gate.shutdown(last);
    run(last);
  }
  RuleEngine& tbf() { return *gate.engine(Head::kRegular); }
  void send(int client, int count, Instant now, const std::string& job = "j",
            Head head = Head::kRegular) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.job = JobId(job);
      request.attributes.nid = *parse_nid("10.0.0." + std::to_string(client) + "@tcp");
      gate.admit(request, head, now);
    }
  }
  // The clients whose requests run now, in order.
  std::vector<int> run(Instant now, int most = 1'000'000) {
    std::vector<int> order;
    last = std::max(last, now);
    while (most-- > 0) {
      const Decision decision = gate.next(now);
      until = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
      if (decision.kind() != Decision::Kind::kRun) break;
      order.push_back(static_cast<int>(decision.request().attributes.nid.low & 0xff));
      gate.complete(decision.request(), now);
    }
    return order;
  }

  Gate gate;
  std::deque<Request> requests;
  Instant last = at(0);
  Instant until = kNever;
};

using Order = std::vector<int>;

TEST(TbfGroups, ThePreferredGoFirstAndOthersWhenTheyHaveNothing) {
  Clients clients;
  clients.send(11, 2, at(0), "b");
  clients.send(50, 1, at(0), "c");
  clients.tbf().prefer(0, at(0));
  clients.send(1, 2, at(0), "a");
  const Order order = clients.run(at(1));
  ASSERT_EQ(order.size(), 5U);
  EXPECT_EQ(Order(order.begin(), order.begin() + 2), (Order{1, 1}));
  clients.send(11, 1, at(2), "b");
  EXPECT_EQ(clients.run(at(2)), Order{11}) << "nobody waits for a group that has nothing";
}

TEST(TbfGroups, OneJobOnClientsOfDifferentGroupsIsSplitByThem) {
  Clients clients;
  clients.send(11, 3, at(0));
  clients.send(1, 3, at(0));
  clients.tbf().prefer(0, at(0));
  EXPECT_EQ(clients.run(at(1)), (Order{1, 1, 1, 11, 11, 11}));
}

TEST(TbfGroups, ClientsOfNoGroupAreAGroup) {
  Clients clients;
  clients.send(1, 1, at(0), "a");
  clients.send(99, 2, at(0), "c");
  EXPECT_EQ(clients.tbf().group_queues(2), 1U);
  clients.tbf().prefer(2, at(0));
  EXPECT_EQ(clients.run(at(1)), (Order{99, 99, 1}));
}

TEST(TbfGroups, AnotherPreferenceActsOnWhatWaits) {
  Clients clients;
  clients.send(1, 2, at(0), "a");
  clients.send(11, 2, at(0), "b");
  clients.tbf().prefer(0, at(0));
  EXPECT_EQ(clients.run(at(1), 1), Order{1});
  clients.tbf().prefer(1, at(1));
  EXPECT_EQ(clients.run(at(1), 2), (Order{11, 11}));
  clients.tbf().prefer(std::nullopt, at(1));
  EXPECT_EQ(clients.run(at(1)), Order{1});
}

TEST(TbfGroups, WhoWasLetGoAtACommonLimitMakesWayForThePreferred) {
  Clients clients;
  ASSERT_TRUE(clients.gate.write_rule("start slow jobid={j} rate=10", at(0)));
  clients.send(11, 20, at(0));
  EXPECT_EQ(clients.run(at(0)).size(), 3U) << "the depth";
  clients.tbf().prefer(0, at(0));
  clients.send(1, 1, at(50));
  EXPECT_TRUE(clients.run(at(99)).empty());
  EXPECT_EQ(clients.run(at(100)), Order{1});
  EXPECT_EQ(clients.run(at(200)), Order{11});
}

TEST(TbfGroups, TheHighHeadKnowsNoGroups) {
  Clients clients;
  clients.tbf().prefer(0, at(0));
  clients.send(1, 1, at(0), "a");
  clients.send(11, 1, at(0), "b", Head::kHigh);
  EXPECT_EQ(clients.tbf().group_queues(1), 0U);
  EXPECT_EQ(clients.run(at(1)), (Order{11, 1}));
}

TEST(TbfGroups, WithoutGroupsAPreferenceIsNothing) {
  Clients clients(RuleOptions{});
  clients.send(11, 1, at(0), "b");
  clients.tbf().prefer(0, at(0));
  clients.send(1, 1, at(0), "a");
  EXPECT_EQ(clients.run(at(1)).size(), 2U);
  EXPECT_EQ(clients.tbf().group_queues(0), 0U);
}

TEST(GateHold, NothingOfTheRegularHeadIsBegunWhileItIsHeld) {
  Clients clients;
  clients.send(1, 2, at(0));
  clients.gate.hold_regular(true);
  EXPECT_TRUE(clients.run(at(1)).empty());
  clients.send(11, 1, at(1), "h", Head::kHigh);
  EXPECT_EQ(clients.run(at(1)), Order{11});
  clients.gate.hold_regular(false);
  EXPECT_EQ(clients.run(at(2)).size(), 2U);
}

TEST(GateHold, ShutdownHandsOutWhatWasHeld) {
  Clients clients;
  clients.send(1, 2, at(0));
  clients.gate.hold_regular(true);
  clients.gate.shutdown(at(1));
  clients.gate.hold_regular(true);
  EXPECT_EQ(clients.run(at(1)).size(), 2U);
}

// A second account of every job's limit, independent of the engine.
struct Shadow {
  BucketShape shape;
  TokenBucket bucket;
  std::map<int, int> waiting;  // requests by group
};

int group_of(int client) { return client < 10 ? 0 : client < 20 ? 1 : 2; }

// Whatever is sent and preferred: no request of another group runs while one of the preferred group
// could, no job exceeds its limit, and everything is served at the end.
RC_GTEST_PROP(TbfGroupsProperty, OthersRunOnlyWhileThePreferredCannot, ()) {
  Clients clients;
  std::map<std::string, Shadow> jobs;
  for (const auto& [job, rate] : std::map<std::string, int>{{"a", 50}, {"b", 300}, {"c", 2000}}) {
    std::string rule = "start r" + job;
    rule += " jobid={" + job + "} rate=" + std::to_string(rate);
    RC_ASSERT(clients.gate.write_rule(rule, at(0)).has_value());
    const Rate per_second = Rate::per_second(static_cast<std::uint32_t>(rate));
    const BucketShape shape(per_second,
                            std::max(Tokens{3}, tokens_in(per_second, milliseconds{10})));
    jobs.emplace(job, Shadow{shape, TokenBucket::full(shape, at(0)), {}});
  }
  std::optional<std::uint32_t> preferred;
  std::size_t sent = 0, served = 0;
  Instant now = at(0);
  const auto serve = [&] {
    for (;;) {
      const Decision decision = clients.gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) return decision;
      const Attributes& who = decision.request().attributes;
      const int group = group_of(static_cast<int>(who.nid.low & 0xff));
      Shadow& job = jobs.at(std::string(who.job.text()));
      if (preferred && group != static_cast<int>(*preferred)) {
        for (auto& [name, other] : jobs) {
          const bool could_run = other.waiting[static_cast<int>(*preferred)] > 0 &&
                                 other.bucket.can_take(Tokens{1}, other.shape, now);
          RC_ASSERT(!could_run);
        }
      }
      RC_ASSERT(job.bucket.take(Tokens{1}, job.shape, now));
      --job.waiting[group];
      ++served;
      clients.gate.complete(decision.request(), now);
    }
  };
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    now += std::chrono::microseconds{*rc::gen::inRange(0, 5000)};
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        preferred = static_cast<std::uint32_t>(*rc::gen::inRange(0, 3));
        clients.tbf().prefer(preferred, now);
        break;
      case 1:
        serve();
        break;
      default: {
        const int client = *rc::gen::element(1, 2, 11, 12, 30);
        const auto job = *rc::gen::element<std::string>("a", "b", "c");
        const int count = *rc::gen::inRange(1, 8);
        clients.send(client, count, now, job);
        jobs.at(job).waiting[group_of(client)] += count;
        sent += static_cast<std::size_t>(count);
      }
    }
  }
  for (;;) {
    const Decision decision = serve();
    if (decision.kind() == Decision::Kind::kIdle) break;
    RC_ASSERT(decision.until() > now);
    now = decision.until();
  }
  clients.last = now;
  RC_ASSERT(served == sent);
  for (std::uint32_t group = 0; group < 3; ++group)
    RC_ASSERT(clients.tbf().group_queues(group) == 0U);
}

// The same under shares, for the counts: nothing is lost, whichever group is preferred.
RC_GTEST_PROP(TbfGroupsProperty, UnderSharesEverythingIsServed, ()) {
  RuleOptions options = two_groups();
  options.sharing = Sharing{.cost = Cost::op(), .lending = *rc::gen::arbitrary<bool>()};
  Clients clients(options);
  const std::vector<std::string> names = {"a", "b"};
  for (const std::string& job : names) {
    clients.tbf().set_share(JobId(job), Rate::per_second(100), Tokens{8}, 1, at(0));
  }
  std::size_t sent = 0, served = 0;
  Instant now = at(0);
  const int steps = *rc::gen::inRange(1, 100);
  for (int step = 0; step < steps; ++step) {
    now += std::chrono::microseconds{*rc::gen::inRange(0, 5000)};
    const int count = *rc::gen::inRange(0, 5);
    clients.send(*rc::gen::element(1, 11, 30), count, now, *rc::gen::elementOf(names));
    sent += static_cast<std::size_t>(count);
    clients.tbf().prefer(static_cast<std::uint32_t>(*rc::gen::inRange(0, 3)), now);
    if (step % 3 == 0) served += clients.run(now).size();
  }
  for (;;) {
    served += clients.run(now).size();
    if (clients.until == kNever) break;
    RC_ASSERT(clients.until > now);
    now = clients.until;
  }
  RC_ASSERT(served == sent);
}

}  // namespace
}  // namespace weir
