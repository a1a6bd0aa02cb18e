// SPDX-License-Identifier: Apache-2.0
//
// Runs a scenario's jobs against the model of a Lustre server, in virtual time. The driver is
// called once per period and sees the server through its files. So the driver that runs here is the
// one that runs on a server.
//
//   run_on_lustre(scenario, contender,
//                 {.seed = 1, .period = 50ms, .tick = [&](LustreServer& server, Instant now) {
//                   ...server.read(...), server.write(...) }});
//
// The processes are those of World: windows, bursts, thinking. Their requests enter the CPT that
// their process's number gives. Periods are a tenth longer or shorter, by chance, so that jobs and
// driver are not in step. wait is from arrival at the server to being taken from its queue.
//
// REQUIRES: check(scenario), which has a LustreSpec. Same seed, same outcome.
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
  Nanoseconds period{0};  // 0: nobody steers it
  // Before the first request.
  std::function<void(LustreServer&, Instant)> start;
  // At the end of every period.
  std::function<void(LustreServer&, Instant)> tick;
  // At the ends of its parts, if there is more than one.
  int parts = 1;
  std::function<void(LustreServer&, Instant)> glance;
  // Told of every request that is done.
  std::function<void(const Rpc&, Instant started, Instant now)> done;
};

Outcome run_on_lustre(const Scenario& scenario, Contender contender,
                      const LustreRunOptions& options);

}  // namespace weir::sim
