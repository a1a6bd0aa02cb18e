// SPDX-License-Identifier: Apache-2.0
//
// What comparisons of policies measure of each job during a run. Time is divided into steps of
// 100 ms; a window is ten steps, and begins with every step.
//
//   backlogged    the job had requests waiting during the whole window
//   active        the job had a request waiting or in service at some time of the step
//   entitlement   of a window: cost served in it x nodes of the job / nodes of all active jobs
//   shortfall     1 - served / entitlement, or 0 if the job got more; counted in every window in
//                 which the job was backlogged and another job was active
//   starved       longest time in which requests of the job waited and none was dispatched
//   lent          for a job with a process that starts later: entitlement - served of all steps
//                 before that start in which the job was active and got less
//   repaid after  the time from that start until the job got, beyond its entitlement, half of what
//                 it lent
//
// Example: nodes 3 and 1, both backlogged, 1000 served in a window, 200 of them to the first job.
// Its entitlement is 750, its shortfall 1 - 200/750 = 0.73.
//
// Memory: 8 bytes per job and step. Calls are in order of time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weir/base/time.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::sim {

class Measures {
 public:
  static constexpr Nanoseconds kStep = std::chrono::milliseconds{100};
  static constexpr std::size_t kWindowSteps = 10;

  explicit Measures(const Scenario& scenario);

  void arrive(std::size_t job, Instant now);
  void dispatch(std::size_t job, Instant now);
  void complete(std::size_t job, std::uint64_t cost, Instant now);
  // No other call follows.
  std::vector<JobMeasured> end(Instant now);

 private:
  struct Step {
    std::uint64_t cost = 0;
    bool is_active = false;
    bool was_empty = false;  // no request waited at some time
  };
  struct Job {
    std::vector<Step> steps;
    std::uint64_t waiting = 0;
    std::uint64_t outstanding = 0;
    Instant empty_since{};
    Instant active_since{};
    Instant served_at{};  // last dispatch, or begin of the backlog
    Nanoseconds starved{0};
    std::optional<Nanoseconds> returns;  // start of its late process
  };

  static std::size_t step_of(Instant at) {
    return static_cast<std::size_t>(at.time_since_epoch() / kStep);
  }
  static Step& at(Job& job, std::size_t step);
  static void mark_active(Job& job, Instant until);
  void mark_empty(Job& job, Instant until);
  // Of all jobs, of each step.
  void sum_up(std::size_t steps);
  double entitlement(std::size_t job, std::size_t step) const;
  void measure_windows(std::size_t job, std::size_t steps, JobMeasured& measured) const;
  void measure_loan(std::size_t job, std::size_t steps, JobMeasured& measured) const;

  std::vector<std::uint64_t> nodes_;
  std::vector<Job> jobs_;
  std::vector<std::uint64_t> cost_;          // of all jobs, by step
  std::vector<std::uint64_t> active_nodes_;  // by step
};

}  // namespace weir::sim
