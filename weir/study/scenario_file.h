// SPDX-License-Identifier: Apache-2.0
//
// Scenarios as people write them: TOML in, a sim::Scenario out. Every error names the file, the
// line and what to write; an unknown key is reported with the nearest known one. weir-sim(1) lists
// all keys.
//
//   load_scenario("redistribution")       one that comes with Weir
//   load_scenario("my/scenario.toml")     a file; a trace it names is looked for beside it
//
// A job with count = 20 becomes 20 jobs, user1 to user20, that are one group in tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/scenario.h"

namespace weir::study {

// `where` is how messages call the file; `folder` is where a trace is looked for ("" for nowhere).
Result<sim::Scenario> parse_scenario(std::string_view text, const std::string& where,
                                     const std::string& folder);

// The text of a scenario, and where it comes from.
struct ScenarioText {
  std::string name;
  std::string text;
  std::string where;   // how messages call it
  std::string folder;  // "" for one that comes with Weir
};
// A file if the argument looks like one (it has a '/' or ends in .toml), else a name. ENOENT if
// there is no such scenario, or the errno of reading it.
Result<ScenarioText> find_scenario(const std::string& file_or_name);

// A file if the argument looks like one (it has a '/' or ends in .toml), else a name. ENOENT if
// there is no such scenario, EINVAL if it is wrong, or the errno of reading it.
Result<sim::Scenario> load_scenario(const std::string& file_or_name);

struct NamedScenario {
  std::string name;
  std::string title;
};
// Those that come with Weir, in the order of their names.
std::vector<NamedScenario> named_scenarios();

}  // namespace weir::study
