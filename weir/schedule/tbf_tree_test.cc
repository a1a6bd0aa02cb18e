// SPDX-License-Identifier: Apache-2.0
//
// A Gate under a tree of shares: projects, their users, the users' jobs.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/classify/share_level.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/rule_engine.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<FieldSet> projects_and_users() { return {{Field::kProjid}, {Field::kUid}}; }

enum class Lending : std::uint8_t { kOff, kOn };

// A Gate with any number of slots, and the requests that ran.
class Tree {
 public:
  explicit Tree(Lending lending = Lending::kOn, Cost cost = {},
                const std::vector<FieldSet>& levels = projects_and_users())
      : gate({.slots = 10'000,
              .rules = {.watched_queues = 64,
                        .sharing = Sharing{
                            .cost = cost, .lending = lending == Lending::kOn, .levels = levels}}}) {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  }
  ~Tree() {
    gate.shutdown(now);
    for (;;) {
      const Decision decision = gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) break;
    }
    for (Request& request : requests) {
      if (request.place() == Request::Place::kRunning) gate.complete(request, now);
    }
  }

  RuleEngine& tbf() { return *gate.engine(Head::kRegular); }
  // A job is project, user and a letter: "1/7/a". A path with fewer parts is a node above jobs.
  static std::vector<JobId> parts(const std::string& path) {
    std::vector<JobId> found;
    for (std::size_t at = 0; at <= path.size();) {
      const std::size_t end = std::min(path.find('/', at), path.size());
      found.emplace_back(path.substr(at, end - at));
      at = end + 1;
    }
    return found;
  }
  void share(const std::string& path, std::optional<std::uint64_t> rate, std::uint64_t weight = 1,
             std::uint64_t depth = 8) {
    std::optional<Rate> per_second;
    if (rate) per_second = Rate::per_second(*rate);
    const auto names = parts(path);
    if (names.size() == 3) {
      tbf().set_share(names.back(), per_second, Tokens{depth}, weight, now);
    } else {
      tbf().set_node_share(names, per_second, Tokens{depth}, weight, now);
    }
  }
  Request& send(const std::string& path, int count = 1, Head head = Head::kRegular,
                Bytes bytes = Bytes{4096}) {
    const auto names = parts(path);
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.projid =
          static_cast<std::uint32_t>(std::stoul(std::string(names[0].text())));
      request.attributes.uid = static_cast<std::uint32_t>(std::stoul(std::string(names[1].text())));
      request.attributes.job = names[2];
      request.bytes = bytes;
      gate.admit(request, head, now);
    }
    return requests.back();
  }
  // Runs up to `most` requests; returns their jobs, in order.
  std::string run(int most = 1'000'000) {
    std::string order;
    while (most-- > 0) {
      const Decision decision = gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) break;
      order += decision.request().attributes.job.text();
      gate.complete(decision.request(), now);
    }
    return order;
  }
  struct Loans {
    std::uint64_t borrowed = 0, lent = 0, reserved = 0;
  };
  // Of a job, or of the path of a node, since the start.
  Loans loans(const std::string& name) {
    tbf().report_nodes(now, [&](const NodeReport& node) {
      std::string path;
      for (const JobId& value : node.path) {
        path += (path.empty() ? "" : "/") + std::string(value.text());
      }
      add(path, node.borrowed, node.lent, Tokens{0});
    });
    tbf().report_shares(milliseconds{20}, now, [&](const ShareReport& share) {
      add(std::string(share.job.text()), share.borrowed, share.lent, share.reserved);
    });
    return sums[name];
  }
  void add(const std::string& name, Tokens borrowed, Tokens lent, Tokens reserved) {
    sums[name].borrowed += borrowed.count();
    sums[name].lent += lent.count();
    sums[name].reserved += reserved.count();
  }
  std::string path_of(const std::string& job) {
    std::string path;
    for (const JobId& value : tbf().path_of(JobId(job))) {
      path += (path.empty() ? "" : "/") + std::string(value.text());
    }
    return path;
  }

  Gate gate;
  Instant now = instant_at(7'000'000'000);
  std::deque<Request> requests;
  std::map<std::string, Loans> sums;
};

std::size_t count(const std::string& order, char job) {
  return static_cast<std::size_t>(std::count(order.begin(), order.end(), job));
}

