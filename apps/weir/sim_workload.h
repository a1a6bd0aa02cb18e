// SPDX-License-Identifier: Apache-2.0
//
// Options of weir sim and weir sim compare for recorded workloads, and loading of scenarios with
// them.
//
//   add_workload_options(command, arguments.workload);
//   load_with_workload("site.toml", arguments.workload, arguments.length)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "weir/study/scenario_file.h"

namespace weir::app {

struct WorkloadArguments {
  std::vector<std::string> files;
  std::vector<std::string> maps;
  std::optional<std::string> by;
  std::optional<std::string> nodes;
  std::uint64_t depth = 0;  // 0: not given
};

void add_workload_options(CLI::App& command, WorkloadArguments& arguments);
// Throws a Failure that names the option.
study::WorkloadOptions workload_of(const WorkloadArguments& arguments);
// Finds and reads a scenario and its workload; `name` may be empty if there is a workload. Throws a
// Failure.
study::LoadedScenario load_with_workload(const std::string& name,
                                         const WorkloadArguments& arguments,
                                         const std::optional<std::string>& length);

}  // namespace weir::app
