// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/measures.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "weir/sim/contender.h"

namespace weir::sim {
namespace {

constexpr Nanoseconds kWindow = Measures::kStep * std::int64_t{Measures::kWindowSteps};

double cost_in(const Rate& rate, Nanoseconds time) {
  return static_cast<double>(rate.tokens()) * static_cast<double>(time.count()) /
         static_cast<double>(rate.time_ns());
}

// Where the sum of all parts begins to grow faster, or slower, with the level.
struct Bend {
  double level = 0;
  double nodes = 0;
};

// The level at which the parts are `total`, from `sum` and nodes that grow at level 0.
double level_of(std::vector<Bend> bends, double sum, double nodes, double total) {
  std::sort(bends.begin(), bends.end(),
            [](const Bend& a, const Bend& b) { return a.level < b.level; });
  double level = 0;
  for (const Bend& bend : bends) {
    const double reached = sum + nodes * (bend.level - level);
    if (reached >= total) break;
    sum = reached;
    level = bend.level;
    nodes += bend.nodes;
  }
  return nodes > 0 ? level + (total - sum) / nodes : level;
}

}  // namespace

Measures::Measures(const Scenario& scenario)
    : tree_(job_tree(scenario, scenario.targets.front())),
      children_(tree_.nodes.size()),
      needs_(tree_.nodes.size()),
      parts_(tree_.nodes.size()),
      jobs_(scenario.jobs.size()) {
  for (std::size_t node = 1; node < tree_.nodes.size(); ++node) {
    children_[tree_.nodes[node].parent].push_back(node);
  }
  nodes_.reserve(jobs_.size());
  double capacity = 0;
  for (const TargetSpec& target : scenario.targets) {
    capacity += cost_in(target.capacity, kWindow);
  }
  const auto all_nodes = static_cast<double>(scenario.nodes());
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const JobSpec& spec = scenario.jobs[i];
    nodes_.push_back(spec.nodes);
    reserves_.push_back(spec.reserve ? cost_in(*spec.reserve, kWindow) *
                                           static_cast<double>(scenario.targets.size())
                                     : 0);
    seconds_.push_back(capacity * static_cast<double>(spec.nodes) / all_nodes);
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

void Measures::slide(std::size_t step) {
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const std::vector<Step>& own = jobs_[i].steps;
    Window& window = windows_[i];
    window.cost += own[step].cost;
    window.active += own[step].is_active ? 1 : 0;
    window.backlogged = own[step].was_empty ? 0 : window.backlogged + 1;
    if (step < kWindowSteps) continue;
    window.cost -= own[step - kWindowSteps].cost;
    window.active -= own[step - kWindowSteps].is_active ? 1 : 0;
  }
}

Measures::Need Measures::need_of(std::size_t job) const {
  const Window& own = windows_[job];
  if (own.active == 0) return {};
  const double most = own.backlogged >= kWindowSteps ? std::numeric_limits<double>::infinity()
                                                     : static_cast<double>(own.cost);
  return {.least = std::min(reserves_[job], most), .most = most};
}

void Measures::divide() {
  std::fill(needs_.begin(), needs_.end(), Need{});
  std::fill(parts_.begin(), parts_.end(), 0.0);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    needs_[tree_.jobs[i]] = need_of(i);
    parts_[0] += static_cast<double>(windows_[i].cost);
  }
  // Children follow their parents.
  for (std::size_t node = tree_.nodes.size() - 1; node > 0; --node) {
    Need& above = needs_[tree_.nodes[node].parent];
    above.least += needs_[node].least;
    above.most += needs_[node].most;
  }
  for (std::size_t node = 0; node < tree_.nodes.size(); ++node) {
    if (!children_[node].empty()) divide_below(node);
  }
}

