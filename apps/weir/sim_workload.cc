// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_workload.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "apps/weir/command.h"
#include "apps/weir/sim_policies.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::app {
namespace {

// "db=4,scan=2"
void set_nodes(const std::string& list, sim::Scenario& scenario) {
  for (const std::string& one : split(list)) {
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos) {
      throw Failure{Exit::kUsage, fmt::format("--nodes: {} is not JOB=N", quote(one))};
    }
    const std::string name = one.substr(0, equals);
    const std::uint64_t nodes =
        value_or_fail(parse_count(one.substr(equals + 1)), Exit::kUsage, "--nodes");
    const auto job = std::find_if(scenario.jobs.begin(), scenario.jobs.end(),
                                  [&](const sim::JobSpec& of) { return of.name == name; });
    if (job == scenario.jobs.end()) {
      std::string known;
      for (std::size_t i = 0; i < std::min<std::size_t>(scenario.jobs.size(), 10); ++i) {
        known += (i > 0 ? ", " : "") + scenario.jobs[i].name;
      }
      throw Failure{Exit::kUsage, fmt::format("--nodes: no job {}; there are {}{}", quote(name),
                                              known, scenario.jobs.size() > 10 ? ", ..." : "")};
    }
    job->nodes = nodes;
  }
}

}  // namespace

void add_workload_options(CLI::App& command, WorkloadArguments& arguments) {
  command
      .add_option("--workload", arguments.files,
                  "Take the requests from a recording of fio, blkparse, weir serve or CSV; can be "
                  "repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      .add_option("--map", arguments.maps,
                  "Assign recorded requests to a job: 'JOB: FIELD=PATTERN ...'; can be repeated")
      ->type_name("RULE")
      ->allow_extra_args(false);
  command
      .add_option("--by", arguments.by,
                  "Name jobs of recorded requests after this field, or 'rules' for --map only")
      ->type_name("FIELD");
  command.add_option("--nodes", arguments.nodes, "Set the nodes of jobs: JOB=N,...")
      ->type_name("LIST");
  command
      .add_option("--depth", arguments.depth,
                  "Let at most N recorded requests of a file be outstanding")
      ->type_name("N")
      ->check(not_negative());
}

study::WorkloadOptions workload_of(const WorkloadArguments& arguments) {
  study::WorkloadOptions options;
  options.files = arguments.files;
  for (const std::string& text : arguments.maps) {
    options.map.rules.push_back(value_or_fail(study::JobRule::parse(text), Exit::kUsage, "--map"));
  }
  if (arguments.by) {
    options.map.by = study::field_by(*arguments.by);
    options.map.by_rules_only = *arguments.by == study::kByRules;
    if (!options.map.by && !options.map.by_rules_only) {
      throw Failure{Exit::kUsage,
                    fmt::format("--by: {} is not a field; expected file, comm, pid, dev, host, "
                                "volume, job, uid, client, or rules",
                                quote(*arguments.by))};
    }
  }
  if (arguments.depth > sim::kWindowMax) {
    throw Failure{Exit::kUsage, fmt::format("--depth: expected 1 to {}", sim::kWindowMax)};
  }
  if (arguments.depth > 0) options.depth = static_cast<std::uint32_t>(arguments.depth);
  return options;
}

study::LoadedScenario load_with_workload(const std::string& name,
                                         const WorkloadArguments& arguments,
                                         const std::optional<std::string>& length) {
  study::ScenarioInput input;
  input.workload = workload_of(arguments);
  if (length) {
    input.length = value_or_fail(parse_duration(*length), Exit::kUsage, "--length");
    if (*input.length <= Nanoseconds{0}) throw Failure{Exit::kUsage, "length: is 0"};
  }
  auto loaded = study::load_scenario(name, input);
  if (!loaded) {
    const bool is_wrong = loaded.error().code == std::errc::invalid_argument;
    throw Failure{is_wrong ? Exit::kDataErr : Exit::kNoInput, loaded.error().message()};
  }
  if (arguments.nodes) {
    set_nodes(*arguments.nodes, loaded->scenario);
    check(sim::check(loaded->scenario), Exit::kUsage, "--nodes");
  }
  return std::move(*loaded);
}

}  // namespace weir::app
