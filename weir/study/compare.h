// SPDX-License-Identifier: Apache-2.0
//
// A comparison: scenarios x policies x seeds, one run each, and the results of all runs:
//
//   runs.jsonl     one line for each completed run, appended as runs complete; a comparison that
//                  was interrupted reads it and continues
//   results.json   all runs; for each scenario and metric the mean of each policy over the seeds,
//                  its 95 % confidence interval and its rank
//   results.csv    tidy: one row for each job and run, and in each the metrics of the run as run_*
//   report.html    a self-contained page with the ranks
//
// Policies are ranked by their mean. Those whose interval overlaps the interval of the first cannot
// be distinguished from it with these seeds: they are tied with it. An interval is mean +- t x s /
// sqrt(n) of Student's distribution with n - 1 degrees of freedom; there is none for one seed.
//
// All values except processor times are the same for the same scenario, policy and seed. Plain
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::study {

struct RunKey {
  std::string scenario;
  std::string policy;
  std::uint64_t seed = 1;

  auto operator<=>(const RunKey&) const = default;
};

struct JobRow {
  std::string job;
  std::string group;
  bool is_bursty = false;  // has no continuous process
  std::uint64_t nodes = 1;
  std::uint64_t arrived = 0;
  std::uint64_t served = 0;
  double throughput = 0;  // requests per second
  double p50_ms = 0;      // of latency
  double p99_ms = 0;
  double p999_ms = 0;
  std::uint64_t windows = 0;
  double shortfall_mean = 0;
  double shortfall_worst = 0;
  double starved_ms = 0;
  std::optional<double> repaid_s;
  std::optional<double> reserve_missed;

  bool operator==(const JobRow&) const = default;
};

enum class Metric : std::uint8_t {
  kUtilisation,
  kShortfallMean,
  kShortfallWorst,
  kBurstyP99,
  kBurstyP999,
  kSteadyP99,
  kSteadyP999,
  kStarvation,
  kReserve,
  kRepay,
  kDecision,
};
inline constexpr std::size_t kMetrics = 11;
struct MetricText {
  std::string_view name;   // in files
  std::string_view title;  // in the report
  std::string_view explanation;
  bool more_is_better = false;
};
const MetricText& metric_text(Metric metric);

struct RunResult {
  RunKey key;
  std::string digest;   // of the scenario; runs of another scenario do not count
  std::string refusal;  // why the policy cannot express the scenario; empty: it can
  std::uint64_t findings = 0;
  double cpu_s = 0;  // processor time of the whole run, with clients and device
  std::array<std::optional<double>, kMetrics> metrics;
  std::vector<JobRow> jobs;

  bool operator==(const RunResult&) const = default;
};

// `cpu` is the processor time of the run.
RunResult run_result(RunKey key, std::string digest, const sim::Scenario& scenario,
                     const sim::Outcome& outcome, Nanoseconds cpu);
// 16 hexadecimal digits that differ if the parts differ.
std::string digest_of(std::initializer_list<std::string_view> parts);

// One line of runs.jsonl, with its newline.
std::string run_line(const RunResult& result);
// None for a line that is truncated or not valid.
std::optional<RunResult> parse_run_line(std::string_view line);

struct Estimate {
  std::string policy;
  double mean = 0;
  std::optional<double> half_width;  // of the interval
  std::size_t runs = 0;
  std::size_t rank = 0;  // from 1
  bool is_tied = false;  // with the first, or the first itself
};
// Best first. Policies without a value are left out.
std::vector<Estimate> rank(const std::vector<RunResult>& results, std::string_view scenario,
                           Metric metric);

struct Comparison {
  std::string command;
  std::vector<std::string> scenarios;
  std::map<std::string, std::string> titles;
  std::vector<std::string> policies;
  std::vector<RunResult> results;  // in the order of their keys
};
std::string results_json(const Comparison& comparison);
std::string results_csv(const Comparison& comparison);
std::string compare_html(const Comparison& comparison);
Result<void> write_comparison(const Comparison& comparison, const std::string& folder);

}  // namespace weir::study
