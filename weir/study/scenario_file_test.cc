// SPDX-License-Identifier: Apache-2.0
#include "weir/study/scenario_file.h"

#include <gtest/gtest.h>

#include "weir/study/embedded.h"
#include "weir/study/lock_scenario_file.h"

namespace weir::study {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kSound = R"(title = "A title"
length = "10s"
[target]
capacity = 1000
[[job]]
name = "a"
process = [{ window = 4 }]
)";

constexpr const char* kEveryKey = R"(
length = "20s"
periods = ["10ms", "1s"]
[faults]
late = "10%"
late_by = "2ms"
lost = "0.5%"
recover = "5ms"
step = [{ at = "2s", by = "-50ms" }]
[[target]]
name = "one"
capacity = "64MiB/s"
cost = "bytes"
estimate = true
slots = 4
service = "1ms"
per_mib = "10ms"
distribution = "exponential"
disturbance = [{ at = "9s", for = "1s", stall = true }, { at = "5s", for = "1s", factor = 2.5 }]
[[target]]
name = "two"
capacity = "500/100ms"
cost = "affine:1:2"
[[job]]
name = "u"
count = 2
nodes = 3
reads = "70%"
[[job.process]]
kind = "think"
think = "50ms"
requests = 4
requests_min = 2
sizes = [{ size = "4KiB", weight = 3 }, { size = "1MiB" }]
target = "two"
[[job.process]]
kind = "burst"
requests = 10
every = "1s"
count = 5
window = 2
start = "3s"
size = "64KiB"
reads = "0%"
target = "all"
)";

Result<sim::Scenario> parse(const std::string& text) { return parse_scenario(text, "f.toml", ""); }

// The message after replacing a part of a valid scenario.
std::string refused(const std::string& part, const std::string& by) {
  std::string text = kSound;
  text.replace(text.find(part), part.size(), by);
  const auto scenario = parse(text);
  return scenario ? "" : scenario.error().message();
}

TEST(ScenarioFile, ReadsWhatIsGivenAndFillsInTheRest) {
  const auto scenario = parse(kSound);
  ASSERT_TRUE(scenario) << scenario.error().message();
  EXPECT_EQ(scenario->title, "A title");
  EXPECT_EQ(scenario->length, Nanoseconds{seconds{10}});
  EXPECT_EQ(scenario->targets[0].store.slots, 16U);
  EXPECT_EQ(scenario->targets[0].store.service.base, milliseconds{16});
  EXPECT_EQ(scenario->jobs[0].nodes, 1U);
  EXPECT_EQ(scenario->jobs[0].processes[0].requests, sim::ProcessSpec::kEndless);
}

TEST(ScenarioFile, ReadsEveryKey) {
  const auto scenario = parse(kEveryKey);
  ASSERT_TRUE(scenario) << scenario.error().message();
  EXPECT_EQ(scenario->periods.size(), 2U);
  EXPECT_EQ(scenario->faults.late_permille, 100U);
  EXPECT_EQ(scenario->faults.lost_permille, 5U);
  EXPECT_EQ(scenario->faults.steps[0].by, -milliseconds{50});
  const sim::TargetSpec& one = scenario->targets[0];
  EXPECT_EQ(one.capacity, Rate::per_second(64 << 20));
  EXPECT_EQ(one.cost, Cost::bytes());
  EXPECT_TRUE(one.estimate);
  EXPECT_EQ(one.store.service.kind, sim::ServiceTime::Kind::kExponential);
  ASSERT_EQ(one.store.disturbances.size(), 2U);
  EXPECT_EQ(one.store.disturbances[0].percent, 250U);  // in the order of time
  EXPECT_EQ(one.store.disturbances[1].percent, sim::Disturbance::kStall);
  EXPECT_EQ(scenario->targets[1].capacity, Rate::per_second(5000));
  EXPECT_EQ(scenario->targets[1].cost, Cost::affine(1, 2));
  ASSERT_EQ(scenario->jobs.size(), 2U);
  EXPECT_EQ(scenario->jobs[1].name, "u2");
  EXPECT_EQ(scenario->jobs[1].group, "u");
  const sim::ProcessSpec& think = scenario->jobs[1].processes[0];
  EXPECT_EQ(think.requests_min, 2U);
  EXPECT_EQ(think.sizes[1].size, Bytes{1 << 20});
  EXPECT_EQ(think.reads_percent, 70U);
  EXPECT_EQ(think.target, std::optional<std::size_t>{1});
  const sim::ProcessSpec& burst = scenario->jobs[1].processes[1];
  EXPECT_EQ(burst.count, 5U);
  EXPECT_EQ(burst.reads_percent, 0U);
  EXPECT_FALSE(burst.target);
}

