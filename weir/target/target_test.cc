// SPDX-License-Identifier: Apache-2.0
#include "weir/target/target.h"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "weir/schedule/policy_kinds.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A device with this many slots that takes `service` for each request, and jobs that send the next
// request when one is done.
class World {
 public:
  explicit World(const Target::Options& options, Nanoseconds service = milliseconds{16})
      : target(options, instant_at(0)), service_(service) {
    EXPECT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, {}));
  }
  ~World() {
    target.shutdown(now_);
    while (!running_.empty() || target.queued() > 0) {
      again_ = false;
      step();
    }
  }

  void send(const std::string& job, int count, std::uint64_t clients = 1) {
    for (int i = 0; i < count; ++i) {
      auto& request = *requests_.emplace_back(std::make_unique<Request>());
      request.attributes.job = JobId(job);
      request.attributes.nid.net = NetType::kTcp;
      request.attributes.nid.low = static_cast<std::uint64_t>(i) % clients;
      request.bytes = Bytes{4096};
      target.admit(request, Head::kRegular, now_);
    }
  }
  void run_until(Instant end) {
    while (now_ < end) step(end);
    now_ = end;
  }
  Instant now() const { return now_; }
  std::uint64_t served(const std::string& job) const {
    const auto found = served_.find(job);
    return found == served_.end() ? 0 : found->second;
  }
  void forget_served() { served_.clear(); }
  void stop_sending() { again_ = false; }

  Target target;

 private:
  void step(Instant end = kNever) {
    Decision decision = target.next(now_);
    while (decision.kind() == Decision::Kind::kRun) {
      running_.emplace(now_ + service_, &decision.request());
      decision = target.next(now_);
    }
    Instant until = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
    if (!running_.empty()) until = std::min(until, running_.begin()->first);
    EXPECT_GE(until, now_);
    now_ = std::min(until, end);
    while (!running_.empty() && running_.begin()->first <= now_) {
      Request& done = *running_.begin()->second;
      running_.erase(running_.begin());
      ++served_[std::string(done.attributes.job.text())];
      target.complete(done, now_);
      if (again_) target.admit(done, Head::kRegular, now_);
    }
  }

  Nanoseconds service_;
  Instant now_ = instant_at(0);
  bool again_ = true;
  std::multimap<Instant, Request*> running_;
  std::map<std::string, std::uint64_t> served_;
  std::vector<std::unique_ptr<Request>> requests_;
};

Target::Options shared_out(std::uint64_t rate) {
  return {
      .gate = {.slots = 16}, .controller = ControllerOptions{}, .capacity = Rate::per_second(rate)};
}

double share_of(const World& world, const std::string& job, std::uint64_t all) {
  return static_cast<double>(world.served(job)) / static_cast<double>(all);
}

// ---- weights ----

