// SPDX-License-Identifier: Apache-2.0
//
// The results of a run on a real server, in the form of simulated ones: an Outcome made from the
// server's trace while it is replayed, so that both can be shown in one table and on one page.
//
//   TracedOutcome traced(scenario, Contender::kWeir);
//   replay(source, &traced);
//   Outcome outcome = traced.outcome();
//
// The scenario determines the jobs that count, their nodes, the capacity and the length; time 0 is
// the first request of one of its jobs. Shares are of everything served in that time, which is
// meaningful if a job always has requests. All targets of the trace count as one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/sim/contender.h"
#include "weir/sim/outcome.h"
#include "weir/sim/replay.h"
#include "weir/sim/scenario.h"

namespace weir::sim {

class TracedOutcome final : public ReplayObserver {
 public:
  // REQUIRES: the scenario has a length, and outlives this.
  TracedOutcome(const Scenario& scenario, Contender contender);

  void admitted(const Request& request, Instant now) override;
  void started(const Request& request, Instant now) override;
  void completed(const Request& request, Instant now) override;
  void period_ended(const PeriodReport& report) override;

  Outcome outcome();

 private:
  JobOutcome* job_of(const Request& request);
  bool is_within(Instant now) const { return begin_ && now - *begin_ < *scenario_.length; }

  const Scenario& scenario_;
  Outcome outcome_;
  absl::flat_hash_map<JobId, std::size_t, std::hash<JobId>> jobs_;
  std::optional<Instant> begin_;
};

}  // namespace weir::sim