TEST(ScenarioFile, NamesAnUnknownKeyAndTheNearestOne) {
  EXPECT_EQ(refused("capacity", "capcity"),
            "f.toml:4:1: target: unknown key 'capcity'; did you mean capacity?");
  EXPECT_EQ(refused("window", "windows"),
            "f.toml:7:14: process of 'a': unknown key 'windows'; did you mean window?");
  EXPECT_EQ(refused("title", "colour"),
            "f.toml:1:1: scenario: unknown key 'colour'; the keys are title, length, periods, "
            "target, job, "
            "faults, trace, lustre, workload");
}

TEST(ScenarioFile, SaysInWhichLineAndWhatWasExpected) {
  EXPECT_EQ(refused("\"10s\"", "\"10 parsecs\""),
            "f.toml:2:10: scenario: length is not a valid time; write for example '16ms' or '5s'");
  EXPECT_EQ(refused("\"10s\"", "\"0s\""), "f.toml:2:10: scenario: length must be above 0");
  EXPECT_EQ(refused("1000", "0"),
            "f.toml:4:12: target: capacity must be a whole number from 1 to 1000000000000");
  EXPECT_EQ(
      refused("1000", "\"0/s\""),
      "f.toml:4:12: target: capacity is not a rate above 0; expected 1000, or '256MiB/s' with cost "
      "= 'bytes'");
  EXPECT_EQ(refused("window = 4", "window = 0"),
            "f.toml:7:23: process of 'a': window must be a whole number from 1 to 65536");
  EXPECT_EQ(refused("window = 4", "kind = 'bursts'"),
            "f.toml:7:21: process of 'a': kind is not valid; expected continuous, burst or think");
  EXPECT_EQ(refused("window = 4", "every = '1s'"),
            "f.toml:7:22: process of 'a': every has no effect in a continuous process");
  EXPECT_EQ(
      refused("window = 4", "target = 'b'"),
      "f.toml:7:23: process of 'a': target 'b' does not exist; expected the name of a target, "
      "or all");
  EXPECT_EQ(refused("name = \"a\"", "name = \"a\"\nnodes = 0"),
            "f.toml:7:9: job: nodes must be a whole number from 1 to 1000000");
  EXPECT_EQ(refused("[target]", "[[job"),
            "f.toml:3:6: Error while parsing table header: expected ']', saw '\\n'");
}

TEST(ScenarioFile, RefusesWhatCannotBeRun) {
  EXPECT_EQ(refused("length = \"10s\"\n", ""),
            "f.toml: job 'a': never ends, and neither does the scenario; give the scenario a "
            "length");
  EXPECT_EQ(refused("[target]\ncapacity = 1000\n", ""),
            "f.toml:1:1: scenario: target is missing; add a [target]");
  EXPECT_EQ(refused("process = [{ window = 4 }]\n", ""), "f.toml: job 'a': has no process");
}

TEST(ScenarioFile, AnyCutOfASoundFileIsReadOrRefused) {
  const std::string sound(find_embedded(embedded_files(), "redistribution.toml").value_or(""));
  ASSERT_GT(sound.size(), 500U);
  for (std::size_t size = 0; size < sound.size(); size += 7) {
    const auto scenario = parse(sound.substr(0, size));
    if (scenario) continue;
    EXPECT_TRUE(scenario.error().where.starts_with("f.toml")) << size;
  }
}

TEST(ScenarioFile, ThoseThatComeWithWeirCanBeRun) {
  const std::vector<NamedScenario> named = named_scenarios();
  EXPECT_GE(named.size(), 8U);
  for (const NamedScenario& each : named) {
    const auto text = find_scenario(each.name);
    ASSERT_TRUE(text) << text.error().message();
    if (is_lock_scenario(text->text)) continue;  // tests/sim/locks_test.py runs them
    const auto scenario = load_scenario(each.name);
    ASSERT_TRUE(scenario) << scenario.error().message();
    EXPECT_EQ(scenario->name, each.name);
    EXPECT_FALSE(scenario->title.empty());
  }
}

TEST(ScenarioFile, AWrongNameIsToldWithTheNearest) {
  EXPECT_EQ(load_scenario("redistributoin").error().message(),
            "'redistributoin': no such scenario; did you mean redistribution?");
  EXPECT_EQ(load_scenario("xyz").error().message(),
            "'xyz': no such scenario; weir sim --list lists them; the name of a file contains a "
            "/ or ends in .toml");
  EXPECT_EQ(load_scenario("./none.toml").error().code, std::errc::no_such_file_or_directory);
}

}  // namespace
}  // namespace weir::study
