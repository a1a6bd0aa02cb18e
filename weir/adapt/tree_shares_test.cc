// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/tree_shares.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/adapt/controller.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeriod{20};

class FakeServer : public Enforcer {
 public:
  Result<void> set(const JobId& job, const Share& share, Instant) override {
    shares["job " + std::string(job.text())] = share;
    return {};
  }
  Result<void> change(const JobId& job, const Share& share, Instant now) override {
    return set(job, share, now);
  }
  Result<void> drop(const JobId& job, Instant) override {
    shares.erase("job " + std::string(job.text()));
    return {};
  }
  Result<void> set_node(std::span<const JobId> path, const Share& share, Instant) override {
    if (fails) return fail(std::errc::io_error, "node", "stopped");
    EXPECT_TRUE(path.size() == 1 || shares.contains(path_text(path.first(path.size() - 1))))
        << "parents come first";
    shares[path_text(path)] = share;
    return {};
  }
  Result<void> drop_node(std::span<const JobId> path, Instant) override {
    shares.erase(path_text(path));
    return {};
  }

  std::map<std::string, Share> shares;
  bool fails = false;
};

struct World {
  explicit World(std::size_t levels = 2, ControllerOptions options = {})
      : controller(with(levels, options), server) {
    controller.set_capacity(Rate::per_second(1000));  // 20 tokens a period of 20 ms
  }
  static ControllerOptions with(std::size_t levels, ControllerOptions options) {
    options.levels = levels;
    return options;
  }
  TreeShares& tree() { return *controller.tree(); }

  // "1/7/a": job a of user 7 in project 1.
  void wants(const std::string& path, std::uint64_t tokens) {
    std::vector<JobId> values = path_values(path);
    const JobId job = values.back();
    values.pop_back();
    tree().place(job, values);
    controller.observe({.job = job, .arrived = Tokens{tokens}});
  }
  const PeriodReport& decide() {
    now += kPeriod;
    return controller.decide(now);
  }
  std::uint64_t per_period(const std::string& name) {
    const auto found = server.shares.find(name);
    return found == server.shares.end() ? 0 : tokens_in(*found->second.rate, kPeriod).count();
  }

  FakeServer server;
  Controller controller;
  Instant now = instant_at(0);
};

TEST(TreeShares, DividesByWeightInEveryLevel) {
  World world;
  ASSERT_TRUE(world.tree().set_weight("1", 3));
  ASSERT_TRUE(world.tree().set_weight("1/8", 2));
  ASSERT_TRUE(world.controller.set_nodes(JobId("b"), 4));
  for (const char* job : {"1/7/a", "1/7/b", "1/8/c", "2/9/d"}) world.wants(job, 100);
  const PeriodReport& report = world.decide();
  EXPECT_EQ(report.budget, Tokens{20});
  EXPECT_EQ(world.per_period("1"), 15U);
  EXPECT_EQ(world.per_period("1/7"), 5U);
  EXPECT_EQ(world.per_period("1/8"), 10U);
  EXPECT_EQ(world.per_period("2/9"), 5U);
  EXPECT_EQ(world.per_period("job a"), 1U);
  EXPECT_EQ(world.per_period("job b"), 4U);
  EXPECT_EQ(world.per_period("job c"), 10U);
  ASSERT_EQ(report.jobs.size(), 4U);
  EXPECT_EQ(report.jobs[1].nodes, 4U);
  ASSERT_EQ(report.nodes.size(), 5U);
  EXPECT_EQ(report.nodes[0].path, "1");
  EXPECT_EQ(report.nodes[0].period.demand, Tokens{300});
  EXPECT_EQ(report.nodes[2].path, "1/8");
  const auto node = world.tree().find(path_values("1/8"));
  ASSERT_TRUE(node);
  EXPECT_EQ(node->weight, 2U);
  EXPECT_EQ(node->siblings, 3U);
  EXPECT_EQ(world.tree().siblings_of(JobId("a")), 5U);
}

