// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/world.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using Kind = ProcessSpec::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A target that serves 100 requests a second, one at a time, in exactly 10 ms.
Scenario exact(Nanoseconds length) {
  Scenario scenario;
  scenario.length = length;
  scenario.targets[0].capacity = Rate::per_second(100);
  scenario.targets[0].store.slots = 1;
  scenario.targets[0].store.service = {.base = milliseconds{10}};
  return scenario;
}

void add_job(Scenario& scenario, std::string name, std::vector<ProcessSpec> processes,
             std::uint64_t nodes = 1) {
  JobSpec& job = scenario.jobs.emplace_back();
  job.name = std::move(name);
  job.nodes = nodes;
  job.processes = std::move(processes);
}

Outcome outcome_of(const Scenario& scenario, Contender contender = Contender::kNone,
                   std::uint64_t seed = 1) {
  const auto checked = check(scenario);
  EXPECT_TRUE(checked) << checked.error().message();
  RunOptions options;
  options.seed = seed;
  auto outcome = run(scenario, contender, options);
  EXPECT_TRUE(outcome) << outcome.error().message();
  EXPECT_EQ(outcome->findings, 0U) << outcome->first_findings.front();
  return std::move(*outcome);
}

// Beside greedy jobs, on a device that serves 1000 a second.
Scenario reserved(std::uint64_t rate) {
  Scenario scenario;
  scenario.length = seconds{10};
  scenario.targets[0].store.slots = 16;
  scenario.targets[0].store.service = {.base = milliseconds{15}};
  add_job(scenario, "a", {{.window = 16}});
  add_job(scenario, "idle", {{.window = 1, .start = seconds{9}}});
  scenario.jobs[0].reserve = Rate::per_second(rate);
  scenario.jobs[1].reserve = Rate::per_second(300);
  for (int i = 0; i < 100; ++i) add_job(scenario, "g" + std::to_string(i), {{.window = 4}});
  return scenario;
}

TEST(World, KeepsReservationsUnderOverload) {
  const Outcome outcome = outcome_of(reserved(400), Contender::kWeir);
  EXPECT_NEAR(static_cast<double>(outcome.jobs[0].served), 4000, 40);
  EXPECT_GE(outcome.served, 9990U) << "what the other reservation does not use is not lost";
}

TEST(World, FindsAReservationThatTheDeviceCannotServe) {
  Scenario scenario = reserved(400);
  scenario.targets[0].store.service = {.base = milliseconds{50}};
  scenario.jobs[0].processes[0].window = 64;  // more than are in service
  const auto outcome = run(scenario, Contender::kWeir, {});
  ASSERT_TRUE(outcome);
  EXPECT_GT(outcome->findings, 0U);
}

TEST(World, RefusesAReservationAboveTheCapacity) {
  const auto outcome = run(reserved(900), Contender::kWeir, {});
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message().find("90 % of the capacity"), std::string::npos);
}

// Projects 1 and 2 with weights 3 and 1, two users each, of which that of project 1 with number 11
// sends bursts; two jobs each.
Scenario two_projects() {
  Scenario scenario;
  scenario.length = seconds{15};
  TargetSpec& target = scenario.targets[0];
  target.store.slots = 16;
  target.store.service = {.base = milliseconds{14}};
  target.tree = {{Field::kProjid}, {Field::kUid}};
  target.weights = {{"1", 3}, {"2/21", 4}};
  for (const std::uint32_t user : {11U, 12U, 21U, 22U}) {
    for (const char* letter : {"a", "b"}) {
      ProcessSpec process{.window = 16};
      if (user == 11) {
        process.kind = ProcessSpec::Kind::kBurst;
        process.requests = 30;
        process.every = seconds{2};
      }
      add_job(scenario, letter + std::to_string(user), {process});
      scenario.jobs.back().project = user / 10;
      scenario.jobs.back().user = user;
    }
  }
  return scenario;
}

