// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/outcome.h"

#include <algorithm>
#include <numeric>

#include "weir/base/assert.h"

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

std::vector<double> fair_parts(double total, const std::vector<std::uint64_t>& nodes,
                               const std::vector<double>& demands) {
  WEIR_ASSERT(nodes.size() == demands.size());
  const auto each = [&](std::size_t i) { return demands[i] / static_cast<double>(nodes[i]); };
  std::vector<std::size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return each(a) < each(b); });
  double left_nodes = 0;
  for (const std::uint64_t count : nodes) left_nodes += static_cast<double>(count);
  std::vector<double> parts(nodes.size());
  for (const std::size_t i : order) {
    const auto own = static_cast<double>(nodes[i]);
    parts[i] = std::min(demands[i], total * own / left_nodes);
    total -= parts[i];
    left_nodes -= own;
  }
  return parts;
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
