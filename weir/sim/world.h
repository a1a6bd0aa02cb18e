// SPDX-License-Identifier: Apache-2.0
//
// The virtual world: runs a scenario under one policy and returns the outcome. A heap of events is
// its clock, and its turn is that of a server's loop:
//
//   take all events of the next instant     a process wants more | a request is done | a timer
//   feed them to the targets                admit, complete
//   ask each target that was touched        next() until it says wait or idle; arm its timer
//
// Scheduling is done by the Target and its Gate, which are those of the server; here are only the
// device, the clients, the faults and the checkers. The same scenario, policy, options and seed
// give the same outcome to the last digit.
//
//   Result<Outcome> outcome = run(scenario, Contender::kWeir, {.seed = 7});
//
// REQUIRES: check(scenario). Time: a few hundred nanoseconds for each request. Memory: what is
// outstanding, the quantiles of each job, and every period's report while keep_periods is on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/sim/contender.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::sim {

struct RunOptions {
  std::uint64_t seed = 1;
  std::optional<Nanoseconds> period;  // of the controller; none: its own
  bool checkers = true;
  bool keep_periods = true;
  // Told now and then how far the run has come.
  std::function<void(Nanoseconds)> progress;
};

// EINVAL where the policy cannot express what the scenario asks for.
Result<Outcome> run(const Scenario& scenario, Contender contender, const RunOptions& options);

// How long a stretch of the series of an outcome is.
Nanoseconds bin_of(const Scenario& scenario);

}  // namespace weir::sim
