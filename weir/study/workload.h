// SPDX-License-Identifier: Apache-2.0
//
// Recorded workloads as part of a scenario: its jobs and their requests come from files of other
// programs (workload_line.h) by rules (job_map.h). Each file is read once to find its jobs and all
// that is wrong with it, before anything runs, and then once for each run, while it runs.
//
//   auto reports = add_workload(options, scenario);      jobs and streams of the scenario
//   workload_text(*reports)                              what was read, and what was not
//
// Time 0 is the first request of all files of one format; for traces of weir serve, of each file.
// A file without times (a fio iolog of version 2 without waits) is one client that sends as fast as
// `depth` outstanding requests allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/scenario.h"
#include "weir/study/job_map.h"
#include "weir/study/workload_reader.h"

namespace weir::study {

struct WorkloadOptions {
  static constexpr std::size_t kFilesMax = 64;
  static constexpr std::uint32_t kUntimedDepth = 32;

  std::vector<std::string> files;
  JobMap::Options map;
  std::optional<std::uint32_t> depth = std::nullopt;  // none: sim::kWindowMax, or kUntimedDepth

  bool empty() const { return files.empty(); }
};

// One report for each file. EINVAL if a file cannot be used, and the error of reading it.
Result<std::vector<WorkloadReport>> add_workload(const WorkloadOptions& options,
                                                 sim::Scenario& scenario);

// A device for a workload without a scenario, used for 80 % of the time on average, or with 1000
// requests per second if the workload has no times: 16 slots, requests take 10 % more or less.
sim::Scenario scenario_for(const std::vector<WorkloadReport>& reports);

// For a terminal: a paragraph for each file.
std::string workload_text(const std::vector<WorkloadReport>& reports);
// Everything that a reader of results has to know about the use of the file: what was left out,
// changed or not understood. One sentence each; none if all of it was used.
std::vector<std::string> workload_notes(const WorkloadReport& report);
// Differs if any request differs.
std::string workload_digest(const std::vector<WorkloadReport>& reports);

}  // namespace weir::study
