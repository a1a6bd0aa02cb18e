// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/measures.h"

#include <algorithm>

namespace weir::sim {

Measures::Measures(const Scenario& scenario) : jobs_(scenario.jobs.size()) {
  nodes_.reserve(jobs_.size());
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const JobSpec& spec = scenario.jobs[i];
    nodes_.push_back(spec.nodes);
    std::optional<Nanoseconds> first;
    for (const ProcessSpec& process : spec.processes) {
      first = std::min(first.value_or(process.start), process.start);
    }
    for (const ProcessSpec& process : spec.processes) {
      const bool is_late = process.kind == ProcessSpec::Kind::kContinuous && process.start > *first;
      if (is_late) jobs_[i].returns = process.start;
    }
  }
}

Measures::Step& Measures::at(Job& job, std::size_t step) {
  if (job.steps.size() <= step) job.steps.resize(step + 1);
  return job.steps[step];
}

void Measures::mark_active(Job& job, Instant until) {
  for (std::size_t i = step_of(job.active_since); i <= step_of(until); ++i) {
    at(job, i).is_active = true;
  }
}

void Measures::mark_empty(Job& job, Instant until) {
  if (until == job.empty_since) return;
  for (std::size_t i = step_of(job.empty_since); i <= step_of(until); ++i) {
    at(job, i).was_empty = true;
  }
}

void Measures::arrive(std::size_t job, Instant now) {
  Job& state = jobs_[job];
  if (state.outstanding++ == 0) state.active_since = now;
  if (state.waiting++ > 0) return;
  mark_empty(state, now);
  state.served_at = now;
}

void Measures::dispatch(std::size_t job, Instant now) {
  Job& state = jobs_[job];
  state.starved = std::max(state.starved, now - state.served_at);
  state.served_at = now;
  if (--state.waiting == 0) state.empty_since = now;
}

void Measures::complete(std::size_t job, std::uint64_t cost, Instant now) {
  Job& state = jobs_[job];
  Step& step = at(state, step_of(now));
  step.cost += cost;
  if (--state.outstanding == 0) mark_active(state, now);
}

void Measures::sum_up(std::size_t steps) {
  cost_.assign(steps, 0);
  active_nodes_.assign(steps, 0);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    jobs_[i].steps.resize(steps);
    for (std::size_t step = 0; step < steps; ++step) {
      cost_[step] += jobs_[i].steps[step].cost;
      if (jobs_[i].steps[step].is_active) active_nodes_[step] += nodes_[i];
    }
  }
}

double Measures::entitlement(std::size_t job, std::size_t step) const {
  if (active_nodes_[step] == 0) return 0;
  return static_cast<double>(cost_[step]) * static_cast<double>(nodes_[job]) /
         static_cast<double>(active_nodes_[step]);
}

void Measures::measure_windows(std::size_t job, std::size_t steps, JobMeasured& measured) const {
  const std::vector<Step>& own = jobs_[job].steps;
  double sum = 0;
  std::size_t backlogged = 0;  // steps in a row
  for (std::size_t step = 0; step < steps; ++step) {
    backlogged = own[step].was_empty ? 0 : backlogged + 1;
    if (backlogged < kWindowSteps) continue;
    double entitled = 0;
    double served = 0;
    bool has_others = false;
    for (std::size_t i = step + 1 - kWindowSteps; i <= step; ++i) {
      entitled += entitlement(job, i);
      served += static_cast<double>(own[i].cost);
      has_others = has_others || active_nodes_[i] > nodes_[job];
    }
    if (!has_others || entitled <= 0) continue;
    const double shortfall = std::max(0.0, 1 - served / entitled);
    ++measured.windows;
    sum += shortfall;
    measured.shortfall_worst = std::max(measured.shortfall_worst, shortfall);
  }
  if (measured.windows > 0) measured.shortfall_mean = sum / static_cast<double>(measured.windows);
}

void Measures::measure_loan(std::size_t job, std::size_t steps, JobMeasured& measured) const {
  const Job& state = jobs_[job];
  if (!state.returns) return;
  const std::size_t begin = step_of(Instant{*state.returns});
  double extra = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    if (!state.steps[step].is_active) continue;
    const double more = static_cast<double>(state.steps[step].cost) - entitlement(job, step);
    if (step < begin) {
      measured.lent += std::max(0.0, -more);
      continue;
    }
    extra += more;
    measured.repaid = std::max(measured.repaid, extra);
    const bool is_half = measured.lent > 0 && extra >= measured.lent / 2;
    if (is_half && !measured.repaid_after) {
      measured.repaid_after = kStep * static_cast<std::int64_t>(step + 1 - begin);
    }
  }
}

std::vector<JobMeasured> Measures::end(Instant now) {
  // The last step may be shorter; it is not part of any window.
  const std::size_t steps = step_of(now);
  std::vector<JobMeasured> measured(jobs_.size());
  for (Job& job : jobs_) {
    if (job.outstanding > 0) mark_active(job, now);
    if (job.waiting == 0) {
      mark_empty(job, now);
    } else {
      job.starved = std::max(job.starved, now - job.served_at);
    }
  }
  sum_up(steps);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    measured[i].starved = jobs_[i].starved;
    measure_windows(i, steps, measured[i]);
    measure_loan(i, steps, measured[i]);
  }
  return measured;
}

}  // namespace weir::sim
