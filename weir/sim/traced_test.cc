// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/traced.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "weir/target/trace_writer.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two jobs; `a` is served ten times, 2 ms after each arrival and for 3 ms, `b` once.
std::string traced_run() {
  std::string bytes;
  TraceWriter writer({"test", 0}, [&](std::string block) { bytes += block; });
  Instant now = instant_at(0) + seconds{100};
  const TraceTarget described{"ost_io", {}, {}, now};
  Target target(described.options, now);
  target.record(&writer.add_target(described));
  now += seconds{7};  // before the first request: not part of the run
  const auto serve = [&](const std::string& job) {
    Request request;
    request.attributes.job = JobId(job);
    request.bytes = Bytes{4096};
    target.admit(request, Head::kRegular, now);
    now += milliseconds{2};
    EXPECT_EQ(target.next(now).kind(), Decision::Kind::kRun);
    now += milliseconds{3};
    target.complete(request, now);
  };
  for (int i = 0; i < 10; ++i) serve("a");
  serve("b");
  serve("stranger");
  now += seconds{10};
  serve("a");  // beyond the length of the scenario
  writer.end(false);
  return bytes;
}

TEST(Traced, GivesTheNumbersOfASimulatedRun) {
  Scenario scenario;
  scenario.length = seconds{1};
  scenario.targets.front().capacity = Rate::per_second(22);
  scenario.jobs = {{.name = "a", .group = "a", .nodes = 3, .processes = {}},
                   {.name = "b", .group = "b", .nodes = 1, .processes = {}}};
  TracedOutcome traced(scenario, Contender::kWeir);
  const std::string bytes = traced_run();
  std::size_t at = 0;
  const ReplayReport report = replay(
      [&](std::span<char> to) -> Result<std::size_t> {
        const std::size_t count = std::min(to.size(), bytes.size() - at);
        std::copy_n(bytes.data() + at, count, to.data());
        at += count;
        return count;
      },
      &traced);
  ASSERT_TRUE(report.is_identical() && report.is_whole()) << report.difference;

  const Outcome outcome = traced.outcome();
  EXPECT_EQ(outcome.contender, Contender::kWeir);
  EXPECT_EQ(outcome.duration, seconds{1});
  EXPECT_EQ(outcome.served, 11U);
  EXPECT_DOUBLE_EQ(outcome.utilisation, 0.5);
  ASSERT_EQ(outcome.jobs.size(), 2U);
  const JobOutcome& a = outcome.jobs[0];
  EXPECT_EQ(a.arrived, 10U);
  EXPECT_DOUBLE_EQ(a.throughput, 10);
  EXPECT_NEAR(static_cast<double>(a.wait.quantile(50, 100)), 2e6, 2e6 / 256);
  EXPECT_NEAR(static_cast<double>(a.latency.quantile(99, 100)), 5e6, 5e6 / 256);
  EXPECT_DOUBLE_EQ(*a.entitlement, 0.75);
  EXPECT_DOUBLE_EQ(*a.share, 10.0 / 11);
  EXPECT_EQ(a.bins[0].served, 10U);
  EXPECT_DOUBLE_EQ(*outcome.jobs[1].share, 1.0 / 11);
}

}  // namespace
}  // namespace weir::sim