TEST(TargetWeights, ReplaceTheNodes) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.set_nodes(JobId("a"), 50, world.now()));
  ASSERT_TRUE(world.target.write_rule("start a jobid={a} weight=1", world.now()));
  ASSERT_TRUE(world.target.write_rule("start b jobid={b} weight=6", world.now()));
  for (const char* job : {"a", "b", "c"}) world.send(job, 40);
  world.run_until(Instant{seconds{1}});
  world.forget_served();
  world.run_until(Instant{seconds{11}});
  EXPECT_NEAR(share_of(world, "a", 10'000), 0.125, 0.00125);
  EXPECT_NEAR(share_of(world, "b", 10'000), 0.75, 0.0075);
  EXPECT_EQ(world.target.controller()->share_of(JobId("b"))->nodes, 6U);
}

TEST(TargetWeights, FollowTheRules) {
  World world(shared_out(1000));
  const auto weight = [&] { return world.target.controller()->share_of(JobId("a"))->nodes; };
  ASSERT_TRUE(world.target.write_rule("start u jobid={a} layer=1 weight=2", world.now()));
  world.send("a", 40);
  EXPECT_EQ(weight(), 2U) << "from its first request on";
  world.run_until(Instant{milliseconds{100}});
  ASSERT_TRUE(world.target.write_rule("start l jobid={a} weight=9", world.now()));
  world.run_until(Instant{milliseconds{200}});
  EXPECT_EQ(weight(), 9U) << "the lower layer";
  ASSERT_TRUE(world.target.write_rule("change l weight=10", world.now()));
  world.run_until(Instant{milliseconds{300}});
  EXPECT_EQ(weight(), 10U);
  ASSERT_TRUE(world.target.write_rule("stop l", world.now()));
  ASSERT_TRUE(world.target.write_rule("stop u", world.now()));
  world.run_until(Instant{milliseconds{400}});
  EXPECT_EQ(weight(), 1U) << "its nodes";
}

// ---- reservations ----

// Beside jobs that want more, on a device of 1000 a second.
TEST(TargetReserves, AreKeptAndAllotted) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.write_rule("start r jobid={a} reserve=400", world.now()));
  world.send("a", 40);
  for (const char* job : {"b", "c", "d", "e"}) world.send(job, 40);
  world.run_until(Instant{seconds{1}});
  world.forget_served();
  std::uint64_t allotted = 0;
  world.target.on_period([&](const PeriodReport& report) {
    for (const JobPeriod& job : report.jobs) {
      if (job.job == JobId("a")) allotted += job.final.count();
    }
  });
  world.run_until(Instant{seconds{11}});
  world.target.on_period({});
  EXPECT_NEAR(static_cast<double>(world.served("a")), 4000, 40);
  EXPECT_NEAR(static_cast<double>(world.served("b")), 1500, 30);
  EXPECT_NEAR(static_cast<double>(allotted), 4000, 40);
}

TEST(TargetReserves, AreScaledToTheCapacity) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.write_rule("start r jobid={*} reserve=300", world.now()));
  const auto scale = [&] { return world.target.rules(Head::kRegular)->reserve_scale(); };
  world.send("a", 40);
  world.send("b", 40);
  world.run_until(Instant{milliseconds{100}});
  EXPECT_EQ(scale(), kReserveScaleOne);
  for (const char* job : {"c", "d", "e", "f"}) world.send(job, 40);
  world.run_until(Instant{milliseconds{200}});
  EXPECT_EQ(scale(), kReserveScaleOne / 2) << "six times 300 of 900";
  ASSERT_TRUE(world.target.set_capacity(Capacity::ops(Rate::per_second(1020)), world.now()));
  world.run_until(Instant{milliseconds{300}});
  EXPECT_EQ(scale(), kReserveScaleOne / 2) << "a change of less than 5 %";
  ASSERT_TRUE(world.target.set_capacity(Capacity::ops(Rate::per_second(4000)), world.now()));
  world.run_until(Instant{milliseconds{400}});
  EXPECT_EQ(scale(), kReserveScaleOne);
}

TEST(TargetReserves, MoreThanTheCapacityIsRefused) {
  Target target(shared_out(1000), instant_at(0));
  ASSERT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, {}));
  EXPECT_FALSE(target.write_rule("start r jobid={a} reserve=901", instant_at(0)));
  EXPECT_FALSE(target.check_rules(std::vector<RuleChange>{
      *parse_rule("start r jobid={a} reserve=500"), *parse_rule("start s jobid={b} reserve=500")}));
  EXPECT_FALSE(target.write_rule("start r jobid={a} reserve=1MiB/s", instant_at(0)));
  EXPECT_TRUE(target.write_rule("start r jobid={a} reserve=900", instant_at(0)));
  Target unknown({.controller = ControllerOptions{}, .estimate_capacity = true}, instant_at(0));
  ASSERT_TRUE(unknown.set_policy("tbf", "jobid", Heads::kBoth, {}));
  EXPECT_TRUE(unknown.write_rule("start r jobid={a} reserve=9000", instant_at(0)));
  EXPECT_FALSE(unknown.write_rule("start s jobid={b} reserve=1MiB/s", instant_at(0)));
}

