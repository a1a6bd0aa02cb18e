// SPDX-License-Identifier: Apache-2.0
//
// What comparisons of policies measure of each job during a run. Time is divided into steps of
// 100 ms; a window is ten steps, and begins with every step.
//
//   backlogged    the job had requests waiting during the whole window
//   active        the job had a request waiting or in service at some time of the step
//   entitlement   of a window: its fair part of what was served in the window, which is divided
//                 among the jobs by nodes, or in a tree of shares from the top down by weight. A
//                 job that was active and not backlogged needs no more than it got. A job with a
//                 reservation gets at least that, or all such jobs get it in proportion if less was
//                 served than is reserved.
//   shortfall     1 - served / entitlement, or 0 if the job got more; counted in every window in
//                 which the job was backlogged and another job was active
//   reserve       1 - served / reserved, or 0 if the job got more, in the worst window in which
//   missed        the job was backlogged
//   starved       longest time in which requests of the job waited and none was dispatched
//   lent          for a job with a process that starts later: part by nodes - served, of all steps
//                 before that start in which the job was active and got less
//   repaid after  the time from that start until the job got, beyond its entitlement, half of what
//                 it lent, or as much as its part by nodes of the capacity is in a second if that
//                 is less: no policy keeps loans forever. In whole windows.
//
// Example: nodes 3 and 1, both backlogged, 1000 served in a window, 200 of them to the first job.
// Its entitlement is 750, its shortfall 1 - 200/750 = 0.73. With a reservation of 400 for the
// second job, the entitlement of the first is 600. If the second has nothing waiting at times and
// gets 100, that of the first is 900.
//
// Memory: 16 bytes per job and step. Calls are in order of time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weir/base/time.h"
#include "weir/sim/outcome.h"
#include "weir/sim/parts_check.h"
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
    double extra = 0;                    // beyond its fair part since then
  };

  static std::size_t step_of(Instant at) {
    return static_cast<std::size_t>(at.time_since_epoch() / kStep);
  }
  static Step& at(Job& job, std::size_t step);
  static void mark_active(Job& job, Instant until);
  void mark_empty(Job& job, Instant until);
  // A job in the current window.
  struct Window {
    std::uint64_t cost = 0;
    std::size_t active = 0;      // steps
    std::size_t backlogged = 0;  // steps in a row, up to now
  };
  // What a job gets at least and at most in the current window.
  struct Need {
    double least = 0;
    double most = 0;  // infinite if it was backlogged
  };
  void sum_up(std::size_t steps);  // all jobs, by step
  void slide(std::size_t step);    // the window, so that it ends with this step
  Need need_of(std::size_t job) const;
  void divide();  // sets needs_ and parts_
  void divide_below(std::size_t node);
  double fair_part(std::size_t job) const { return parts_[tree_.jobs[job]]; }
  double part_by_nodes(std::size_t job, std::size_t step) const;
  void measure_steps(std::size_t steps, std::vector<JobMeasured>& measured);
  void measure_window(std::size_t job, bool has_others, JobMeasured& measured) const;
  void measure_lending(std::size_t job, std::size_t step, JobMeasured& measured) const;
  void measure_repayment(std::size_t job, std::size_t step, JobMeasured& measured);

  std::vector<std::uint64_t> nodes_;
  JobTree tree_;                                    // only the root above the jobs without a tree
  std::vector<std::vector<std::size_t>> children_;  // by node of the tree
  std::vector<Need> needs_;                         // by node, in the current window
  std::vector<double> parts_;                       // by node, in the current window
  std::vector<double> reserves_;                    // by job, of a window on all targets
  std::vector<double> seconds_;  // by job: its part by nodes of the capacity in a second
  std::vector<Job> jobs_;
  std::vector<std::uint64_t> cost_;          // of all jobs, by step
  std::vector<std::uint64_t> active_nodes_;  // by step
  std::vector<Window> windows_;              // by job
};

}  // namespace weir::sim
