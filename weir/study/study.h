// SPDX-License-Identifier: Apache-2.0
//
// A scenario that was run under several policies, and its results as files:
//
//   result.json      per policy: utilisation, served, and for each job throughput, share and
//                    entitlement, quantiles of wait and latency, record
//   periods.csv      what each controller measured and decided: in each period a line for each job
//                    that is active or has a record
//   throughput.csv   throughput of each job over time
//   report.html      a self-contained page with the figures
//
// The same study gives the same bytes: numbers are rounded to a fixed number of digits, and
// the results do not contain the machine or the time of day. All except write_study() are
// plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"
#include "weir/study/workload_reader.h"

namespace weir::study {

struct Study {
  sim::Scenario scenario;
  std::uint64_t seed = 1;
  bool exponential = false;              // service times are exponential
  bool on_server = false;                // not simulated: from the traces of a server
  std::vector<sim::Outcome> outcomes;    // one for each policy
  std::vector<WorkloadReport> workload;  // of each file, if the requests are recorded
  std::vector<sim::Outcome> sweep;  // of policies with periods, with each period of the scenario
};

std::string result_json(const Study& study);
std::string periods_csv(const Study& study);
std::string throughput_csv(const Study& study);
std::string report_html(const Study& study);

// Writes all files to a folder, which is created if it does not exist.
Result<void> write_study(const Study& study, const std::string& folder);

}  // namespace weir::study
