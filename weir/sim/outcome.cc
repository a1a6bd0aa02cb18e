// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/outcome.h"

#include <algorithm>

namespace weir::sim {
namespace {

void add(std::optional<double>& sum, const std::optional<double>& value) {
  if (value) sum = sum.value_or(0) + *value;
}

void add(JobOutcome& sum, const JobOutcome& job) {
  sum.nodes += job.nodes;
  sum.arrived += job.arrived;
  sum.served += job.served;
  sum.cost += job.cost;
  sum.throughput += job.throughput;
  sum.record += job.record;
  add(sum.share, job.share);
  add(sum.entitlement, job.entitlement);
  sum.wait.merge(job.wait);
  sum.latency.merge(job.latency);
  sum.bins.resize(std::max(sum.bins.size(), job.bins.size()));
  for (std::size_t i = 0; i < job.bins.size(); ++i) {
    sum.bins[i].served += job.bins[i].served;
    sum.bins[i].cost += job.bins[i].cost;
  }
}

}  // namespace

std::vector<JobOutcome> grouped(const Outcome& outcome) {
  std::vector<JobOutcome> groups;
  for (const JobOutcome& job : outcome.jobs) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const JobOutcome& group) {
      return group.group == job.group;
    });
    if (known == groups.end()) {
      groups.push_back(job);
      groups.back().name = job.group;
    } else {
      add(*known, job);
    }
  }
  return groups;
}

std::optional<double> jain_index(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  if (squares <= 0) return std::nullopt;
  return sum * sum / (static_cast<double>(values.size()) * squares);
}

}  // namespace weir::sim
