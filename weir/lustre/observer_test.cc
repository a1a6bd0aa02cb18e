// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/observer.h"

#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

const JobId kJob("dd.0");

// One OST; each look is a period later.
struct Looks {
  RuleRound next(std::vector<JobCounters> jobs, std::optional<std::uint64_t> rpcs) {
    View view;
    view.targets.push_back({.name = "OST0000", .jobs = std::move(jobs), .totals = {}});
    if (rpcs) view.targets[0].totals = {{.samples = *rpcs, .usecs = 0}};
    now += std::chrono::milliseconds{20};
    RuleRound round;
    observer.count(view, now, round);
    return round;
  }
  static JobCounters counters(std::uint64_t rpcs, std::optional<std::uint64_t> since = 1) {
    return {.job = kJob, .rpcs = rpcs, .bytes = 0, .since_ns = since, .update_ns = {}};
  }

  Observer observer;
  Instant now{};
};

std::uint64_t served(const RuleRound& round) { return round.jobs.at(0).served.count(); }

TEST(Observer, CountsFromTheSecondLookOn) {
  Looks looks;
  EXPECT_EQ(served(looks.next({Looks::counters(1000)}, 5000)), 0U);
  const RuleRound round = looks.next({Looks::counters(1010)}, 5012);
  EXPECT_EQ(served(round), 10U);
  EXPECT_EQ(round.served_all, Tokens{12});
}

TEST(Observer, AnEntryThatBeginsAnewCountsFromZero) {
  Looks looks;
  looks.next({Looks::counters(1000, 1)}, 0);
  EXPECT_EQ(served(looks.next({Looks::counters(1005, 2)}, 0)), 1005U);
  EXPECT_EQ(served(looks.next({Looks::counters(7, std::nullopt)}, 0)), 7U);
  EXPECT_EQ(served(looks.next({Looks::counters(3, std::nullopt)}, 0)), 3U);
}

TEST(Observer, CountersThatGoBackCountNothing) {
  Looks looks;
  looks.next({Looks::counters(1000)}, 1000);
  EXPECT_EQ(served(looks.next({Looks::counters(990)}, 990)), 0U);
  const RuleRound round = looks.next({Looks::counters(995)}, 995);
  EXPECT_EQ(served(round), 5U);
  EXPECT_EQ(round.served_all, Tokens{5});
}

TEST(Observer, CountersThatWrapCountNothing) {
  Looks looks;
  looks.next({Looks::counters(UINT64_MAX)}, UINT64_MAX);
  const RuleRound round = looks.next({Looks::counters(4)}, 4);
  EXPECT_EQ(served(round), 0U);
  EXPECT_FALSE(round.served_all);
}

TEST(Observer, AnEntryThatOneReadMissedContinues) {
  Looks looks;
  looks.next({Looks::counters(1000)}, 1000);
  const RuleRound missed = looks.next({}, 1010);
  ASSERT_EQ(missed.jobs.size(), 1U);
  EXPECT_FALSE(missed.jobs[0].known);
  EXPECT_EQ(served(looks.next({Looks::counters(1020)}, 1020)), 20U);
  // In the end it is forgotten.
  for (int i = 0; i < 3001; ++i) looks.next({}, 1020);
  EXPECT_TRUE(looks.next({}, 1020).jobs.empty());
}

TEST(Observer, AddsUpTargetsOfAnySpeed) {
  Observer observer;
  RuleRound round;
  View view;
  view.targets = {{.name = "OST0000", .jobs = {Looks::counters(0)}, .totals = {{}}},
                  {.name = "OST0001", .jobs = {Looks::counters(0)}, .totals = {{}}}};
  observer.count(view, Instant{std::chrono::seconds{1}}, round);
  view.targets[0].jobs[0].rpcs = 4;
  view.targets[0].totals[0].samples = 4;
  view.targets[1].jobs[0].rpcs = 4000;
  view.targets[1].totals[0].samples = 4001;
  observer.count(view, Instant{std::chrono::seconds{2}}, round);
  EXPECT_EQ(served(round), 4004U);
  EXPECT_EQ(round.served_all, Tokens{4005});
}

