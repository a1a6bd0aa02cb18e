// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "weir/classify/share_level.h"
#include "weir/target/target.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A Target with projects and users above the jobs, and requests that wait all the time.
class TreeWorld {
 public:
  explicit TreeWorld(const Target::Options& made_with = options()) : target(made_with, now_) {
    EXPECT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, now_));
  }
  ~TreeWorld() {
    target.shutdown(now_);
    for (int left = 0; target.queued() > 0; ++left) run();
  }

  static Target::Options options() {
    return {.gate = {.slots = 1000},
            .controller = ControllerOptions{},
            .capacity = Rate::per_second(10'000),
            .share_levels = {{Field::kProjid}, {Field::kUid}}};
  }
  void send(const std::string& job, std::uint32_t project, std::uint32_t user, int count) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests_.emplace_back();
      request.attributes.job = JobId(job);
      request.attributes.projid = project;
      request.attributes.uid = user;
      request.bytes = Bytes{4096};
      target.admit(request, Head::kRegular, now_);
    }
  }
  void run_for(Nanoseconds time) {
    const Instant end = now_ + time;
    while (now_ < end) {
      run();
      now_ += milliseconds{1};
    }
  }
  std::uint64_t served(const std::string& job) { return served_[job]; }
  const Controller& controller() const { return *target.controller(); }

 private:
  void run() {
    for (;;) {
      const Decision decision = target.next(now_);
      if (decision.kind() != Decision::Kind::kRun) return;
      ++served_[std::string(decision.request().attributes.job.text())];
      target.complete(decision.request(), now_);
    }
  }

  Instant now_ = instant_at(0);
  std::deque<Request> requests_;
  std::map<std::string, std::uint64_t> served_;

 public:
  Target target;
};

TEST(TargetTree, DividesByTheWeightsOfNodes) {
  TreeWorld world;
  ASSERT_TRUE(world.target.set_node_weight("1", 3, instant_at(0)));
  world.send("a", 1, 7, 20'000);
  world.send("b", 1, 8, 20'000);
  world.send("c", 2, 9, 20'000);
  world.run_for(seconds{1});
  const std::uint64_t before[] = {world.served("a"), world.served("b"), world.served("c")};
  world.run_for(seconds{1});
  EXPECT_NEAR(static_cast<double>(world.served("a") - before[0]), 3750, 38);
  EXPECT_NEAR(static_cast<double>(world.served("b") - before[1]), 3750, 38);
  EXPECT_NEAR(static_cast<double>(world.served("c") - before[2]), 2500, 25);
  EXPECT_EQ(path_text(world.controller().tree()->path_of(JobId("b"))), "1/8");
  EXPECT_EQ(world.controller().tree()->nodes(), 5U);
}

TEST(TargetTree, AJobThatMovesToAnotherProjectIsFollowed) {
  TreeWorld world;
  world.send("a", 1, 7, 2000);
  world.send("c", 2, 9, 2000);
  world.run_for(milliseconds{100});
  world.send("a", 2, 9, 2000);
  world.run_for(milliseconds{100});
  EXPECT_EQ(path_text(world.controller().tree()->path_of(JobId("a"))), "2/9");
  const std::uint64_t before = world.served("a") + world.served("c");
  world.run_for(milliseconds{100});
  EXPECT_NEAR(static_cast<double>(world.served("a") + world.served("c") - before), 1000, 20);
}

TEST(TargetTree, JobsOfARuleShareItsPart) {
  Target::Options options = TreeWorld::options();
  options.share_levels = {kRuleLevel};
  TreeWorld world(options);
  ASSERT_TRUE(world.target.set_node_weight("gold", 3, instant_at(0)));
  ASSERT_TRUE(world.target.write_rule("start gold jobid={a*} rate=60000", instant_at(0)));
  for (const char* job : {"a1", "a2", "b"}) world.send(job, 1, 7, 20'000);
  world.run_for(seconds{1});
  const std::uint64_t before[] = {world.served("a1"), world.served("b")};
  world.run_for(seconds{1});
  EXPECT_NEAR(static_cast<double>(world.served("a1") - before[0]), 3750, 38);
  EXPECT_NEAR(static_cast<double>(world.served("b") - before[1]), 2500, 25);
  EXPECT_EQ(path_text(world.controller().tree()->path_of(JobId("a2"))), "gold");
  EXPECT_EQ(path_text(world.controller().tree()->path_of(JobId("b"))), "default");
}

TEST(TargetTree, AHundredThousandUsersOfOneProjectAreBounded) {
  Target::Options options = TreeWorld::options();
  options.capacity = Rate::per_second(2'000'000);
  options.jobs_max = options.controller->jobs_max = options.gate.rules.classes_max = 1024;
  TreeWorld world(options);
  constexpr std::uint32_t kUsers = 100'000;
  for (std::uint32_t user = 0; user < kUsers; ++user) {
    world.send("j" + std::to_string(user), 1, user, 1);
    if (user % 1000 == 999) world.run_for(milliseconds{1});
  }
  world.run_for(milliseconds{200});
  EXPECT_EQ(world.target.queued(), 0U);
  const TreeShares& tree = *world.controller().tree();
  EXPECT_GT(tree.allocator().leaves(), 512U);
  EXPECT_LE(tree.allocator().leaves(), options.controller->jobs_max);
  EXPECT_LE(tree.allocator().inner_nodes(), options.controller->jobs_max + 1);
  EXPECT_LE(tree.nodes(), 2 * options.controller->jobs_max);
}

TEST(TargetTree, ANodeWithoutATreeHasNoWeight) {
  Target target({.controller = ControllerOptions{}}, instant_at(0));
  EXPECT_EQ(target.set_node_weight("1", 2, instant_at(0)).error().message(),
            "node '1': has no weight, because there is no tree of shares; name its levels, such as "
            "tree = ['projid', 'uid', 'jobid']");
}

TEST(TargetTree, AnotherPolicySuspendsItAndTbfGetsItBack) {
  TreeWorld world;
  world.send("a", 1, 7, 4000);
  world.send("c", 2, 9, 4000);
  world.run_for(milliseconds{100});
  ASSERT_TRUE(world.target.set_policy("crrn", "", Heads::kBoth, instant_at(200'000'000)));
  EXPECT_EQ(world.controller().tree()->nodes(), 0U);
  ASSERT_TRUE(world.target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(200'000'000)));
  EXPECT_EQ(world.controller().tree()->nodes(), 4U);
}

}  // namespace
}  // namespace weir
