// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/controller.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using Options = ControllerOptions;

const JobId job_a("a"), job_b("b"), job_c("c");
constexpr milliseconds kPeriod{20};

// A server that outlives controllers. Calls number `fails_from` to `fails_to` have no effect, as
// seen by a controller that starts after a crash.
class FakeServer : public Enforcer {
 public:
  Result<void> set(const JobId& job, const Share& share, Instant) override {
    return step(fmt::format("set {}", job.text()), [&] { shares[job] = share; });
  }
  Result<void> change(const JobId& job, const Share& share, Instant) override {
    if (!shares.contains(job)) return fail(std::errc::no_such_file_or_directory, "share", "gone");
    return step(fmt::format("change {}", job.text()), [&] { shares[job] = share; });
  }
  Result<void> drop(const JobId& job, Instant) override {
    return step(fmt::format("drop {}", job.text()), [&] { shares.erase(job); });
  }
  Result<std::vector<JobId>> held() override {
    std::vector<JobId> jobs;
    for (const auto& [job, share] : shares) jobs.push_back(job);
    return jobs;
  }

  std::string take_log() { return std::exchange(log, ""); }

  std::map<JobId, Share> shares;
  std::string log;
  std::uint64_t steps = 0;
  std::uint64_t fails_from = UINT64_MAX;
  std::uint64_t fails_to = UINT64_MAX;

 private:
  template <class Action>
  Result<void> step(const std::string& text, Action action) {
    ++steps;
    if (fails_from <= steps && steps < fails_to) return fail(std::errc::io_error, text, "stopped");
    log += (log.empty() ? "" : ", ") + text;
    action();
    return {};
  }
};

struct World {
  explicit World(const Options& options = {}) : controller(options, server) {
    controller.set_capacity(Rate::per_second(1000));  // 20 tokens a period of 20 ms
  }

  const PeriodReport& decide(const std::vector<JobSample>& samples = {}) {
    for (const JobSample& sample : samples) controller.observe(sample);
    now += kPeriod;
    return controller.decide(now);
  }

  FakeServer server;
  Controller controller;
  Instant now = instant_at(0);
};

JobSample wants(const JobId& job, std::uint64_t tokens) {
  return {.job = job, .arrived = Tokens{tokens}};
}

std::int64_t sum_of_records(const Ledger& ledger) {
  std::int64_t sum = 0;
  for (const Ledger::Account& account : ledger.accounts()) sum += account.record;
  return sum;
}

TEST(Controller, SharesTheTargetOutByNodes) {
  World world;
  ASSERT_TRUE(world.controller.set_nodes(job_b, 3));
  const PeriodReport& report = world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(report.budget, Tokens{20});
  ASSERT_EQ(report.jobs.size(), 2U);
  EXPECT_EQ(report.jobs[1].nodes, 3U);
  EXPECT_EQ(world.server.shares[job_a], (Share{Rate(Tokens{5}, kPeriod), Tokens{20}, 1}));
  EXPECT_EQ(world.server.shares[job_b], (Share{Rate(Tokens{15}, kPeriod), Tokens{60}, 3}));
  EXPECT_EQ(world.server.take_log(), "set a, set b");
  EXPECT_EQ(world.controller.share_of(job_b), world.server.shares[job_b]);
}

TEST(Controller, SharesAreVisitedInPieces) {
  World world;
  world.decide({wants(job_a, 100), wants(job_b, 100), wants(job_c, 100)});
  std::string seen;
  const auto visit = [&](const JobId& job, const Share& share) {
    seen += job.text();
    EXPECT_EQ(share, world.server.shares[job]);
  };
  const auto next = world.controller.visit_shares(JobId(), 2, visit);
  EXPECT_EQ(seen, "ab");
  ASSERT_EQ(next, job_c);
  EXPECT_EQ(world.controller.visit_shares(*next, 2, visit), std::nullopt);
  EXPECT_EQ(seen, "abc");
  // A share whose state is uncertain is none.
  world.server.fails_from = 0;
  ASSERT_TRUE(world.controller.set_nodes(job_b, 4));
  world.decide({wants(job_a, 100), wants(job_b, 100), wants(job_c, 100)});
  seen.clear();
  EXPECT_EQ(world.controller.visit_shares(JobId(), 9, visit), std::nullopt);
  EXPECT_EQ(seen, "");
}