TEST(World, DividesByTheTreeAndLendsToSiblingsFirst) {
  const Outcome outcome = outcome_of(two_projects(), Contender::kWeir);
  EXPECT_GT(outcome.parts_checked, 3U);
  EXPECT_GE(outcome.served, 14'985U) << "99.9 % of the capacity";
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 4; ++i) first += outcome.jobs[i].served;
  EXPECT_NEAR(static_cast<double>(first), 11'250, 112) << "of project 1, although 11 is often idle";
  EXPECT_NEAR(static_cast<double>(outcome.jobs[4].served), 1500, 15) << "2/21 gets 4 of 5 of 1/4";
  ASSERT_TRUE(outcome.jobs[4].entitlement);
  EXPECT_NEAR(*outcome.jobs[4].entitlement, 0.1, 1e-9);
}

TEST(World, FollowsTheTreeInOrderWithoutACapacity) {
  const Outcome outcome = outcome_of(two_projects(), Contender::kWfq);
  EXPECT_GT(outcome.parts_checked, 3U);
}

TEST(World, FindsAJobThatGetsMoreThanItsPartOfTheTree) {
  Scenario scenario = two_projects();
  scenario.jobs[7].reserve = Rate::per_second(700);  // its project is entitled to 250
  const auto outcome = run(scenario, Contender::kWeir, {});
  ASSERT_TRUE(outcome);
  ASSERT_GT(outcome->findings, 0U);
  EXPECT_NE(outcome->first_findings.front().find("its part by weight"), std::string::npos);
}

TEST(World, ServesAContinuousProcessOneAfterTheOther) {
  Scenario scenario = exact(seconds{1});
  add_job(scenario, "a", {{.window = 3}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.served, 100U);
  EXPECT_DOUBLE_EQ(outcome.utilisation, 1);
  const JobOutcome& job = outcome.jobs[0];
  EXPECT_EQ(job.arrived, 103U);  // 100 served, one in service, two waiting at the end
  EXPECT_DOUBLE_EQ(job.throughput, 100);
  // Two wait before it, each 10 ms; quantiles err upwards by up to 1/256.
  EXPECT_NEAR(static_cast<double>(job.wait.quantile(1, 2)) / 1e6, 20, 0.1);
  EXPECT_NEAR(static_cast<double>(job.latency.quantile(1, 2)) / 1e6, 30, 0.15);
  ASSERT_EQ(job.bins.size(), 11U);  // the last request is done as the run ends
  EXPECT_EQ(job.bins[1].served, 10U);
}

TEST(World, EndsWithTheLastRequestWhereThereIsNoLength) {
  Scenario scenario = exact(seconds{1});
  scenario.length.reset();
  add_job(scenario, "a", {{.count = 2, .window = 2, .requests = 5}});
  add_job(scenario, "b", {{.window = 2, .requests = 20}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.served, 30U);
  EXPECT_EQ(outcome.duration, milliseconds{300});
  // A job that is done early has its throughput until then.
  EXPECT_GT(outcome.jobs[0].throughput, 60);
  EXPECT_NEAR(outcome.jobs[1].throughput, 20 / 0.3, 1e-6);
  // While both had work, they were served in turn, with four and two requests outstanding.
  EXPECT_TRUE(outcome.contended_until);
  EXPECT_NEAR(*outcome.jobs[0].share, 2.0 / 3, 0.1);
}

TEST(World, ReleasesBurstsAndKeepsTheirWindow) {
  Scenario scenario = exact(seconds{4});
  add_job(scenario, "a",
          {{.kind = Kind::kBurst,
            .window = 2,
            .start = seconds{1},
            .requests = 30,
            .every = seconds{2}}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.served, 60U);
  // With two outstanding, no request waits for more than one other.
  EXPECT_LE(outcome.jobs[0].wait.quantile(1, 1), 10'100'000U);
  EXPECT_EQ(outcome.jobs[0].bins[9].served, 0U);
  EXPECT_EQ(outcome.jobs[0].bins[11].served, 10U);
}

TEST(World, LetsPeopleThinkUntilAllIsDone) {
  Scenario scenario = exact(seconds{10});
  add_job(scenario, "a",
          {{.kind = Kind::kThink,
            .window = 4,
            .requests = 2,
            .requests_min = 2,
            .think = milliseconds{80}}});
  const Outcome outcome = outcome_of(scenario);
  // 80 ms of thinking and twice 10 ms of service: 10 rounds a second, except for the first.
  EXPECT_NEAR(static_cast<double>(outcome.served), 200, 2);
}

TEST(World, TheTimeInWhichAllHaveWorkBeginsWithTheLastToStart) {
  Scenario scenario = exact(seconds{10});
  add_job(scenario, "a", {{.window = 2}});
  add_job(scenario, "b",
          {{.kind = Kind::kBurst, .window = 1, .requests = 1, .every = seconds{1}},
           {.window = 6, .start = seconds{5}}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.contended_from, Nanoseconds{seconds{5}});
  EXPECT_EQ(outcome.contended_until, Nanoseconds{seconds{10}});
  EXPECT_NEAR(*outcome.jobs[0].share, 0.25, 0.02);
  EXPECT_DOUBLE_EQ(*outcome.jobs[0].entitlement, 0.5);
}

TEST(World, StaticRatesHoldThoughTheTargetIdles) {
  Scenario scenario = exact(seconds{20});
  add_job(scenario, "big", {{.window = 4}}, 3);
  add_job(scenario, "small", {{.window = 4}}, 1);
  scenario.jobs[0].processes[0].start = seconds{10};
  const Outcome outcome = outcome_of(scenario, Contender::kStatic);
  EXPECT_NEAR(outcome.jobs[1].throughput, 25, 0.25);
  EXPECT_NEAR(static_cast<double>(outcome.jobs[0].served), 750, 8);
}

TEST(World, ReplaysATraceAtItsTimes) {
  Scenario scenario = exact(seconds{1});
  add_job(scenario, "a", {});
  add_job(scenario, "b", {});
  for (int i = 0; i < 10; ++i) scenario.trace.push_back({milliseconds{0}, 0, true, Bytes{4096}});
  scenario.trace.push_back({milliseconds{50}, 1, false, Bytes{4096}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.jobs[0].served, 10U);
  EXPECT_EQ(outcome.jobs[1].served, 1U);
  EXPECT_NEAR(static_cast<double>(outcome.jobs[1].wait.quantile(1, 1)) / 1e6, 50, 0.3);
}

TEST(World, SpreadsAProcessOverTargetsInTurns) {
  Scenario scenario = exact(seconds{2});
  scenario.targets.push_back(scenario.targets[0]);
  scenario.targets[1].name = "second";
  add_job(scenario, "wide", {{.window = 8, .target = std::nullopt}});
  add_job(scenario, "left", {{.window = 8, .target = 0}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.targets[0].served, 200U);
  EXPECT_EQ(outcome.targets[1].served + outcome.jobs[1].served,
            outcome.served - (outcome.jobs[0].served - outcome.targets[1].served));
  EXPECT_GT(outcome.targets[1].served, 50U);
}

TEST(World, TheSameSeedGivesTheSameAndAnotherDoesNot) {
  Scenario scenario = exact(seconds{20});
  scenario.targets[0].store.service.kind = ServiceTime::Kind::kExponential;
  add_job(
      scenario, "a",
      {{.kind = Kind::kThink, .count = 3, .window = 4, .requests = 4, .think = milliseconds{50}}});
  add_job(scenario, "b", {{.window = 2, .reads_percent = 30}});
  const Outcome first = outcome_of(scenario, Contender::kStatic, 5);
  const Outcome again = outcome_of(scenario, Contender::kStatic, 5);
  const Outcome other = outcome_of(scenario, Contender::kStatic, 6);
  EXPECT_EQ(first.served, again.served);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.jobs[0].wait.quantile(99, 100), again.jobs[0].wait.quantile(99, 100));
  EXPECT_NE(first.events, other.events);
}

TEST(World, AJobMoreDoesNotMoveTheChanceOfTheOthers) {
  Scenario scenario = exact(seconds{5});
  scenario.targets[0].store.slots = 8;
  add_job(scenario, "a",
          {{.kind = Kind::kThink, .window = 4, .requests = 4, .think = milliseconds{50}}});
  const Outcome alone = outcome_of(scenario);
  add_job(scenario, "late", {{.window = 1, .start = milliseconds{4990}}});
  const Outcome together = outcome_of(scenario);
  EXPECT_EQ(alone.jobs[0].served, together.jobs[0].served);
}

TEST(World, SurvivesLateTimersLostWakeupsAndSteps) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = exact(seconds{20});
    scenario.targets[0].store.slots = 4;
    scenario.faults.late_permille = 200;
    scenario.faults.late_by = milliseconds{5};
    scenario.faults.lost_permille = 100;
    scenario.faults.steps = {{seconds{5}, seconds{3}}, {seconds{10}, -seconds{4}}};
    add_job(scenario, "big", {{.count = 2, .window = 4}}, 3);
    add_job(scenario, "small",
            {{.kind = Kind::kBurst, .window = 8, .requests = 20, .every = seconds{1}}});
    for (const Contender contender : kContenders) {
      const Outcome outcome = outcome_of(scenario, contender, seed);
      EXPECT_GT(outcome.served, 1000U);
      EXPECT_GT(outcome.jobs[1].served, 200U);
    }
  }
}

TEST(World, LateTimersCostThroughputOnlyWhereTimersDecide) {
  Scenario scenario = exact(seconds{20});
  add_job(scenario, "a", {{.window = 4}}, 1);
  add_job(scenario, "b", {{.window = 4}}, 1);
  const std::uint64_t in_time = outcome_of(scenario, Contender::kNone).served;
  scenario.faults.late_permille = 1000;
  scenario.faults.late_by = milliseconds{30};
  EXPECT_EQ(outcome_of(scenario, Contender::kNone).served, in_time);
}

TEST(World, TellsHowFarItIs) {
  Scenario scenario = exact(seconds{2000});
  add_job(scenario, "a", {{.window = 1}});
  RunOptions options;
  Nanoseconds last{0};
  options.progress = [&](Nanoseconds reached) {
    EXPECT_GT(reached, last);
    last = reached;
  };
  ASSERT_TRUE(run(scenario, Contender::kNone, options));
  EXPECT_GT(last, seconds{1000});
}

// Requests of job 0 at given times, and an error after them if asked for.
class GivenArrivals final : public Arrivals {
 public:
  GivenArrivals(std::vector<Nanoseconds> times, bool fails)
      : times_(std::move(times)), fails_(fails) {}

  Result<std::optional<TraceEntry>> next() override {
    if (at_ < times_.size()) return TraceEntry{.at = times_[at_++]};
    if (fails_) return fail(std::errc::io_error, "stream", "cannot be read");
    return std::nullopt;
  }

 private:
  std::vector<Nanoseconds> times_;
  std::size_t at_ = 0;
  bool fails_;
};

StreamSpec stream_of(std::vector<Nanoseconds> times, std::uint32_t window, bool fails = false) {
  StreamSpec stream;
  stream.open = [times, fails]() -> Result<std::unique_ptr<Arrivals>> {
    return std::unique_ptr<Arrivals>(std::make_unique<GivenArrivals>(times, fails));
  };
  stream.window = window;
  return stream;
}

TEST(World, AStreamArrivesAtItsTimes) {
  Scenario scenario = exact(seconds{1});
  add_job(scenario, "a", {});
  scenario.streams = {stream_of({milliseconds{5}, milliseconds{5}, milliseconds{300}}, 10)};
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.jobs[0].served, 3U);
  EXPECT_EQ(outcome.held_back, 0U);
  EXPECT_EQ(outcome.bin, milliseconds{10});
  EXPECT_NEAR(static_cast<double>(outcome.jobs[0].wait.quantile(1, 1)) / 1e6, 10, 0.1);
}

TEST(World, AFullWindowHoldsItsOwnStreamBackOnly) {
  Scenario scenario = exact(seconds{1});
  add_job(scenario, "a", {});
  // All at once, one at a time: each waits inside the stream until the one before is done.
  scenario.streams = {stream_of(std::vector<Nanoseconds>(5), 1)};
  Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.jobs[0].served, 5U);
  EXPECT_EQ(outcome.held_back, 4U);
  EXPECT_EQ(outcome.held_back_longest, milliseconds{40});
  EXPECT_EQ(outcome.jobs[0].wait.quantile(1, 1), 0U);
  scenario.streams.push_back(stream_of({milliseconds{5}}, 1));
  outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.jobs[0].served, 6U);
  // Behind the one in service and no other.
  EXPECT_NEAR(static_cast<double>(outcome.jobs[0].wait.quantile(1, 1)) / 1e6, 10, 0.1);
}

TEST(World, AStreamThatFailsEndsTheRunWithItsError) {
  Scenario scenario = exact(seconds{1});
  add_job(scenario, "a", {});
  scenario.streams = {stream_of({milliseconds{5}}, 10, true)};
  const auto outcome = run(scenario, Contender::kNone, {});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(), "stream: cannot be read");
}

