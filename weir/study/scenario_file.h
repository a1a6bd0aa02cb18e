// SPDX-License-Identifier: Apache-2.0
//
// Scenario files: TOML in, a sim::Scenario out. Every error names the file, the line and what is
// expected; an unknown key is reported with the nearest known one. weir-sim(1) lists all keys.
//
//   load_scenario("redistribution")       a built-in scenario
//   load_scenario("my/scenario.toml")     a file; its trace is in the same folder
//
// A scenario may name files with a recorded workload (workload.h), which are read too.
//
// A job with count = 20 becomes 20 jobs, user1 to user20, which tables show as one group.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/scenario.h"
#include "weir/study/workload.h"

namespace weir::study {

// `where` is the name of the file in messages; `folder` is the folder of its trace ("" for none).
Result<sim::Scenario> parse_scenario(std::string_view text, const std::string& where,
                                     const std::string& folder);

// The text of a scenario, and its source.
struct ScenarioText {
  std::string name;
  std::string text;
  std::string where;   // its name in messages
  std::string folder;  // "" for a built-in scenario
};
// A file if the argument looks like one (it contains a '/' or ends in .toml), otherwise a name.
// ENOENT if there is no such scenario, or the errno of reading it.
Result<ScenarioText> find_scenario(const std::string& file_or_name);

// Finds and parses a scenario. ENOENT if there is no such scenario, EINVAL if it is not valid, or
// the errno of reading it.
Result<sim::Scenario> load_scenario(const std::string& file_or_name);

// What is given beside the scenario: other files for its workload, rules that precede its own, and
// its length.
struct ScenarioInput {
  WorkloadOptions workload;
  std::optional<Nanoseconds> length = std::nullopt;
};
struct LoadedScenario {
  sim::Scenario scenario;
  std::vector<WorkloadReport> workload;  // one for each file
};
// As load_scenario(). Without a name, a device for the workload (scenario_for()).
Result<LoadedScenario> load_scenario(const std::string& file_or_name, const ScenarioInput& input);

struct NamedScenario {
  std::string name;
  std::string title;
};
// The built-in scenarios, ordered by name.
std::vector<NamedScenario> named_scenarios();

}  // namespace weir::study