// An idle job spills more in that time than a ledger settles in a period. The device of a World
// serves all requests that it gets in parallel, so its rate grows with the slots.
TEST(TargetSlots, AreRaisedWhileTheDeviceGetsFaster) {
  World world({.auto_slots = true, .controller = ControllerOptions{}, .estimate_capacity = true},
              milliseconds{1});
  world.send("a", 100);
  EXPECT_EQ(world.target.slots(), 16U);
  world.run_until(Instant{seconds{1}});
  EXPECT_GT(world.target.slots(), 70U);
  EXPECT_LT(world.target.slots(), 101U) << "more would not be busy";
}

TEST(TargetSlots, AFixedNumberStays) {
  World world({.controller = ControllerOptions{}, .estimate_capacity = true}, milliseconds{1});
  world.send("a", 100);
  world.run_until(Instant{seconds{2}});
  EXPECT_EQ(world.target.slots(), 16U);
  EXPECT_EQ(world.target.slot_search(), nullptr);
}

// 4000/s of 10 ms each keep 40 slots busy; 16 would serve 1600/s.
TEST(TargetSlots, AreEnoughForAConfiguredCapacity) {
  World world(
      {.auto_slots = true, .controller = ControllerOptions{}, .capacity = Rate::per_second(4000)},
      milliseconds{10});
  world.send("a", 300);
  world.run_until(Instant{seconds{5}});
  EXPECT_GE(world.target.slots(), 40U);
  world.forget_served();
  world.run_until(Instant{seconds{6}});
  EXPECT_GE(world.served("a"), 3900U);
}

TEST(Target, OutlivesWeeksWithoutARequestAtTheLargestCapacity) {
  Target::Options options = shared_out(1'000'000'000'000);
  options.cost = Cost::bytes();
  World world(options);
  world.stop_sending();
  for (const int days : {14, 400}) {
    world.send("a", 4);
    world.send("b", 4);
    // They arrive and end in one period, which gives both a share. No call is made meanwhile.
    world.run_until(world.now() + std::chrono::hours{24 * days});
  }
  world.send("a", 1);
  EXPECT_GE(world.target.controller()->ledger().find(JobId("a"))->last_active, 1U);
  std::int64_t sum = 0;
  for (const Ledger::Account& account : world.target.controller()->ledger().accounts()) {
    sum += account.record;
  }
  EXPECT_EQ(sum, 0);
}

TEST(Target, SharesTheDeviceOutByNodes) {
  World world(shared_out(1000));
  for (const auto& [job, nodes] :
       std::map<std::string, std::uint64_t>{{"a", 1}, {"b", 3}, {"c", 6}}) {
    ASSERT_TRUE(world.target.set_nodes(JobId(job), nodes, world.now()));
    world.send(job, 100);
  }
  world.run_until(instant_at(0) + seconds{1});
  world.forget_served();
  world.run_until(instant_at(0) + seconds{11});
  const std::uint64_t all = world.served("a") + world.served("b") + world.served("c");
  EXPECT_GE(all, 9'990U);
  EXPECT_NEAR(share_of(world, "a", all), 0.1, 0.002);
  EXPECT_NEAR(share_of(world, "b", all), 0.3, 0.004);
  EXPECT_NEAR(share_of(world, "c", all), 0.6, 0.006);
}

TEST(Target, ClientsMayStandForNodesThatNobodyNamed) {
  Target::Options options = shared_out(1000);
  options.nodes_by_clients = true;
  World world(options);
  ASSERT_TRUE(world.target.set_nodes(JobId("named"), 1, world.now()));
  world.send("named", 100, 50);
  world.send("three", 100, 3);
  world.run_until(instant_at(0) + seconds{1});
  world.forget_served();
  world.run_until(instant_at(0) + seconds{6});
  EXPECT_NEAR(share_of(world, "three", world.served("named") + world.served("three")), 0.75, 0.01);
}

TEST(Target, ALoneJobMayUseAllOfIt) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.set_nodes(JobId("large"), 9, world.now()));
  world.send("large", 64);
  world.run_until(instant_at(0) + seconds{1});
  world.stop_sending();
  world.run_until(instant_at(0) + seconds{2});
  world.forget_served();
  World lone(shared_out(1000));
  lone.send("small", 64);
  lone.run_until(instant_at(0) + seconds{5});
  EXPECT_GE(lone.served("small"), 4'980U);
}