TEST(TbfTree, ProjectsAreServedByWeightWhateverTheNumberOfTheirJobs) {
  Tree tree;
  tree.share("1", std::nullopt, 2);
  tree.share("2", std::nullopt, 1);
  tree.share("1/1/a", std::nullopt);
  for (const char* const job : {"2/1/b", "2/1/c", "2/2/d"}) tree.share(job, std::nullopt);
  tree.send("1/1/a", 200);
  for (const char* const job : {"2/1/b", "2/1/c", "2/2/d"}) tree.send(job, 200);
  const std::string order = tree.run(120);
  EXPECT_EQ(count(order, 'a'), 80U);
  EXPECT_EQ(count(order, 'd'), 20U) << "its user alone has half of the project";
  EXPECT_EQ(count(order, 'b'), 10U);
  EXPECT_EQ(count(order, 'c'), 10U);
}

TEST(TbfTree, ADispatchPaysEveryNodeOnItsPath) {
  Tree tree(Lending::kOff);
  tree.share("1", 100, 1, 4);
  tree.share("1/1", 100, 1, 2);
  tree.share("1/2", 100, 1, 3);
  tree.share("1/1/a", 100, 1, 8);
  tree.share("1/2/b", 100, 1, 8);
  tree.send("1/1/a", 8);
  EXPECT_EQ(tree.run(), "aa") << "user 1 has two tokens";
  tree.send("1/2/b", 8);
  EXPECT_EQ(tree.run(), "bb") << "the project has two tokens left, user 2 three";
  EXPECT_EQ(tree.gate.next(tree.now).until(), tree.now + milliseconds{10});
  tree.now += milliseconds{10};
  EXPECT_EQ(tree.run().size(), 1U) << "a token of the project";
}

TEST(TbfTree, SiblingsBorrowBeforeCousins) {
  Tree tree;
  for (const char* const node : {"1", "2"}) tree.share(node, 10, 1, node[0] == '1' ? 6 : 2);
  for (const char* const node : {"1/1", "1/2", "2/1"}) tree.share(node, 10, 1, 2);
  for (const char* const job : {"1/1/a", "1/2/b", "2/1/c"}) tree.share(job, 10, 1, 2);
  tree.send("1/1/a", 20);
  tree.send("2/1/c", 20);
  // Each has two tokens. Then project 1 can still pay: what its user 2 does not need goes to user
  // 1. After that nobody's tokens are left, and both projects borrow in turn.
  EXPECT_EQ(tree.run(4), "acac");
  EXPECT_EQ(tree.run(4), "aaaa") << "siblings";
  const std::string cousins = tree.run(8);
  EXPECT_EQ(count(cousins, 'a'), 4U) << cousins;
  EXPECT_EQ(tree.loans("1/1").borrowed, 8U);
  EXPECT_EQ(tree.loans("1").borrowed, 4U) << "only as a cousin";
  EXPECT_EQ(tree.loans("2").borrowed, 4U);
  EXPECT_EQ(tree.loans("a").borrowed, 8U);
  EXPECT_EQ(tree.loans("c").borrowed, 4U);
}

TEST(TbfTree, NodesLendWhatOverflowsWhileNothingWaitsBelowThem) {
  Tree tree;
  tree.share("1", 100, 1, 5);
  tree.share("1/1", 100, 1, 5);
  tree.share("1/2", 100, 1, 5);
  tree.share("1/1/a", 100, 1, 5);
  tree.send("1/1/a", 1);
  tree.now += milliseconds{100};  // it waits: 10 tokens fall over the rim of the nodes above it
  EXPECT_EQ(tree.loans("1/1").lent, 0U);
  EXPECT_EQ(tree.loans("1/2").lent, 10U);
  EXPECT_EQ(tree.run(), "a");
  tree.now += milliseconds{100};  // a token refills, nine are lent
  EXPECT_EQ(tree.loans("a").lent, 9U);
  EXPECT_EQ(tree.loans("1").lent, 9U);
  EXPECT_EQ(tree.loans("1/2").lent, 20U);
}

