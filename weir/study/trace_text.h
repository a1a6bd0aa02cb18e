// SPDX-License-Identifier: Apache-2.0
//
// Recorded arrivals as CSV, one request per line after a header line:
//
//   time_s,job,op,bytes
//   0.000250,lammps.17,read,1048576
//
// Times are seconds since the start with up to nine decimal places, in increasing order; op is
// read or write. Jobs that the scenario does not define are added with one node. An error names
// its line.
#pragma once

#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/sim/scenario.h"

namespace weir::study {

// Adds the trace to the scenario. `where` is the name of the file in messages.
Result<void> add_trace(std::string_view text, const std::string& where, sim::Scenario& scenario);

}  // namespace weir::study
