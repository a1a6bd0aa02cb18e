// SPDX-License-Identifier: Apache-2.0
#include "weir/study/compare.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/study/report_page.h"

namespace weir::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<MetricText, kMetrics> kTexts = {{
    {"utilisation", "Utilisation", "cost served / what the capacity allows; more is better", true},
    {"shortfall_mean", "Entitlement error over 1 s, mean",
     "what a job lacks of its fair part, as a fraction, in every second in which it has requests "
     "waiting all the time and another job is active",
     false},
    {"shortfall_worst", "Entitlement error over 1 s, worst", "the same in the worst second", false},
    {"bursty_p99_ms", "p99 latency of bursty jobs, ms",
     "from arrival to completion, of all requests of jobs that have no continuous process", false},
    {"bursty_p999_ms", "p99.9 latency of bursty jobs, ms", "the same", false},
    {"steady_p99_ms", "p99 latency of steady jobs, ms",
     "the same for jobs with a continuous process", false},
    {"steady_p999_ms", "p99.9 latency of steady jobs, ms", "the same", false},
    {"starvation_ms", "Longest time without service while requests wait, ms",
     "longest time in which requests of a job wait and none of them is dispatched", false},
    {"reserve_missed", "Reservation not kept over 1 s, worst",
     "what a job lacks of its reservation, as a fraction, in the worst second in which it has "
     "requests waiting all the time",
     false},
    {"repay_s", "Time to repay, s",
     "from the start of a lender's continuous work until it has got back half of what it lent, or "
     "its part of the capacity in a second if that is less; no value if a lender never does",
     false},
    {"decision_ns", "Processor time of the scheduler per request, ns",
     "arrival, decision and completion, estimated from samples; depends on the machine", false},
}};

// 97.5 % quantiles of Student's distribution, from one degree of freedom.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                               2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                               2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
constexpr double kNormal = 1.96;

double rounded(double value) { return std::round(value * 1e6) / 1e6; }

double quantile_ms(const sim::Quantiles& times, std::uint64_t permille) {
  return rounded(static_cast<double>(times.quantile(permille, 1000)) / 1e6);
}

double in_ms(Nanoseconds time) { return rounded(static_cast<double>(time.count()) / 1e6); }

bool is_bursty(const sim::JobSpec& job) {
  return std::none_of(job.processes.begin(), job.processes.end(), [](const auto& process) {
    return process.kind == sim::ProcessSpec::Kind::kContinuous;
  });
}

JobRow row_of(const sim::JobSpec& spec, const sim::JobOutcome& job,
              const sim::JobMeasured& measured) {
  JobRow row;
  row.job = job.name;
  row.group = job.group;
  row.is_bursty = is_bursty(spec);
  row.nodes = job.nodes;
  row.arrived = job.arrived;
  row.served = job.served;
  row.throughput = rounded(job.throughput);
  row.p50_ms = quantile_ms(job.latency, 500);
  row.p99_ms = quantile_ms(job.latency, 990);
  row.p999_ms = quantile_ms(job.latency, 999);
  row.windows = measured.windows;
  row.shortfall_mean = rounded(measured.shortfall_mean);
  row.shortfall_worst = rounded(measured.shortfall_worst);
  row.starved_ms = in_ms(measured.starved);
  if (measured.repaid_after) row.repaid_s = in_ms(*measured.repaid_after) / 1000;
  if (measured.reserve_missed) row.reserve_missed = rounded(*measured.reserve_missed);
  return row;
}

void set_latencies(const std::vector<JobRow>& rows, const sim::Outcome& outcome,
                   std::array<std::optional<double>, kMetrics>& metrics) {
  sim::Quantiles bursty;
  sim::Quantiles steady;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (rows[i].is_bursty ? bursty : steady).merge(outcome.jobs[i].latency);
  }
  const auto set = [&](Metric metric, const sim::Quantiles& times, std::uint64_t permille) {
    if (times.count() > 0) metrics[static_cast<std::size_t>(metric)] = quantile_ms(times, permille);
  };
  set(Metric::kBurstyP99, bursty, 990);
  set(Metric::kBurstyP999, bursty, 999);
  set(Metric::kSteadyP99, steady, 990);
  set(Metric::kSteadyP999, steady, 999);
}