TEST(Controller, AShareThatDidNotChangeIsNotWrittenAgain) {
  World world;
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  world.server.take_log();
  world.decide({wants(job_b, 100), wants(job_a, 100)});
  EXPECT_EQ(world.server.take_log(), "");
  ASSERT_TRUE(world.controller.set_nodes(job_b, 4));
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(world.server.take_log(), "change a, change b");
}

TEST(Controller, DemandIsTheBacklogOrWhatWasServed) {
  const JobSample sample{
      .job = job_a, .arrived = Tokens{5}, .served = Tokens{4}, .waiting = Tokens{7}};
  World backlog;
  EXPECT_EQ(backlog.decide({sample}).jobs[0].demand, Tokens{12});
  World paper(Options::paper());
  EXPECT_EQ(paper.decide({sample}).jobs[0].demand, Tokens{4});
  JobSample limited = sample;
  limited.limit = Tokens{3};
  EXPECT_EQ(backlog.decide({limited}).jobs[0].demand, Tokens{3}) << "an administrator's limit";
  EXPECT_EQ(backlog.decide({sample, sample}).jobs[0].demand, Tokens{24}) << "samples add up";
}

TEST(Controller, AReportHasTheRecordsOfAllJobsAlsoOfThoseNotActive) {
  World world;
  world.decide({wants(job_a, 2), wants(job_b, 30)});
  const PeriodReport& lent = world.decide({wants(job_a, 2), wants(job_b, 30)});
  ASSERT_EQ(lent.records.size(), 2U);
  EXPECT_GT(lent.records[0].record, 0);
  EXPECT_EQ(lent.records[0].record, lent.jobs[0].record);
  EXPECT_EQ(lent.records[0].record + lent.records[1].record, 0);
  const PeriodReport& alone = world.decide({wants(job_b, 30)});
  ASSERT_EQ(alone.jobs.size(), 1U);
  ASSERT_EQ(alone.records.size(), 2U);
  EXPECT_EQ(alone.records[0].job, job_a);
  EXPECT_EQ(alone.records[0].record + alone.records[1].record, 0);
}

TEST(Controller, TheSmallestRateIsATokenAPeriod) {
  World world;
  ASSERT_TRUE(world.controller.set_nodes(job_a, 1'000'000));
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(world.server.shares[job_b], (Share{Rate(Tokens{1}, kPeriod), Tokens{8}, 1}));
}

TEST(Controller, AsPublishedASharesBucketHoldsThreeAndEndsWithItsJobsActivity) {
  World world(Options::paper());
  world.controller.first_request(job_a, world.now);
  EXPECT_EQ(world.server.take_log(), "") << "no rule: the fallback queue";
  world.decide({{.job = job_a, .served = Tokens{9}}});
  EXPECT_EQ(world.server.shares[job_a],
            (Share{Rate(Tokens{100}, milliseconds{100}), Tokens{3}, 1}));
  world.decide();
  EXPECT_EQ(world.server.take_log(), "set a, drop a");
}

