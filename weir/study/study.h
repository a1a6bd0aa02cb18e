// SPDX-License-Identifier: Apache-2.0
//
// A scenario that was run under several policies, and its results as files:
//
//   result.json      per policy: utilisation, served, and of each job throughput, share against
//                    entitlement, quantiles of wait and latency, record
//   periods.csv      what each controller saw and decided: in each period a line for each job that
//                    is active or has a record
//   throughput.csv   what each job was served over time
//   report.html      one page with the figures, which needs nothing beside it
//
// The same study gives the same bytes: numbers are rounded to a fixed number of digits, and nothing
// of the machine or the time of day goes in. All but write_study() are plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::study {

struct Study {
  sim::Scenario scenario;
  std::uint64_t seed = 1;
  bool exponential = false;            // service times were made so
  bool on_server = false;              // not simulated: made from the traces of a server
  std::vector<sim::Outcome> outcomes;  // one for each policy
  std::vector<sim::Outcome> sweep;     // of those with periods, at each of the scenario's
};

std::string result_json(const Study& study);
std::string periods_csv(const Study& study);
std::string throughput_csv(const Study& study);
std::string report_html(const Study& study);

// All of them into a folder, which is made if it does not exist.
Result<void> write_study(const Study& study, const std::string& folder);

}  // namespace weir::study