// Mean over all seconds of all jobs; the worst second; the longest starvation. A job that lent and
// was not repaid makes the time to repay unknown.
void set_shares(const sim::Outcome& outcome, std::array<std::optional<double>, kMetrics>& metrics) {
  double sum = 0;
  double windows = 0;
  double worst = 0;
  Nanoseconds starved{0};
  std::size_t loans = 0;
  std::size_t repaid = 0;
  double repaid_s = 0;
  std::optional<double> missed;
  for (const sim::JobMeasured& job : outcome.measured) {
    sum += job.shortfall_mean * static_cast<double>(job.windows);
    windows += static_cast<double>(job.windows);
    worst = std::max(worst, job.shortfall_worst);
    starved = std::max(starved, job.starved);
    if (job.reserve_missed) missed = std::max(missed.value_or(0), *job.reserve_missed);
    if (job.lent > 0) ++loans;
    if (!job.repaid_after) continue;
    ++repaid;
    repaid_s += in_ms(*job.repaid_after) / 1000;
  }
  const auto set = [&](Metric metric, double value) {
    metrics[static_cast<std::size_t>(metric)] = rounded(value);
  };
  if (windows > 0) {
    set(Metric::kShortfallMean, sum / windows);
    set(Metric::kShortfallWorst, worst);
  }
  set(Metric::kStarvation, in_ms(starved));
  if (missed) set(Metric::kReserve, *missed);
  if (loans > 0 && repaid == loans) set(Metric::kRepay, repaid_s / static_cast<double>(loans));
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json run_json(const RunResult& result) {
  Json json = {{"scenario", result.key.scenario},
               {"policy", result.key.policy},
               {"seed", result.key.seed},
               {"digest", result.digest},
               {"refusal", result.refusal},
               {"findings", result.findings},
               {"cpu_s", result.cpu_s},
               {"metrics", Json::object()},
               {"jobs", Json::array()}};
  for (std::size_t i = 0; i < kMetrics; ++i) {
    json["metrics"][std::string(kTexts[i].name)] = optional_json(result.metrics[i]);
  }
  for (const JobRow& job : result.jobs) {
    json["jobs"].push_back({job.job, job.group, job.is_bursty, job.nodes, job.arrived, job.served,
                            job.throughput, job.p50_ms, job.p99_ms, job.p999_ms, job.windows,
                            job.shortfall_mean, job.shortfall_worst, job.starved_ms,
                            optional_json(job.repaid_s), optional_json(job.reserve_missed)});
  }
  return json;
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

JobRow row_of(const Json& job) {
  JobRow row;
  row.job = job.at(0);
  row.group = job.at(1);
  row.is_bursty = job.at(2);
  row.nodes = job.at(3);
  row.arrived = job.at(4);
  row.served = job.at(5);
  row.throughput = job.at(6);
  row.p50_ms = job.at(7);
  row.p99_ms = job.at(8);
  row.p999_ms = job.at(9);
  row.windows = job.at(10);
  row.shortfall_mean = job.at(11);
  row.shortfall_worst = job.at(12);
  row.starved_ms = job.at(13);
  if (!job.at(14).is_null()) row.repaid_s = job.at(14).get<double>();
  if (!job.at(15).is_null()) row.reserve_missed = job.at(15).get<double>();
  return row;
}

Json estimates_json(const Comparison& comparison, const std::string& scenario) {
  Json metrics = Json::object();
  for (std::size_t i = 0; i < kMetrics; ++i) {
    Json rows = Json::array();
    for (const Estimate& one : rank(comparison.results, scenario, static_cast<Metric>(i))) {
      rows.push_back({{"policy", one.policy},
                      {"mean", rounded(one.mean)},
                      {"half_width", optional_json(one.half_width)},
                      {"runs", one.runs},
                      {"rank", one.rank},
                      {"tied", one.is_tied}});
    }
    metrics[std::string(kTexts[i].name)] = std::move(rows);
  }
  return metrics;
}

Json summary_json(const Comparison& comparison) {
  Json json = {{"command", comparison.command},
               {"policies", comparison.policies},
               {"metrics", Json::array()},
               {"scenarios", Json::array()},
               {"refused", Json::array()}};
  for (const MetricText& text : kTexts) {
    json["metrics"].push_back({{"name", text.name},
                               {"title", text.title},
                               {"explanation", text.explanation},
                               {"more_is_better", text.more_is_better}});
  }
  for (const std::string& scenario : comparison.scenarios) {
    const auto title = comparison.titles.find(scenario);
    json["scenarios"].push_back({{"name", scenario},
                                 {"title", title == comparison.titles.end() ? "" : title->second},
                                 {"metrics", estimates_json(comparison, scenario)}});
  }
  std::map<std::pair<std::string, std::string>, std::string> refused;
  for (const RunResult& result : comparison.results) {
    if (!result.refusal.empty()) {
      refused[{result.key.scenario, result.key.policy}] = result.refusal;
    }
  }
  for (const auto& [key, why] : refused) {
    json["refused"].push_back({{"scenario", key.first}, {"policy", key.second}, {"why", why}});
  }
  return json;
}

}  // namespace

const MetricText& metric_text(Metric metric) { return kTexts[static_cast<std::size_t>(metric)]; }

std::string digest_of(std::initializer_list<std::string_view> parts) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](char byte) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3;
  };
  for (const std::string_view part : parts) {
    for (const char byte : part) add(byte);
    add('\0');
  }
  return fmt::format("{:016x}", hash);
}

