// SPDX-License-Identifier: Apache-2.0
//
// The virtual world: runs a scenario under one policy and returns the outcome. A heap of events is
// its clock, and its turn is that of a server's loop:
//
//   take all events of the next instant     a process sends | a request is done | a timer fires
//   pass them to the targets                admit, complete
//   call each target that was touched       next() until it answers wait or idle; arm its timer
//
// Scheduling is done by the Target and its Gate, which are those of the server; here are only the
// device, the clients, the faults and the checkers. The same scenario, policy, options and seed
// give exactly the same outcome.
//
//   Result<Outcome> outcome = run(scenario, Contender::kWeir, {.seed = 7});
//
// REQUIRES: check(scenario). Time: a few hundred nanoseconds per request. Memory does not depend on
// the number of requests: outstanding requests, quantiles and at most 4,096 intervals of each job
// (they become wider in long runs), and the reports of the first periods if keep_periods is on (4
// million rows in total). With `measures`, 16 bytes per job and 100 ms. A run without a length ends
// after 30 days at the latest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/sim/call_meter.h"
#include "weir/sim/contender.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::sim {

struct RunOptions {
  std::uint64_t seed = 1;
  std::optional<Nanoseconds> period = std::nullopt;  // of the controller; none: its default
  bool checkers = true;
  std::optional<Instant> measure_from = std::nullopt;  // of TargetOutcome::in_device, if any
  bool keep_periods = true;
  bool measures = false;     // Outcome::measured
  Stopwatch stopwatch = {};  // for Outcome::decision_time
  // Called now and then with the progress of the run.
  std::function<void(Nanoseconds)> progress = nullptr;
};

// EINVAL if the policy cannot express the scenario, or the error of reading a stream.
Result<Outcome> run(const Scenario& scenario, Contender contender, const RunOptions& options);

// The length of the intervals in an outcome, at first.
Nanoseconds bin_of(const Scenario& scenario);

}  // namespace weir::sim