TEST(TbfTree, AJobThatChangesItsProjectStartsThereAnew) {
  Tree tree;
  tree.share("1", 10, 1, 2);
  tree.share("2", 10, 1, 2);
  tree.share("1/1/a", 10, 1, 100);
  tree.send("1/1/a", 4);
  EXPECT_EQ(tree.path_of("a"), "1/1");
  EXPECT_EQ(tree.run(3), "aaa");
  EXPECT_EQ(tree.loans("1").borrowed, 1U);
  tree.send("2/1/a", 3);  // the job runs on, as another project
  EXPECT_EQ(tree.path_of("a"), "2/1");
  EXPECT_EQ(tree.loans("a").borrowed, 0U) << "it has borrowed from nobody there";
  EXPECT_EQ(tree.run(), "aaaa");
  EXPECT_EQ(tree.loans("2").borrowed, 2U) << "which paid for two of four";
}

// The level is the rule that applies, so jobs move with their requests when rules change.
TEST(TbfTree, ARuleIsALevel) {
  Tree tree(Lending::kOn, {}, {kRuleLevel, {Field::kUid}});
  ASSERT_TRUE(tree.gate.write_rule("start gold jobid={a b} rate=60000", tree.now));
  tree.share("gold", 1000, 3, 1000);
  tree.share("default", 1000, 1, 1000);
  for (const char* job : {"gold/1/a", "gold/1/b", "default/1/c"}) tree.share(job, std::nullopt);
  tree.send("1/1/a", 400);
  tree.send("1/1/b", 400);
  tree.send("1/1/c", 400);
  EXPECT_EQ(tree.path_of("a"), "gold/1");
  EXPECT_EQ(tree.path_of("c"), "default/1");
  EXPECT_EQ(count(tree.run(400), 'c'), 100U) << "3 to 1 for the rules, whatever their jobs";
  ASSERT_TRUE(tree.gate.write_rule("stop gold", tree.now));
  EXPECT_EQ(tree.path_of("a"), "default/1") << "with requests that wait";
  ASSERT_TRUE(tree.gate.write_rule("start iron jobid={c} rate=60000", tree.now));
  EXPECT_EQ(tree.path_of("c"), "iron/1");
  EXPECT_EQ(tree.run().size(), 800U);
  tree.send("1/1/c", 1);
  tree.run();
  EXPECT_EQ(tree.path_of("c"), "iron/1");
}

TEST(TbfTree, ManyUsersOfOneProjectComeAndGo) {
  Tree tree;
  tree.share("1", 1'000'000, 1, 1'000'000);
  for (int user = 0; user < 20'000; ++user) {
    tree.send(fmt::format("1/{}/j{}", user, user));
    if (user % 2 == 0) tree.share(fmt::format("1/{}", user), 10, 1, 8);
    EXPECT_EQ(tree.run(), fmt::format("j{}", user));
    if (user % 2 == 0) tree.tbf().drop_node_share(Tree::parts(fmt::format("1/{}", user)), tree.now);
  }
  std::size_t nodes = 0;
  tree.tbf().report_nodes(tree.now, [&](const NodeReport&) { ++nodes; });
  EXPECT_EQ(nodes, 1U);
}

TEST(TbfTree, LimitsHold) {
  Tree tree;
  ASSERT_TRUE(tree.gate.write_rule("start slow jobid={a} rate=10 burst=2", tree.now));
  tree.share("1", 10, 1, 1);
  tree.share("1/1/a", std::nullopt);
  tree.share("1/2/b", std::nullopt);
  tree.send("1/1/a", 10);
  tree.send("1/2/b", 10);
  const std::string order = tree.run();
  EXPECT_EQ(count(order, 'a'), 2U) << "a loan never exceeds a limit";
  EXPECT_EQ(count(order, 'b'), 10U);
  EXPECT_EQ(tree.gate.next(tree.now).until(), tree.now + milliseconds{100});
}

TEST(TbfTree, AReservationIsPartOfTheSharesOfItsPath) {
  Tree tree;
  ASSERT_TRUE(tree.gate.write_rule("start db jobid={d} rate=100000 reserve=100", tree.now));
  tree.share("1", 10, 1, 1);
  tree.share("1/1/d", std::nullopt);
  tree.share("2", std::nullopt);
  tree.share("2/1/b", std::nullopt);
  tree.send("2/1/b", 2000);
  tree.send("1/1/d", 500);
  std::size_t reserved = 0;
  for (int i = 0; i < 1000; ++i) {
    reserved += count(tree.run(1), 'd');
    tree.now += milliseconds{1};
  }
  EXPECT_NEAR(static_cast<double>(reserved), 100, 4) << "and not 10 of its project's bucket";
  EXPECT_EQ(tree.loans("d").reserved, reserved);
}

