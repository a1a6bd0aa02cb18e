// SPDX-License-Identifier: Apache-2.0
//
// Runs the jobs of a scenario against the model of a Lustre server, in virtual time. The driver is
// called once per period and sees the server through its files. So the same driver runs here and on
// a server.
//
//   run_on_lustre(scenario, contender,
//                 {.seed = 1, .period = 50ms, .tick = [&](LustreServer& server, Instant now) {
//                   ...server.read(...), server.write(...) }});
//
// The processes are those of World: windows, bursts, thinking. The number of a process determines
// the CPT of its requests. Periods are up to a tenth longer or shorter, at random, so that jobs and
// driver are not in step. wait is from arrival at the server to removal from its queue.
//
// REQUIRES: check(scenario), which has a LustreSpec. The same seed gives the same outcome.
#pragma once

#include <cstdint>
#include <functional>

#include "weir/base/time.h"
#include "weir/sim/contender.h"
#include "weir/sim/lustre_model.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::sim {

struct LustreRunOptions {
  std::uint64_t seed = 1;
  Nanoseconds period{0};  // 0: no driver
  // Called before the first request.
  std::function<void(LustreServer&, Instant)> start;
  // Called at the end of every period.
  std::function<void(LustreServer&, Instant)> tick;
  // Number of calls per period, for glances.
  int parts = 1;
  std::function<void(LustreServer&, Instant)> glance;
  // Called for every completed request.
  std::function<void(const Rpc&, Instant started, Instant now)> done;
};

Outcome run_on_lustre(const Scenario& scenario, Contender contender,
                      const LustreRunOptions& options);

}  // namespace weir::sim