TEST(Controller, ANewcomerGetsItsShareAtItsFirstRequest) {
  World world;
  ASSERT_TRUE(world.controller.set_nodes(job_b, 3));
  world.controller.first_request(job_a, world.now);
  EXPECT_EQ(world.server.shares[job_a], (Share{Rate::per_second(1000), Tokens{80}, 1}));
  world.controller.first_request(job_b, world.now);
  EXPECT_EQ(world.server.shares[job_b], (Share{Rate::per_second(750), Tokens{60}, 3}));
  world.controller.first_request(job_c, world.now);
  EXPECT_EQ(world.server.shares[job_c], (Share{Rate::per_second(200), Tokens{16}, 1}));
  world.controller.first_request(job_c, world.now);
  EXPECT_EQ(world.server.take_log(), "set a, set b, set c");
  // The job is not part of the allocation: tokens that spill from its bucket are not lent.
  const JobSample lends{.job = job_a, .arrived = Tokens{1}, .lent = Tokens{5}};
  const JobSample borrows{.job = job_b, .arrived = Tokens{90}, .borrowed = Tokens{5}};
  world.decide({lends, borrows});
  EXPECT_EQ(world.controller.ledger().find(job_a)->lent, Tokens{0});
  world.decide({lends, borrows});
  EXPECT_EQ(world.controller.ledger().find(job_a)->lent, Tokens{5});
  EXPECT_EQ(world.controller.ledger().find(job_b)->borrowed, Tokens{5});
}

TEST(Controller, AnIdleShareIsKeptUntilItHadTimeToFillAndLendsOnlyWhatItWasAllotted) {
  World world;
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(world.server.shares[job_a].rate, Rate(Tokens{10}, kPeriod));
  world.server.take_log();
  const JobSample idle{.job = job_a, .lent = Tokens{2}};
  const JobSample borrows{.job = job_b, .arrived = Tokens{100}, .borrowed = Tokens{2}};
  world.decide({idle, borrows});
  EXPECT_EQ(world.controller.ledger().find(job_a)->record, 2) << "it had a share of that period";
  EXPECT_EQ(world.server.shares[job_a].rate, Rate(Tokens{10}, kPeriod)) << "kept as it was";
  world.decide({idle, borrows});
  EXPECT_EQ(world.controller.ledger().find(job_a)->record, 2) << "nothing of it counts any more";
  for (int period = 3; period <= 5; ++period) {
    EXPECT_TRUE(world.server.shares.contains(job_a)) << "idle for " << period - 1;
    world.decide({borrows});
  }
  EXPECT_TRUE(world.server.shares.contains(job_a)) << "four periods fill it";
  world.decide({borrows});
  EXPECT_FALSE(world.server.shares.contains(job_a));
  EXPECT_EQ(world.server.take_log(), "change b, drop a");
}

TEST(Controller, LoansBeyondTheLargestNumberCount) {
  const JobSample borrows{.job = job_b, .arrived = Tokens{100}, .borrowed = Tokens{5}};
  const JobSample most{.job = job_a, .lent = Tokens{UINT64_MAX}};
  const JobSample more{.job = job_a, .lent = Tokens{1}};
  JobSample both = most;
  both.borrowed = Tokens{1};
  for (const std::vector<JobSample>& samples :
       {std::vector<JobSample>{most, more, borrows}, std::vector<JobSample>{both, borrows}}) {
    World world;
    world.decide({wants(job_a, 100), wants(job_b, 100)});
    world.decide(samples);
    EXPECT_EQ(world.controller.ledger().find(job_a)->record, 5);
    EXPECT_EQ(world.controller.ledger().find(job_b)->record, -5);
  }
}

TEST(Controller, WhatFailsIsTriedAgainAndRecordsDoNotDependOnIt) {
  World world;
  World smooth;
  world.server.fails_from = 2;
  world.server.fails_to = 4;
  for (int i = 0; i < 4; ++i) {
    const std::vector<JobSample> samples = {wants(job_a, 3),
                                            wants(job_b, 100 + static_cast<unsigned>(i))};
    world.decide(samples);
    smooth.decide(samples);
  }
  EXPECT_EQ(world.server.shares, smooth.server.shares);
  EXPECT_EQ(world.controller.counters().failed, 2U);
  EXPECT_EQ(world.controller.last_error()->what, "stopped");
  EXPECT_EQ(world.controller.ledger().find(job_a)->record,
            smooth.controller.ledger().find(job_a)->record);
}

TEST(Controller, AServerThatLostItsSharesGetsThemBack) {
  World world;
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  world.server.shares.clear();
  ASSERT_TRUE(world.controller.set_nodes(job_b, 2));
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(world.controller.counters().failed, 2U);
  world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(world.server.shares.size(), 2U);
}