TEST(Target, RecordsSumToZeroAndSomebodyBorrows) {
  std::uint64_t borrowed = 0;  // the last requests end with the world
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.set_nodes(JobId("calm"), 9, world.now()));
  world.target.on_period([&](const PeriodReport& report) {
    for (const JobPeriod& job : report.jobs) borrowed += job.borrowed.count();
  });
  world.send("calm", 1);
  world.send("greedy", 100);
  for (int second = 1; second <= 5; ++second) {
    world.run_until(instant_at(0) + seconds{second});
    std::int64_t sum = 0;
    for (const auto& account : world.target.controller()->ledger().accounts())
      sum += account.record;
    EXPECT_EQ(sum, 0);
  }
  EXPECT_GT(borrowed, 0U);
  EXPECT_GE(world.served("calm") + world.served("greedy"), 4'980U);
}

// As published: requests beyond the share wait, although slots are free.
TEST(Target, WithoutLendingSharesAreLimits) {
  Target::Options options = shared_out(1000);
  options.controller = ControllerOptions::paper();
  World world(options);
  ASSERT_TRUE(world.target.set_nodes(JobId("calm"), 9, world.now()));
  world.send("calm", 1);
  world.send("greedy", 100);
  world.run_until(instant_at(0) + seconds{5});
  EXPECT_LT(world.served("calm") + world.served("greedy"), 4'900U);
  EXPECT_GT(world.served("greedy"), 1'000U);
}

// Requests of a job may be in service for longer than its share is kept: later requests are paced.
TEST(Target, AJobWhoseShareWentWhileItsRequestsRanHasOneAgainAtItsNextRequest) {
  World world(shared_out(100), milliseconds{700});
  world.send("a", 8);
  world.send("b", 8);
  world.run_until(instant_at(0) + milliseconds{699});
  EXPECT_FALSE(world.target.controller()->share_of(JobId("a")));
  world.run_until(instant_at(0) + milliseconds{700});
  EXPECT_TRUE(world.target.controller()->share_of(JobId("a")));
  EXPECT_TRUE(world.target.controller()->share_of(JobId("b")));
}

TEST(Target, AnAdministratorsLimitHoldsUnderShares) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.write_rule("start slow jobid={slow} rate=50", world.now()));
  world.send("slow", 50);
  world.send("other", 50);
  world.run_until(instant_at(0) + seconds{10});
  EXPECT_LE(world.served("slow"), 503U);
  EXPECT_GE(world.served("slow"), 490U);
  EXPECT_GE(world.served("other"), 9'400U);
}

// 10 a second are less than one token in 20 ms.
TEST(Target, ALowLimitLeavesAJobInTheAllocation) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.write_rule("start slow jobid={slow} rate=10", world.now()));
  world.send("slow", 50);
  world.send("other", 50);
  for (int i = 1; i <= 20; ++i) {
    world.run_until(instant_at(0) + i * milliseconds{100});
    EXPECT_TRUE(world.target.controller()->share_of(JobId("slow"))) << i;
  }
}