TEST(TbfTree, RefundsGoToTheNodesThatPaid) {
  Tree tree(Lending::kOn, Cost::bytes());
  tree.share("1", 1'000'000, 1, 8192);
  tree.share("1/1", 1'000'000, 1, 8192);
  tree.share("1/1/a", 1'000'000, 1, 8192);
  tree.send("1/1/a", 1, Head::kRegular, Bytes{8192});
  const Decision decision = tree.gate.next(tree.now);
  ASSERT_EQ(decision.kind(), Decision::Kind::kRun);
  tree.gate.complete(decision.request(), tree.now, Outcome{.bytes = Bytes{4096}});
  tree.send("1/1/a", 2, Head::kRegular, Bytes{4096});
  EXPECT_EQ(tree.run(1), "a");
  EXPECT_EQ(tree.loans("a").borrowed, 0U) << "half was given back";
  EXPECT_EQ(tree.run(1), "a");
  EXPECT_EQ(tree.loans("a").borrowed, 4096U);
  EXPECT_EQ(tree.loans("1").borrowed, 4096U);
}

TEST(TbfTree, HighPriorityGoesFirst) {
  Tree tree;
  for (const char* const job : {"1/1/a", "1/1/b", "2/1/c"}) tree.share(job, std::nullopt);
  tree.send("1/1/a", 2);
  tree.send("2/1/c", 2);
  tree.send("1/1/b", 2, Head::kHigh);
  EXPECT_EQ(tree.run(2), "bb");
  EXPECT_EQ(tree.run().size(), 4U);
}

TEST(TbfTree, APreferredGroupOfClientsGoesFirst) {
  Gate gate({.slots = 100,
             .rules = {.sharing = Sharing{.levels = projects_and_users()},
                       .groups = {*NidList::parse("10.0.0.1@tcp")}}});
  ASSERT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  const Instant now = instant_at(0);
  std::deque<Request> requests(6);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].attributes.projid = static_cast<std::uint32_t>(i % 2);
    requests[i].attributes.job = JobId(i % 2 == 0 ? "a" : "b");
    requests[i].attributes.nid = *parse_nid(i % 2 == 0 ? "10.0.0.1@tcp" : "10.0.0.2@tcp");
    gate.admit(requests[i], Head::kRegular, now);
  }
  RuleEngine& engine = *gate.engine(Head::kRegular);
  for (const char* const job : {"a", "b"}) {
    engine.set_share(JobId(job), std::nullopt, Tokens{8}, 1, now);
  }
  const auto run = [&](int count) {
    std::string order;
    for (int i = 0; i < count; ++i) {
      Request& request = gate.next(now).request();
      order += request.attributes.job.text();
      gate.complete(request, now);
    }
    return order;
  };
  EXPECT_EQ(run(2), "ab") << "no preference";
  engine.prefer(1, now);  // clients in no group
  EXPECT_EQ(run(2), "bb");
  EXPECT_EQ(run(2), "aa") << "while the preferred group has nothing to run";
}

TEST(TbfTree, WaitsForAShareAboveTheJobCountAsWaitsForAShare) {
  Tree tree(Lending::kOff);
  tree.share("1", 10, 1, 1);
  tree.share("1/1/a", std::nullopt);
  tree.send("1/1/a", 2);
  EXPECT_EQ(tree.run(), "a");
  tree.now += milliseconds{100};
  tree.now += milliseconds{5};  // for a slot, since nobody asked
  DelaySums delays{};
  tree.tbf().visit_waits(tree.now, [&](const WaitView& wait) { delays = wait.delays; });
  EXPECT_EQ(delays[static_cast<std::size_t>(Delay::kShare)], 100'000'000U);
  EXPECT_EQ(delays[static_cast<std::size_t>(Delay::kSlot)] +
                delays[static_cast<std::size_t>(Delay::kOrder)],
            5'000'000U);
}