TEST(Controller, WithoutACapacitySharesOnlyOrder) {
  World world;
  world.controller.set_capacity(std::nullopt);
  ASSERT_TRUE(world.controller.set_nodes(job_a, 7));
  world.controller.first_request(job_a, world.now);
  EXPECT_EQ(world.server.shares[job_a], (Share{std::nullopt, Tokens{0}, 7}));
  const PeriodReport& report = world.decide({wants(job_a, 5)});
  EXPECT_EQ(report.budget, Tokens{0});
  EXPECT_EQ(report.jobs.at(0).demand, Tokens{5});
  EXPECT_EQ(world.server.take_log(), "set a");
  world.controller.set_capacity(Rate::per_second(1000));
  world.decide({wants(job_a, 5)});
  EXPECT_EQ(world.server.shares[job_a].rate, Rate::per_second(1000));
}

TEST(Controller, SuspendedItTakesItsSharesAwayAndSaysWhy) {
  World world;
  world.decide({wants(job_a, 1), wants(job_b, 100)});
  const std::int64_t record = world.controller.ledger().find(job_a)->record;
  ASSERT_GT(record, 0);
  world.server.fails_from = world.server.steps + 2;  // b's share cannot be dropped at once
  world.server.fails_to = world.server.fails_from + 1;
  world.controller.suspend("policy fifo has no shares", world.now);
  EXPECT_EQ(world.controller.suspended(), "policy fifo has no shares");
  EXPECT_EQ(world.server.shares.size(), 1U);
  EXPECT_TRUE(world.decide({wants(job_a, 1)}).jobs.empty());
  EXPECT_TRUE(world.server.shares.empty());
  world.controller.first_request(job_a, world.now);
  EXPECT_TRUE(world.server.shares.empty());
  world.controller.resume();
  world.decide({wants(job_a, 1), wants(job_b, 100)});
  EXPECT_EQ(world.server.shares.size(), 2U);
  EXPECT_GT(world.controller.ledger().find(job_a)->record, record) << "records were kept";
}

TEST(Controller, NodesAreATableSetByCommand) {
  World world;
  EXPECT_EQ(world.controller.nodes_of(job_a), 1U);
  ASSERT_TRUE(world.controller.set_nodes(job_a, 5));
  EXPECT_EQ(world.controller.nodes_of(job_a), 5U);
  EXPECT_EQ(world.controller.set_nodes(job_a, 0).error().message(),
            "nodes of job 'a': 0 is out of range; give a number from 1 to 1099511627776");
  EXPECT_FALSE(world.controller.set_nodes(job_a, Allocator::kNodesMax + 1));
  world.controller.forget_nodes(job_a);
  EXPECT_EQ(world.controller.nodes_of(job_a), 1U);
}

TEST(Controller, InventedJobsGetNoSharesBeyondTheBound) {
  Options options;
  options.jobs_max = 10;
  World world(options);
  for (int i = 0; i < 1000; ++i) {
    world.controller.first_request(JobId(fmt::format("invented{}", i)), world.now);
  }
  EXPECT_EQ(world.server.shares.size(), 10U);
  EXPECT_EQ(world.controller.counters().overflow, 990U);
}

// ---- crashes ----

std::vector<JobSample> busy(Rng& rng) {
  std::vector<JobSample> samples;
  for (const char* job : {"a", "b", "c", "d", "e"}) {
    if (rng.chance(1, 4)) continue;
    samples.push_back({.job = JobId(job),
                       .arrived = Tokens{1 + rng.below(40)},
                       .borrowed = Tokens{rng.below(4)},
                       .lent = Tokens{rng.below(4)}});
  }
  return samples;
}