TEST(Target, FindsTheCapacityItIsNotTold) {
  Target::Options options = shared_out(1);
  options.capacity = std::nullopt;
  options.estimate_capacity = true;
  World world(options, milliseconds{8});  // 16 slots: 2,000 a second
  world.send("a", 40);
  world.send("b", 40);
  EXPECT_EQ(world.target.capacity(), std::nullopt);
  world.run_until(instant_at(0) + seconds{2});
  ASSERT_TRUE(world.target.capacity().has_value());
  EXPECT_NEAR(static_cast<double>(tokens_in(*world.target.capacity(), seconds{1}).count()), 2000,
              100);
  EXPECT_GE(world.served("a") + world.served("b"), 3'950U);
}

TEST(Target, UnderOtherPoliciesTheControllerIsSuspendedAndComesBack) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.set_nodes(JobId("large"), 3, world.now()));
  world.send("large", 100);
  world.send("small", 100);
  world.run_until(instant_at(0) + seconds{1});
  EXPECT_FALSE(world.target.controller()->suspended());
  ASSERT_TRUE(world.target.set_policy("fifo", "", Heads::kBoth, {}));
  world.run_until(instant_at(0) + seconds{2});
  ASSERT_TRUE(world.target.controller()->suspended());
  EXPECT_NE(world.target.controller()->suspended()->find("fifo"), std::string::npos);
  ASSERT_TRUE(world.target.set_policy("tbf", "nid", Heads::kBoth, {}));
  world.run_until(instant_at(0) + seconds{3});
  EXPECT_FALSE(world.target.controller()->suspended());
  world.forget_served();
  world.run_until(instant_at(0) + seconds{13});
  EXPECT_NEAR(share_of(world, "large", world.served("large") + world.served("small")), 0.75, 0.01);
}