// The tree of one path is the controller of jobs alone, to the token.
TEST(TreeSharesProperty, OneProjectAndUserIsTheSameAsJobsAlone) {
  Rng rng(7);
  World tree;
  FakeServer server;
  Controller flat(ControllerOptions{}, server);
  flat.set_capacity(Rate::per_second(1000));
  for (int period = 0; period < 2000; ++period) {
    for (int i = 0; i < 6; ++i) {
      if (rng.below(3) == 0) continue;
      const JobSample sample{.job = JobId(std::string(1, static_cast<char>('a' + i))),
                             .arrived = Tokens{rng.below(12)},
                             .borrowed = Tokens{rng.below(3)},
                             .lent = Tokens{rng.below(3)}};
      flat.observe(sample);
      tree.tree().place(sample.job, path_values("1/7"));
      tree.controller.observe(sample);
    }
    const PeriodReport got = tree.decide();
    const PeriodReport& wanted = flat.decide(tree.now);
    ASSERT_EQ(got.budget, wanted.budget);
    ASSERT_EQ(got.jobs.size(), wanted.jobs.size()) << period;
    for (std::size_t i = 0; i < got.jobs.size(); ++i) {
      ASSERT_EQ(got.jobs[i].final, wanted.jobs[i].final) << period;
      ASSERT_EQ(got.jobs[i].record, wanted.jobs[i].record) << period;
      ASSERT_EQ(got.jobs[i].borrowed, wanted.jobs[i].borrowed) << period;
    }
    ASSERT_EQ(got.records.size(), wanted.records.size());
  }
}

TEST(TreeShares, ANewcomerGetsItsPartOfEveryLevelAtOnce) {
  World world;
  world.wants("1/7/a", 100);
  world.decide();
  ASSERT_TRUE(world.tree().set_weight("2", 3));
  world.tree().place(JobId("n"), path_values("2/9"));
  world.controller.first_request(JobId("n"), world.now);
  EXPECT_EQ(world.per_period("2"), 15U) << "3 of 4";
  EXPECT_EQ(world.per_period("2/9"), 15U);
  EXPECT_EQ(world.per_period("job n"), 15U);
  world.tree().place(JobId("m"), path_values("1/7"));
  world.controller.first_request(JobId("m"), world.now);
  EXPECT_EQ(world.per_period("job m"), 10U) << "half of what 1/7 has";
}

TEST(TreeShares, NodesThatAreIdleLoseTheirShareWhenTheirBucketIsFull) {
  World world;
  world.wants("1/7/a", 100);
  world.wants("2/9/b", 100);
  world.decide();
  ASSERT_TRUE(world.server.shares.contains("2/9"));
  for (int i = 0; i < 4; ++i) {
    world.wants("1/7/a", 100);
    world.decide();
    EXPECT_TRUE(world.server.shares.contains("2/9")) << "40 tokens at 10 a period";
  }
  for (int i = 0; i < 3; ++i) {
    world.wants("1/7/a", 100);
    world.decide();
  }
  EXPECT_FALSE(world.server.shares.contains("2/9"));
  EXPECT_FALSE(world.server.shares.contains("2"));
  EXPECT_EQ(world.tree().nodes(), 2U);
}

TEST(TreeShares, RecordsAreAmongTheChildrenOfOneParent) {
  World world;
  for (const char* job : {"1/7/a", "1/8/b", "2/9/c"}) world.wants(job, 100);
  world.decide();
  for (const char* job : {"1/7/a", "1/8/b", "2/9/c"}) world.wants(job, 100);
  world.tree().observe(path_values("1/7"), Tokens{4}, Tokens{0});
  world.tree().observe(path_values("1/8"), Tokens{0}, Tokens{6});
  world.decide();
  const TreeAllocator& all = world.tree().allocator();
  EXPECT_EQ(all.account_of(path_values("1/7"))->lent_sum, Tokens{4});
  EXPECT_EQ(all.account_of(path_values("1/8"))->borrowed_sum, Tokens{4});
  EXPECT_EQ(all.account_of(path_values("1"))->record, 0);
}

TEST(TreeShares, AJobThatMovesStartsWithNothingUnderTheOtherNode) {
  World world;
  for (const char* job : {"1/7/a", "1/7/b", "2/9/c"}) world.wants(job, 100);
  world.decide();
  world.wants("1/7/a", 1);
  world.wants("1/7/b", 100);
  world.wants("2/9/c", 100);
  world.decide();
  ASSERT_GT(world.controller.account_of(JobId("a"))->record, 0);
  world.wants("2/9/a", 100);
  world.wants("1/7/b", 100);
  world.wants("2/9/c", 100);
  const PeriodReport& report = world.decide();
  EXPECT_EQ(world.controller.account_of(JobId("a"))->record, 0);
  EXPECT_EQ(world.controller.account_of(JobId("b"))->record, 0) << "written off";
  EXPECT_TRUE(report.records.empty());
  EXPECT_EQ(world.per_period("job a"), 5U);
}

