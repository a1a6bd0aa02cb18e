// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/scenario.h"

#include <functional>

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Scenario sample() {
  Scenario scenario;
  scenario.length = seconds{10};
  JobSpec& job = scenario.jobs.emplace_back();
  job.name = "a";
  job.processes = {{.window = 4}};
  return scenario;
}

// The error of check() after a change to a valid scenario.
std::string refused(const std::function<void(Scenario&)>& change) {
  Scenario scenario = sample();
  change(scenario);
  const auto checked = check(scenario);
  return checked ? "" : checked.error().message();
}

TEST(Scenario, IsAcceptedWhenItCanBeRun) { EXPECT_TRUE(check(sample())); }

TEST(Scenario, IsRefusedWhenItCannotBeRun) {
  const auto process = [](auto change) {
    return refused([&](Scenario& s) { change(s.jobs[0].processes[0]); });
  };
  EXPECT_EQ(refused([](Scenario& s) { s.jobs[0].nodes = 0; }),
            "job 'a': has 0 nodes; a job runs on at least one");
  EXPECT_EQ(refused([](Scenario& s) { s.jobs.push_back(s.jobs[0]); }), "job 'a': is used twice");
  EXPECT_EQ(refused([](Scenario& s) { s.jobs.clear(); }), "scenario: has no job");
  EXPECT_EQ(refused([](Scenario& s) { s.jobs[0].processes.clear(); }), "job 'a': has no process");
  EXPECT_EQ(refused([](Scenario& s) { s.jobs[0].name = "a b"; }),
            "job 'a b': is not a valid name; use 1 to 31 letters, digits, _ - .");
  EXPECT_EQ(refused([](Scenario& s) { s.length.reset(); }),
            "job 'a': never ends, and neither does the scenario; give the scenario a length");
  EXPECT_EQ(refused([](Scenario& s) { s.length = Nanoseconds{0}; }), "length: is 0");
  EXPECT_EQ(refused([](Scenario& s) { s.periods = {Nanoseconds{0}}; }),
            "periods: '0ns' is not a valid period; expected 1ms to 10s");
  EXPECT_EQ(refused([](Scenario& s) { s.targets[0].store.slots = 0; }),
            "target 'target': has 0 slots");
  EXPECT_EQ(refused([](Scenario& s) { s.targets[0].store.service.base = Nanoseconds{0}; }),
            "target 'target': has a service time of 0; give service or per_mib, such as service = "
            "'16ms'");
  EXPECT_EQ(refused([](Scenario& s) { s.targets.push_back(s.targets[0]); }),
            "target 'target': is used twice");
  EXPECT_EQ(process([](ProcessSpec& p) { p.window = 0; }),
            "job 'a': a window of 0 issues no requests");
  EXPECT_EQ(process([](ProcessSpec& p) { p.start = seconds{10}; }),
            "job 'a': starts after the scenario ends; increase length");
  EXPECT_EQ(process([](ProcessSpec& p) { p.target = 1; }),
            "job 'a': names a target that does not exist");
  EXPECT_EQ(process([](ProcessSpec& p) { p.kind = ProcessSpec::Kind::kBurst; }),
            "job 'a': a burst needs requests");
  EXPECT_EQ(process([](ProcessSpec& p) {
              p.kind = ProcessSpec::Kind::kThink;
              p.requests = 3;
              p.requests_min = 4;
              p.think = milliseconds{1};
            }),
            "job 'a': requests_min must lie between 1 and requests");
  EXPECT_EQ(refused([](Scenario& s) { s.faults.late_permille = 10; }),
            "faults: timers are late by 0; give late_by");
}

TEST(Scenario, KnowsItsLargestRequest) {
  Scenario scenario = sample();
  EXPECT_EQ(largest_request(scenario), Bytes{4096});
  scenario.trace.push_back({.size = Bytes{1 << 20}});
  EXPECT_EQ(largest_request(scenario), Bytes{1 << 20});
}

}  // namespace
}  // namespace weir::sim
