// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/traced.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"
#include "weir/sim/world.h"

namespace weir::sim {

TracedOutcome::TracedOutcome(const Scenario& scenario, Contender contender) : scenario_(scenario) {
  WEIR_ASSERT(scenario.length.has_value());
  outcome_.contender = contender;
  if (has_periods(contender)) outcome_.period = own_period(contender);
  outcome_.duration = *scenario.length;
  outcome_.bin = bin_of(scenario);
  outcome_.contended_from = Nanoseconds{0};
  outcome_.contended_until = *scenario.length;
  outcome_.targets.emplace_back().name = scenario.targets.front().name;
  outcome_.jobs.reserve(scenario.jobs.size());
  for (const JobSpec& spec : scenario.jobs) {
    jobs_.emplace(JobId(spec.name), outcome_.jobs.size());
    JobOutcome& job = outcome_.jobs.emplace_back();
    job.name = spec.name;
    job.group = spec.group;
    job.nodes = spec.nodes;
  }
}

JobOutcome* TracedOutcome::job_of(const Request& request) {
  const auto found = jobs_.find(request.attributes.job);
  return found == jobs_.end() ? nullptr : &outcome_.jobs[found->second];
}

void TracedOutcome::admitted(const Request& request, Instant now) {
  JobOutcome* const job = job_of(request);
  if (job == nullptr) return;
  if (!begin_) begin_ = now;
  if (is_within(now)) ++job->arrived;
}

void TracedOutcome::started(const Request& request, Instant now) {
  JobOutcome* const job = job_of(request);
  if (job == nullptr || !is_within(now)) return;
  job->wait.record(static_cast<std::uint64_t>((now - request.admitted_at()).count()));
}

void TracedOutcome::completed(const Request& request, Instant now) {
  JobOutcome* const job = job_of(request);
  if (job == nullptr || !is_within(now)) return;
  const std::uint64_t cost = scenario_.targets.front().cost.of(request.bytes).count();
  ++job->served;
  job->cost += cost;
  job->latency.record(static_cast<std::uint64_t>((now - request.admitted_at()).count()));
  const auto bin = static_cast<std::size_t>((now - *begin_) / outcome_.bin);
  if (job->bins.size() <= bin) job->bins.resize(bin + 1);
  ++job->bins[bin].served;
  job->bins[bin].cost += cost;
}

void TracedOutcome::period_ended(const PeriodReport& report) {
  if (!is_within(report.at)) return;
  PeriodRow& row = outcome_.periods.emplace_back(PeriodRow{0, report});
  row.report.at = Instant{} + (report.at - *begin_);
  for (JobOutcome& job : outcome_.jobs) job.record = 0;
  for (const JobRecord& record : report.records) {
    const auto found = jobs_.find(record.job);
    if (found != jobs_.end()) outcome_.jobs[found->second].record = record.record;
  }
}

Outcome TracedOutcome::outcome() {
  const double seconds = static_cast<double>(outcome_.duration.count()) / 1e9;
  double all = 0;
  for (const JobOutcome& job : outcome_.jobs) {
    outcome_.served += job.served;
    all += static_cast<double>(job.cost);
  }
  for (JobOutcome& job : outcome_.jobs) {
    job.throughput = static_cast<double>(job.served) / seconds;
    if (all <= 0) continue;
    job.share = static_cast<double>(job.cost) / all;
    job.entitlement = static_cast<double>(job.nodes) / static_cast<double>(scenario_.nodes());
  }
  const Rate rate = scenario_.targets.front().capacity;
  outcome_.utilisation = all / (static_cast<double>(rate.tokens()) /
                                static_cast<double>(rate.time_ns()) * 1e9 * seconds);
  outcome_.targets.front() = {scenario_.targets.front().name, outcome_.served,
                              static_cast<std::uint64_t>(all), outcome_.utilisation};
  return std::move(outcome_);
}

}  // namespace weir::sim