TEST(TreeShares, RefusesPathsAndWeightsThatCannotBe) {
  World world;
  EXPECT_EQ(world.tree().set_weight("1/7/a", 2).error().message(),
            "node '1/7/a': has 3 values; the tree has 2 levels above the jobs; the weight of a job "
            "is weight= of its rule, or its nodes");
  for (const char* path : {"", "/", "1/", "/7", "1//7", "a-value-of-more-than-thirty-one-bytes"}) {
    EXPECT_FALSE(world.tree().set_weight(path, 2)) << path;
  }
  EXPECT_EQ(world.tree().set_weight("1", 1'000'000'000'000).error().what,
            "cannot have the weight 1000000000000");
  EXPECT_TRUE(world.tree().set_weight("1", TreeAllocator::kWeightMax));
  EXPECT_TRUE(world.tree().set_weight("1", 0)) << "removes it";
  EXPECT_EQ(world.tree().weight_of("1"), 1U);
}

TEST(TreeShares, WithoutACapacityNodesHaveWeightsOnly) {
  World world;
  world.controller.set_capacity(std::nullopt);
  ASSERT_TRUE(world.tree().set_weight("1", 3));
  world.wants("1/7/a", 100);
  world.wants("2/9/b", 100);
  const PeriodReport& report = world.decide();
  EXPECT_EQ(report.nodes.size(), 4U);
  EXPECT_EQ(world.server.shares["1"], (Share{std::nullopt, {}, 3}));
  EXPECT_EQ(world.server.shares["job b"], (Share{std::nullopt, {}, 1}));
}

TEST(TreeShares, SuspensionDropsAllAndResumingGivesThemBack) {
  World world;
  world.wants("1/7/a", 100);
  world.decide();
  world.controller.suspend("another policy", world.now);
  EXPECT_TRUE(world.server.shares.empty());
  world.decide();
  world.controller.resume();
  world.tree().place(JobId("a"), path_values("1/7"));
  world.controller.first_request(JobId("a"), world.now);
  EXPECT_EQ(world.server.shares.size(), 3U);
}

TEST(TreeShares, AShareThatCouldNotBeWrittenIsWrittenNextTime) {
  World world;
  world.server.fails = true;
  world.wants("1/7/a", 100);
  world.decide();
  EXPECT_EQ(world.tree().failed(), 2U);
  world.server.fails = false;
  world.wants("1/7/a", 100);
  world.decide();
  EXPECT_EQ(world.per_period("1/7"), 20U);
}

// Users of a project come and go: what is kept of them is bounded, and records still sum to 0.
TEST(TreeShares, ManyUsersOfOneProjectAreBounded) {
  constexpr std::size_t kMost = 200;
  World world(2, {.jobs_max = kMost});
  Rng rng(3);
  for (int period = 0; period < 40; ++period) {
    for (int i = 0; i < 100; ++i) {
      const std::uint64_t user = rng.below(100'000);
      world.wants(fmt::format("1/{}/j{}", user, user), 1 + rng.below(4));
    }
    const PeriodReport& report = world.decide();
    std::int64_t sum = 0;
    for (const JobRecord& record : report.records) sum += record.record;
    ASSERT_EQ(sum, 0);
    ASSERT_LE(world.tree().allocator().leaves(), kMost);
    ASSERT_LE(world.tree().allocator().inner_nodes(), 1 + kMost);
    ASSERT_LE(world.tree().nodes(), 1 + 10 * 100U);
  }
}

// Jobs that move leave nodes without jobs behind.
TEST(TreeShares, NodesThatJobsLeftAreBounded) {
  World world(2, {.jobs_max = 16});
  for (int period = 0; period < 400; ++period) {
    world.wants(fmt::format("1/{}/a", period), 10);
    world.decide();
    ASSERT_LE(world.tree().allocator().inner_nodes(), 16 * TreeAllocator::kLevelsMax + 1);
  }
}

}  // namespace
}  // namespace weir