// The slow target takes ten times as long for a request, so a job that uses it gets a tenth of the
// requests for the same part of the threads.
TEST(Observer, RequestsToASlowTargetCostMore) {
  Observer observer;
  RuleRound round;
  View view;
  JobCounters slow = Looks::counters(0);
  slow.job = JobId("slow");
  view.targets = {{.name = "OST0000", .jobs = {Looks::counters(0)}, .totals = {{}}},
                  {.name = "OST0001", .jobs = {slow}, .totals = {{}}}};
  observer.count(view, Instant{std::chrono::seconds{1}}, round);
  view.targets[0].jobs[0].rpcs = 900;
  view.targets[0].totals[0] = {.samples = 900, .usecs = 900'000};
  view.targets[1].jobs[0].rpcs = 100;
  view.targets[1].totals[0] = {.samples = 100, .usecs = 1'000'000};
  observer.count(view, Instant{std::chrono::seconds{2}}, round);
  // 1.9 ms on average.
  EXPECT_EQ(round.served_all, Tokens{1000});
  EXPECT_EQ(round.jobs.at(0).served, Tokens{473});
  EXPECT_EQ(round.jobs.at(1).served, Tokens{526});
  EXPECT_EQ(observer.cost_of(slow.job), 5389U);
  EXPECT_EQ(observer.cost_of(kJob), 539U);
}

TEST(Observer, OperationsCostTheTimeThatTheyTake) {
  constexpr std::size_t kGetattr = operation_of("getattr");
  constexpr std::size_t kMkdir = operation_of("mkdir");
  constexpr std::size_t kClose = operation_of("close");
  const auto look = [&](Costing costing) {
    Observer observer(kMdtService, costing);
    RuleRound round;
    View view;
    view.targets.resize(1);
    TargetView& target = view.targets[0];
    target.totals.resize(kOperationCount);
    target.jobs = {Looks::counters(0), Looks::counters(0)};
    target.jobs[1].job = JobId("make");
    for (JobCounters& job : target.jobs) job.operations.resize(kOperationCount);
    observer.count(view, Instant{std::chrono::seconds{1}}, round);
    target.jobs[0].operations[kGetattr] = 900;
    target.jobs[0].operations[kClose] = 500;  // served by mdt_readpage
    target.jobs[1].operations[kMkdir] = 100;
    target.totals[kGetattr] = {900, 90'000};
    target.totals[kMkdir] = {100, 110'000};
    target.totals[kClose] = {500, 1'000};
    observer.count(view, Instant{std::chrono::seconds{2}}, round);
    return std::pair(round.jobs.at(0).served.count(), round.jobs.at(1).served.count());
  };
  EXPECT_EQ(look({}), std::pair(450UL, 550UL));
  EXPECT_EQ(look({.kind = Costing::Kind::kEqual}), std::pair(900UL, 100UL));
  const auto table = Costing::parse("# of our MDS\nmkdir 9\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(look(*table), std::pair(500UL, 500UL));
}

// Recorded: a file that open creates counts in open and in mknod.
TEST(Observer, AnOpenThatCreatesIsOneRequest) {
  constexpr std::size_t kOpen = operation_of("open");
  constexpr std::size_t kMknod = operation_of("mknod");
  Observer observer(kMdtService);
  RuleRound round;
  View view;
  view.targets.resize(1);
  view.targets[0].jobs = {Looks::counters(0)};
  auto& operations = view.targets[0].jobs[0].operations;
  operations.resize(kOperationCount);
  observer.count(view, Instant{std::chrono::seconds{1}}, round);
  operations[kOpen] = 5;
  operations[kMknod] = 7;
  observer.count(view, Instant{std::chrono::seconds{2}}, round);
  EXPECT_EQ(served(round), 7U);
}

TEST(Observer, LessThanATokenIsCarriedOn) {
  Observer observer(kMdtService, *Costing::parse("mkdir 3"));
  RuleRound round;
  View view;
  view.targets.resize(1);
  view.targets[0].totals.resize(kOperationCount);
  view.targets[0].jobs = {Looks::counters(0)};
  auto& operations = view.targets[0].jobs[0].operations;
  operations.resize(kOperationCount);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i <= 400; ++i) {
    // One of either kind in turns: 2 on average, so 0.5 and 1.5 tokens.
    operations[operation_of("mkdir")] = i / 2;
    operations[operation_of("getattr")] = (i + 1) / 2;
    for (std::size_t kind = 0; kind < kOperationCount; ++kind) {
      view.targets[0].totals[kind].samples = operations[kind];
    }
    observer.count(view, Instant{std::chrono::milliseconds{20 * (i + 1)}}, round);
    sum += served(round);
  }
  EXPECT_NEAR(static_cast<double>(sum), 400, 4);
}

TEST(Observer, TablesOfCostsThatAreNone) {
  const auto message = [](const char* text) {
    const auto costing = Costing::parse(text);
    return costing ? std::string("accepted") : costing.error().message();
  };
  EXPECT_NE(message("\nmkdirs 5").find("line 2: 'mkdirs' is not an operation"), std::string::npos);
  for (const char* text :
       {"mkdir", "mkdir 0", "mkdir 1000001", "mkdir 5x", "mkdir 5 6", "mkdir -1"}) {
    EXPECT_NE(message(text).find("line 1: expected 'OPERATION COST'"), std::string::npos) << text;
  }
  EXPECT_EQ(message("open 3 # dear\n\n"), "accepted");
}

}  // namespace
}  // namespace weir::lustre