// A child gets level x weight, within its need.
void Measures::divide_below(std::size_t node) {
  std::vector<Bend> bends;
  double least = 0;
  double growing = 0;
  for (const std::size_t child : children_[node]) {
    const Need& need = needs_[child];
    if (need.most <= 0) continue;
    const auto weight = static_cast<double>(tree_.nodes[child].weight);
    least += need.least;
    if (need.least > 0) {
      bends.push_back({need.least / weight, weight});
    } else {
      growing += weight;
    }
    if (need.most < std::numeric_limits<double>::infinity()) {
      bends.push_back({need.most / weight, -weight});
    }
  }
  const double total = parts_[node];
  // So much of every reservation.
  const double reserved = least > total ? total / least : 1;
  const double level = least < total ? level_of(std::move(bends), least, growing, total) : 0;
  for (const std::size_t child : children_[node]) {
    const auto weight = static_cast<double>(tree_.nodes[child].weight);
    parts_[child] = std::clamp(level * weight, reserved * needs_[child].least, needs_[child].most);
  }
}

double Measures::part_by_nodes(std::size_t job, std::size_t step) const {
  if (active_nodes_[step] == 0) return 0;
  return static_cast<double>(cost_[step]) * static_cast<double>(nodes_[job]) /
         static_cast<double>(active_nodes_[step]);
}

void Measures::measure_window(std::size_t job, bool has_others, JobMeasured& measured) const {
  if (windows_[job].backlogged < kWindowSteps) return;
  const auto served = static_cast<double>(windows_[job].cost);
  if (reserves_[job] > 0) {
    measured.reserve_missed =
        std::max({measured.reserve_missed.value_or(0), 0.0, 1 - served / reserves_[job]});
  }
  const double entitled = fair_part(job);
  if (!has_others || entitled <= 0) return;
  const double shortfall = std::max(0.0, 1 - served / entitled);
  ++measured.windows;
  measured.shortfall_mean += shortfall;  // their sum, until the end
  measured.shortfall_worst = std::max(measured.shortfall_worst, shortfall);
}

void Measures::measure_lending(std::size_t job, std::size_t step, JobMeasured& measured) const {
  const Job& state = jobs_[job];
  if (!state.returns || !state.steps[step].is_active) return;
  if (step >= step_of(Instant{*state.returns})) return;
  const auto served = static_cast<double>(state.steps[step].cost);
  measured.lent += std::max(0.0, part_by_nodes(job, step) - served);
}

// Windows after the return that do not overlap.
void Measures::measure_repayment(std::size_t job, std::size_t step, JobMeasured& measured) {
  Job& state = jobs_[job];
  if (!state.returns) return;
  const std::size_t begin = step_of(Instant{*state.returns});
  if (step + 1 <= begin || (step + 1 - begin) % kWindowSteps != 0) return;
  state.extra += static_cast<double>(windows_[job].cost) - fair_part(job);
  measured.repaid = std::max(measured.repaid, state.extra);
  const double enough = std::min(measured.lent / 2, seconds_[job]);
  if (measured.lent > 0 && state.extra >= enough && !measured.repaid_after) {
    measured.repaid_after = kStep * static_cast<std::int64_t>(step + 1 - begin);
  }
}

void Measures::measure_steps(std::size_t steps, std::vector<JobMeasured>& measured) {
  windows_.assign(jobs_.size(), Window{});
  for (std::size_t step = 0; step < steps; ++step) {
    slide(step);
    for (std::size_t i = 0; i < jobs_.size(); ++i) measure_lending(i, step, measured[i]);
    if (step + 1 < kWindowSteps) continue;
    divide();
    const auto active = static_cast<std::size_t>(std::count_if(
        windows_.begin(), windows_.end(), [](const Window& window) { return window.active > 0; }));
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      measure_window(i, active > 1, measured[i]);
      measure_repayment(i, step, measured[i]);
    }
  }
  for (JobMeasured& one : measured) {
    if (one.windows > 0) one.shortfall_mean /= static_cast<double>(one.windows);
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
  for (std::size_t i = 0; i < jobs_.size(); ++i) measured[i].starved = jobs_[i].starved;
  measure_steps(steps, measured);
  return measured;
}

}  // namespace weir::sim
