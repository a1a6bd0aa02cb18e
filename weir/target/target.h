// SPDX-License-Identifier: Apache-2.0
//
// One device as the server and the simulator see it: a Gate, the controller that shares the device
// out among jobs, and what both count. It is driven like a Gate, and the controller's periods end
// by themselves inside the same calls:
//
//   target.admit(request, head, now);
//   Decision decision = target.next(now);       run this | ask again then | idle
//   target.complete(request, now);
//
// wait_until includes the end of the period while jobs are active, so one timer serves both. Time
// is given. One owner, no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "weir/adapt/options.h"
#include "weir/adapt/period.h"
#include "weir/base/job_id.h"
#include "weir/base/rate.h"
#include "weir/classify/limits.h"
#include "weir/schedule/gate.h"

namespace weir {

class Target {
 public:
  struct Options {
    Gate::Options gate = {};
    std::optional<ControllerOptions> controller;  // none: limits alone decide
    // Tokens a second the device does. None and no estimate: shares order, but do not pace.
    std::optional<Rate> capacity;
    bool estimate_capacity = false;
    Cost cost;  // what a request takes of the capacity
  };
  using PeriodListener = std::function<void(const PeriodReport&)>;

  Target(const Options& options, Instant now);

  Gate& gate() { return gate_; }
  const Gate& gate() const { return gate_; }

  void admit(Request& request, Head head, Instant now) { gate_.admit(request, head, now); }
  Decision next(Instant now) { return gate_.next(now); }
  void complete(Request& request, Instant now) { gate_.complete(request, now); }

  // How many nodes a job runs on; 1 for one that was never named. REQUIRES: nodes > 0.
  void set_nodes(const JobId& job, std::uint64_t nodes, Instant now);
  // Told at the end of every period.
  void on_period(PeriodListener listener) { listener_ = std::move(listener); }

 private:
  Options options_;
  Gate gate_;
  PeriodListener listener_;
};

}  // namespace weir