RunResult run_result(RunKey key, std::string digest, const sim::Scenario& scenario,
                     const sim::Outcome& outcome, Nanoseconds cpu) {
  RunResult result;
  result.key = std::move(key);
  result.digest = std::move(digest);
  result.findings = outcome.findings;
  result.jobs.reserve(outcome.jobs.size());
  for (std::size_t i = 0; i < outcome.jobs.size(); ++i) {
    result.jobs.push_back(row_of(scenario.jobs[i], outcome.jobs[i], outcome.measured[i]));
  }
  result.metrics[static_cast<std::size_t>(Metric::kUtilisation)] = rounded(outcome.utilisation);
  set_latencies(result.jobs, outcome, result.metrics);
  set_shares(outcome, result.metrics);
  result.cpu_s = rounded(static_cast<double>(cpu.count()) / 1e9);
  if (outcome.served > 0 && outcome.decision_time) {
    result.metrics[static_cast<std::size_t>(Metric::kDecision)] = rounded(
        static_cast<double>(outcome.decision_time->count()) / static_cast<double>(outcome.served));
  }
  return result;
}

std::string run_line(const RunResult& result) { return text_of(run_json(result), -1) + "\n"; }

std::optional<RunResult> parse_run_line(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    RunResult result;
    result.key = {json.at("scenario"), json.at("policy"), json.at("seed")};
    result.digest = json.at("digest");
    result.refusal = json.at("refusal");
    result.findings = json.at("findings");
    result.cpu_s = json.at("cpu_s");
    for (std::size_t i = 0; i < kMetrics; ++i) {
      const Json& value = json.at("metrics").at(std::string(kTexts[i].name));
      if (!value.is_null()) result.metrics[i] = value.get<double>();
    }
    for (const Json& job : json.at("jobs")) result.jobs.push_back(row_of(job));
    return result;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::vector<Estimate> rank(const std::vector<RunResult>& results, std::string_view scenario,
                           Metric metric) {
  std::map<std::string_view, std::vector<double>> values;
  for (const RunResult& result : results) {
    const auto& value = result.metrics[static_cast<std::size_t>(metric)];
    if (result.key.scenario == scenario && value) values[result.key.policy].push_back(*value);
  }
  std::vector<Estimate> ranked;
  for (const auto& [policy, of] : values) {
    Estimate& one = ranked.emplace_back();
    one.policy = policy;
    one.runs = of.size();
    const auto count = static_cast<double>(of.size());
    for (const double value : of) one.mean += value / count;
    if (of.size() < 2) continue;
    double squares = 0;
    for (const double value : of) squares += (value - one.mean) * (value - one.mean);
    const std::size_t freedom = of.size() - 1;
    const double student = freedom <= std::size(kStudent) ? kStudent[freedom - 1] : kNormal;
    one.half_width = student * std::sqrt(squares / static_cast<double>(freedom) / count);
  }
  const bool more = metric_text(metric).more_is_better;
  std::stable_sort(ranked.begin(), ranked.end(), [more](const Estimate& a, const Estimate& b) {
    return more ? a.mean > b.mean : a.mean < b.mean;
  });
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const Estimate& first = ranked.front();
    Estimate& one = ranked[i];
    one.rank = i > 0 && one.mean == ranked[i - 1].mean ? ranked[i - 1].rank : i + 1;
    const double reach = first.half_width.value_or(0) + one.half_width.value_or(0);
    one.is_tied = std::abs(one.mean - first.mean) <= reach;
  }
  return ranked;
}

std::string results_json(const Comparison& comparison) {
  Json json = summary_json(comparison);
  json["runs"] = Json::array();
  for (const RunResult& result : comparison.results) {
    Json run = run_json(result);
    run.erase("jobs");  // they are in results.csv
    json["runs"].push_back(std::move(run));
  }
  return text_of(json, 1) + "\n";
}

std::string results_csv(const Comparison& comparison) {
  std::string csv =
      "scenario,policy,seed,job,group,kind,nodes,arrived,served,throughput,latency_p50_ms,"
      "latency_p99_ms,latency_p999_ms,windows,shortfall_mean,shortfall_worst,starved_ms,repaid_s,"
      "reserve_missed,run_cpu_s";
  for (const MetricText& text : kTexts)
    fmt::format_to(std::back_inserter(csv), ",run_{}", text.name);
  csv += '\n';
  const auto text = [](const std::optional<double>& value) {
    return value ? fmt::format("{}", *value) : "";
  };
  for (const RunResult& result : comparison.results) {
    std::string whole = fmt::format("{}", result.cpu_s);
    for (const auto& metric : result.metrics) whole += "," + text(metric);
    for (const JobRow& job : result.jobs) {
      fmt::format_to(
          std::back_inserter(csv), "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
          result.key.scenario, result.key.policy, result.key.seed, job.job, job.group,
          job.is_bursty ? "bursty" : "steady", job.nodes, job.arrived, job.served, job.throughput,
          job.p50_ms, job.p99_ms, job.p999_ms, job.windows, job.shortfall_mean, job.shortfall_worst,
          job.starved_ms, text(job.repaid_s), text(job.reserve_missed), whole);
    }
  }
  return csv;
}

std::string compare_html(const Comparison& comparison) {
  return report_page("compare-report.js", text_of(summary_json(comparison), -1));
}

Result<void> write_comparison(const Comparison& comparison, const std::string& folder) {
  const NamedText files[] = {
      {"results.json", results_json(comparison)},
      {"results.csv", results_csv(comparison)},
      {"report.html", compare_html(comparison)},
  };
  return write_texts(folder, files);
}

}  // namespace weir::study