// The difference between the shares of a server and the last decision of its controller, as text.
std::string not_as_decided(const FakeServer& server, const PeriodReport& report) {
  for (const JobPeriod& job : report.jobs) {
    const auto share = server.shares.find(job.job);
    if (share == server.shares.end()) return fmt::format("{} has no share", job.job.text());
    if (share->second.rate != Rate(std::max(Tokens{1}, job.final), kPeriod)) {
      return fmt::format("{} has another share", job.job.text());
    }
  }
  return server.shares.size() == report.jobs.size() ? "" : "shares that nobody wants";
}

// The server and the controller stop at step k, whatever that step is.
TEST(Controller, ACrashBetweenAnyTwoStepsLeavesAStateToGoOnFrom) {
  for (const bool keeps_state : {true, false}) {
    std::uint64_t crashed_inside = 0;
    for (std::uint64_t k = 1; k < 60; ++k) {
      World world;
      Rng rng(4);
      world.server.fails_from = k;
      std::optional<Controller::State> saved;
      for (int i = 0; i < 20 && world.server.steps < k; ++i) {
        world.decide(busy(rng));
        if (world.server.steps < k) saved = world.controller.state();
      }
      crashed_inside += world.server.steps > k ? 1 : 0;
      world.server.fails_from = UINT64_MAX;

      Controller next(Options{}, world.server);
      next.set_capacity(Rate::per_second(1000));
      if (saved && keeps_state) {
        ASSERT_TRUE(next.restore(*saved));
      }
      for (const JobSample& sample : busy(rng)) next.observe(sample);
      const PeriodReport& report = next.decide(world.now + kPeriod);
      ASSERT_EQ(not_as_decided(world.server, report), "") << k;
      ASSERT_EQ(sum_of_records(next.ledger()), 0) << k;
      if (saved && keeps_state) {
        ASSERT_EQ(next.ledger().period(), saved->allocator.ledger.period + 1);
      }
    }
    EXPECT_GT(crashed_inside, 10U) << "some of these were in the middle of a round";
  }
}

TEST(Controller, TheCheckAfterACrashBites) {
  World world;
  const PeriodReport& report = world.decide({wants(job_a, 100), wants(job_b, 100)});
  EXPECT_EQ(not_as_decided(world.server, report), "");
  const Share share = world.server.shares[job_a];
  world.server.shares[job_a].rate = Rate::per_second(1);
  EXPECT_EQ(not_as_decided(world.server, report), "a has another share");
  world.server.shares.erase(job_a);
  EXPECT_EQ(not_as_decided(world.server, report), "a has no share");
  world.server.shares[job_a] = world.server.shares[job_c] = share;
  EXPECT_EQ(not_as_decided(world.server, report), "shares that nobody wants");
}

TEST(Controller, GoesOnFromItsStateAsIfNothingHadHappened) {
  World first;
  World second;
  Rng rng(8);
  ASSERT_TRUE(first.controller.set_nodes(job_a, 3));
  ASSERT_TRUE(second.controller.set_nodes(job_a, 3));
  for (int i = 0; i < 50; ++i) {
    const std::vector<JobSample> samples = busy(rng);
    first.decide(samples);
    second.decide(samples);
  }
  World third;
  ASSERT_TRUE(third.controller.set_nodes(job_a, 3));
  ASSERT_TRUE(third.controller.restore(second.controller.state()));
  EXPECT_EQ(third.controller.nodes_of(job_a), 3U) << "set at the start, before the state is read";
  const std::vector<JobSample> samples = busy(rng);
  const PeriodReport& expected = first.decide(samples);
  const PeriodReport& report = third.decide(samples);
  ASSERT_EQ(report.jobs.size(), expected.jobs.size());
  for (std::size_t i = 0; i < report.jobs.size(); ++i) {
    EXPECT_EQ(report.jobs[i].final, expected.jobs[i].final);
    EXPECT_EQ(report.jobs[i].record, expected.jobs[i].record);
  }
}

TEST(Controller, RefusesAStateThatCannotBe) {
  World world;
  Controller::State state = world.controller.state();
  state.allocator.carry_of = 0;
  EXPECT_FALSE(world.controller.restore(state));
}

}  // namespace
}  // namespace weir