// The audit of a server at 1000/s found 148,583/s under crrn, and a status that said "on".
TEST(Target, ACapacityHoldsUnderEveryPolicyWithAndWithoutAController) {
  for (const bool has_controller : {true, false}) {
    for (const auto& kind : policy_kinds()) {
      Target::Options options = shared_out(1000);
      if (!has_controller) options.controller.reset();
      World world(options, milliseconds{1});
      ASSERT_TRUE(world.target.set_policy(kind->name, "", Heads::kBoth, world.now()));
      EXPECT_EQ(world.target.capacity(), Rate::per_second(1000));
      world.send("a", 50);
      world.send("b", 50);
      world.run_until(instant_at(0) + seconds{3});
      const std::uint64_t served = world.served("a") + world.served("b");
      EXPECT_GE(served, 3'000U - 20) << kind->name;
      EXPECT_LE(served, 3'000U + 100 + 1) << kind->name << ": 100 ms of depth";
    }
  }
}

TEST(Target, ACapacityIsSetAndLiftedUnderAPolicyWithoutRules) {
  World world({.gate = {.slots = 16}}, milliseconds{1});
  ASSERT_TRUE(world.target.set_policy("crrn", "", Heads::kBoth, world.now()));
  world.send("a", 50);
  world.run_until(instant_at(0) + seconds{1});
  EXPECT_GE(world.served("a"), 15'000U);
  world.forget_served();
  ASSERT_TRUE(world.target.set_capacity(Capacity::ops(Rate::per_second(500)), world.now()));
  world.run_until(instant_at(0) + seconds{2});
  EXPECT_LE(world.served("a"), 500U + 50 + 17) << "and those that ran already";
  ASSERT_TRUE(world.target.set_capacity({}, world.now()));
  world.forget_served();
  world.run_until(instant_at(0) + seconds{3});
  EXPECT_GE(world.served("a"), 15'000U);
}

// Shares add up to the capacity there; without shares the root keeps it.
TEST(Target, TheCapacityOfThePublishedAlgorithmHoldsUnderOtherPoliciesToo) {
  Target::Options options = shared_out(1000);
  options.controller = ControllerOptions::paper();
  World world(options, milliseconds{1});
  ASSERT_TRUE(world.target.set_policy("fifo", "", Heads::kBoth, world.now()));
  world.send("a", 50);
  world.run_until(instant_at(0) + seconds{2});
  EXPECT_LE(world.served("a"), 2'000U + 101);
  EXPECT_GE(world.served("a"), 1'980U);
}

TEST(Target, SaysAtOnceWhetherTheControllerIsSuspended) {
  Target target(shared_out(1000), instant_at(0));
  const auto suspended = [&] { return target.controller()->suspended().value_or("on"); };
  EXPECT_EQ(suspended(), "policy fifo is running; shares require tbf") << "before any policy";
  ASSERT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
  EXPECT_EQ(suspended(), "on");
  ASSERT_TRUE(target.set_policy("crrn", "", Heads::kBoth, instant_at(0)));
  EXPECT_EQ(suspended(), "policy crrn is running; shares require tbf");
  EXPECT_FALSE(target.set_policy("none", "", Heads::kBoth, instant_at(0)));
  EXPECT_EQ(suspended(), "policy crrn is running; shares require tbf");
  ASSERT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
  EXPECT_EQ(suspended(), "on");
}

TEST(Target, CountsWhatJobsDo) {
  World world({.gate = {.slots = 4}});
  world.send("a", 10);
  world.run_until(instant_at(0) + milliseconds{40});
  const JobStats::Entry* const entry = world.target.stats().find(JobId("a"));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->finished.requests, 8U);
  EXPECT_EQ(entry->running().requests, 4U);
  EXPECT_EQ(entry->waiting().requests, 6U);
  EXPECT_EQ(entry->read, Bytes{32'768});
}

// While no job is active no timer runs, and missed periods are processed later.
TEST(Target, SleepsWhileNobodyIsActive) {
  int periods = 0;
  World world(shared_out(1000));
  world.target.on_period([&](const PeriodReport&) { ++periods; });
  world.send("a", 1);
  world.stop_sending();
  world.run_until(instant_at(0) + milliseconds{50});
  EXPECT_EQ(world.target.next(world.now()).kind(), Decision::Kind::kIdle);
  const int before = periods;
  EXPECT_EQ(world.target.next(world.now() + seconds{10}).kind(), Decision::Kind::kIdle);
  EXPECT_EQ(periods, before + 500);
  world.target.next(world.now() + std::chrono::hours{24});
  EXPECT_LE(periods, before + 500 + 3001);
}

TEST(Target, ACapacityMayBeGivenOrEstimatedWhileItRuns) {
  World world(shared_out(500), milliseconds{8});  // 16 slots: 2,000 a second
  world.send("a", 40);
  world.send("b", 40);
  world.run_until(instant_at(0) + seconds{2});
  EXPECT_LE(world.served("a") + world.served("b"), 1'060U);
  ASSERT_TRUE(world.target.set_capacity(Capacity{}, world.now()));
  EXPECT_EQ(world.target.capacity(), std::nullopt);  // not known yet
  world.forget_served();
  world.run_until(instant_at(0) + seconds{4});
  ASSERT_TRUE(world.target.capacity().has_value());
  EXPECT_NEAR(static_cast<double>(tokens_in(*world.target.capacity(), seconds{1}).count()), 2000,
              100);
  EXPECT_GE(world.served("a") + world.served("b"), 3'900U);
  ASSERT_TRUE(world.target.set_capacity(Capacity::ops(Rate::per_second(500)), world.now()));
  world.forget_served();
  world.run_until(instant_at(0) + seconds{6});
  EXPECT_LE(world.served("a") + world.served("b"), 1'070U);
}

TEST(Target, RefusesACapacityInAnotherUnitThanItsRequestsAreCountedIn) {
  const Capacity ops = Capacity::ops(Rate::per_second(700));
  const Capacity bytes = Capacity::bytes(Rate::per_second(10'000'000));
  for (const auto& [cost, good, bad, unit] : {std::tuple{Cost::op(), ops, bytes, "operations"},
                                              {Cost::bytes(), bytes, ops, "bytes"},
                                              {Cost::affine(1, 2), ops, bytes, "tokens"}}) {
    Target::Options options = shared_out(500);
    options.cost = cost;
    World world(options);
    const auto refused = world.target.set_capacity(bad, world.now());
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find("counts " + std::string(unit)), std::string::npos);
    EXPECT_EQ(world.target.capacity(), Rate::per_second(500)) << "nothing has changed";
    ASSERT_TRUE(world.target.set_capacity(good, world.now()));
    EXPECT_EQ(world.target.capacity(), good.rate);
    ASSERT_TRUE(world.target.set_capacity(Capacity{}, world.now()));
    EXPECT_FALSE(world.target.set_capacity(bad, world.now())) << "auto does not change the unit";
  }
}

TEST(Target, CountsAsReadAndWrittenOnlyWhatMovesData) {
  World world({});
  const auto run = [&](OperationKind operation) {
    Request request;
    request.attributes.job = JobId("a");
    request.operation = operation;
    request.bytes = Bytes{4096};
    world.target.admit(request, Head::kRegular, world.now());
    ASSERT_EQ(world.target.next(world.now()).kind(), Decision::Kind::kRun);
    world.target.complete(request, world.now());
  };
  for (std::size_t i = 0; i < kOperationKinds; ++i) run(static_cast<OperationKind>(i));
  run(OperationKind::kZero);
  const JobStats::Entry& job = *world.target.stats().find(JobId("a"));
  EXPECT_EQ(job.read, Bytes{4096});
  EXPECT_EQ(job.written, Bytes{3 * 4096}) << "a write and two times zeroes";
}

TEST(Target, ForgetsNodesThatAreTakenBackAndTellsWhenTheyWereUsed) {
  World world(shared_out(1000));
  ASSERT_TRUE(world.target.set_nodes(JobId("a"), 5, world.now()));
  EXPECT_EQ(world.target.nodes_used_at(JobId("a")), instant_at(0));
  EXPECT_EQ(world.target.nodes_used_at(JobId("b")), std::nullopt);
  world.run_until(instant_at(0) + seconds{9});
  world.send("a", 1);
  EXPECT_EQ(world.target.nodes_used_at(JobId("a")), world.now());
  ASSERT_TRUE(world.target.set_nodes(JobId("a"), 0, world.now()));
  EXPECT_EQ(world.target.controller()->nodes_of(JobId("a")), 1U);
  EXPECT_EQ(world.target.nodes_used_at(JobId("a")), std::nullopt);
  world.target.set_nodes_by_clients(true, {});
  world.send("a", 4, 4);
  EXPECT_EQ(world.target.controller()->nodes_of(JobId("a")), 4U) << "its clients count again";
  ASSERT_TRUE(world.target.set_nodes(JobId("a"), 0, world.now()));
  EXPECT_EQ(world.target.controller()->nodes_of(JobId("a")), 4U) << "nobody has named it since";
}

TEST(Target, ClientsOfTheNewestJobsCountHoweverManyHaveEnded) {
  Target::Options options = shared_out(1'000'000);
  options.jobs_max = 16;
  options.nodes_by_clients = true;
  World world(options, milliseconds{1});
  world.stop_sending();
  for (int i = 0; i < 100; ++i) {
    world.send(std::to_string(i), 6, 3);
    EXPECT_EQ(world.target.controller()->nodes_of(JobId(std::to_string(i))), 3U) << i;
    world.run_until(world.now() + seconds{1});
  }
  EXPECT_EQ(world.target.controller()->nodes_of(JobId("7")), 1U) << "it has ended long ago";
}

TEST(Target, WhetherClientsStandForNodesMayChange) {
  World world(shared_out(1000));
  world.target.set_nodes_by_clients(true, {});
  world.send("many", 30, 3);
  world.send("one", 30);
  world.run_until(instant_at(0) + seconds{1});
  EXPECT_EQ(world.target.controller()->nodes_of(JobId("many")), 3U);
  world.target.set_nodes_by_clients(false, {});
  EXPECT_EQ(world.target.controller()->nodes_of(JobId("many")), 1U);
}

}  // namespace
}  // namespace weir