TEST(World, LongRunsHaveWiderIntervalsInsteadOfMore) {
  Scenario scenario = exact(std::chrono::hours{3});
  add_job(scenario, "a", {{.kind = Kind::kBurst, .requests = 1, .every = seconds{1}}});
  const Outcome outcome = outcome_of(scenario);
  EXPECT_EQ(outcome.served, 10'800U);
  EXPECT_EQ(outcome.bin, seconds{4});  // 10,800 s / 4,096, as a power of two
  EXPECT_LE(outcome.jobs[0].bins.size(), 4096U);
  std::uint64_t sum = 0;
  for (const Bin& bin : outcome.jobs[0].bins) sum += bin.served;
  EXPECT_EQ(sum, 10'800U);
  EXPECT_EQ(outcome.jobs[0].bins[7].served, 4U);
}

TEST(World, FairnessTakesDemandIntoAccount) {
  // A job with 9 of 10 nodes that needs little, and one that takes all it can get.
  Scenario scenario = exact(milliseconds{9500});
  add_job(scenario, "modest", {{.kind = Kind::kBurst, .requests = 10, .every = seconds{1}}}, 9);
  add_job(scenario, "greedy", {{.window = 64}});
  const Outcome fair = outcome_of(scenario, Contender::kWfq);
  EXPECT_GT(*fair.fairness, 0.999);
  // First come, first served makes it wait behind 64 others.
  scenario.jobs[0].processes[0].requests = 60;
  scenario.jobs[0].processes[0].window = 1;
  const Outcome unfair = outcome_of(scenario, Contender::kNone);
  EXPECT_LT(*unfair.fairness, 0.6);
}

}  // namespace
}  // namespace weir::sim