// ---- properties ----

// Nothing is lost or served twice, whatever happens between.
TEST(TbfTreeProperty, ServesEveryRequestOnce) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Rng rng(seed);
    Tree tree(seed % 4 != 0 ? Lending::kOn : Lending::kOff);
    std::size_t sent = 0;
    std::size_t left = 0;
    for (int i = 0; i < 1500; ++i) {
      const std::string user = fmt::format("{}/{}", rng.below(2), rng.below(3));
      const std::string job = fmt::format("{}/{}", user, rng.below(4));
      switch (rng.below(10)) {
        case 0:
          tree.share(job, 1 + rng.below(500), 1 + rng.below(4), 1 + rng.below(9));
          break;
        case 1:
          tree.share(rng.chance(1, 2) ? user : user.substr(0, 1), 1 + rng.below(500),
                     1 + rng.below(4), 1 + rng.below(9));
          break;
        case 2:
          if (rng.chance(1, 2)) {
            tree.tbf().drop_share(Tree::parts(job).back(), tree.now);
          } else {
            tree.tbf().drop_node_share(Tree::parts(user), tree.now);
          }
          break;
        case 3:
          tree.now += Nanoseconds{static_cast<std::int64_t>(rng.below(30'000'000))};
          break;
        case 4: {
          if (tree.requests.empty()) break;
          Request& request = tree.requests[rng.below(tree.requests.size())];
          if (request.place() != Request::Place::kQueued) break;
          tree.gate.withdraw(request, tree.now);
          ++left;
          break;
        }
        case 5:
          if (i == 700) {
            ASSERT_TRUE(tree.gate.write_rule("start s jobid={1 2} rate=50 by=rule", tree.now));
          }
          break;
        case 6:
        case 7: {
          const auto count = 1 + rng.below(3);
          tree.send(job, static_cast<int>(count), rng.chance(1, 5) ? Head::kHigh : Head::kRegular);
          sent += count;
          break;
        }
        default:
          left += tree.run(1 + static_cast<int>(rng.below(4))).size();
      }
    }
    for (int i = 0; i < 20'000 && left < sent; ++i) {
      left += tree.run().size();
      tree.now += milliseconds{20};
    }
    ASSERT_EQ(left, sent) << "seed " << seed;
  }
}

// 10 x 10 x 10 under saturation: each level is divided by its weights, within 1 %.
TEST(TbfTree, EntitlementsHoldAtEveryLevel) {
  Tree tree;
  constexpr std::uint64_t kWeights = 55;  // 1 + 2 + ... + 10
  std::vector<std::string> jobs;
  for (std::uint64_t p = 0; p < 10; ++p) {
    tree.share(std::to_string(p), std::nullopt, p + 1);
    for (std::uint64_t u = 0; u < 10; ++u) {
      tree.share(fmt::format("{}/{}", p, u), std::nullopt, u + 1);
      for (std::uint64_t j = 0; j < 10; ++j) {
        const std::string job = fmt::format("{}/{}/{}{}{}", p, u, p, u, j);
        tree.share(job, std::nullopt, j + 1);
        tree.send(job, 2);
        jobs.push_back(job);
      }
    }
  }
  std::map<std::string, std::uint64_t> served;
  constexpr std::uint64_t kServed = 4 * kWeights * kWeights * kWeights;
  for (std::uint64_t i = 0; i < kServed; ++i) {
    const Decision decision = tree.gate.next(tree.now);
    ASSERT_EQ(decision.kind(), Decision::Kind::kRun);
    Request& request = decision.request();
    const std::string name(request.attributes.job.text());
    for (std::size_t size = 1; size <= 3; ++size) ++served[name.substr(0, size)];
    tree.gate.complete(request, tree.now);
    tree.gate.admit(request, Head::kRegular, tree.now);
    tree.now += milliseconds{1};
  }
  for (const auto& [name, got] : served) {
    double entitled = static_cast<double>(kServed);
    for (const char digit : name) entitled *= static_cast<double>(digit - '0' + 1) / kWeights;
    EXPECT_NEAR(static_cast<double>(got), entitled, std::max(2.0, entitled / 100)) << name;
  }
}

}  // namespace
}  // namespace weir
