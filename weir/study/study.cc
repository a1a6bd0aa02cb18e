// SPDX-License-Identifier: Apache-2.0
#include "weir/study/study.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/study/report_page.h"
#include "weir/study/workload.h"

namespace weir::study {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage = "sim-report.js";

// Six decimal places are enough, and the same on every machine.
Json rounded(double value) { return std::round(value * 1e6) / 1e6; }
Json rounded(const std::optional<double>& value) { return value ? rounded(*value) : Json(nullptr); }

double in_seconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }
Json in_ms(Nanoseconds time) { return rounded(static_cast<double>(time.count()) / 1e6); }

Json quantile_ms(const sim::Quantiles& times, std::uint64_t percent) {
  return rounded(static_cast<double>(times.quantile(percent, 100)) / 1e6);
}

double per_second(Rate rate) {
  return static_cast<double>(rate.tokens()) / static_cast<double>(rate.time_ns()) * 1e9;
}

Json job_json(const sim::JobOutcome& job) {
  return {{"nodes", job.nodes},
          {"arrived", job.arrived},
          {"served", job.served},
          {"cost", job.cost},
          {"throughput", rounded(job.throughput)},
          {"share", rounded(job.share)},
          {"entitlement", rounded(job.entitlement)},
          {"wait_p50_ms", quantile_ms(job.wait, 50)},
          {"wait_p99_ms", quantile_ms(job.wait, 99)},
          {"latency_p50_ms", quantile_ms(job.latency, 50)},
          {"latency_p99_ms", quantile_ms(job.latency, 99)},
          {"record", job.record}};
}

// What a run could not do as it was asked to.
void add_limits(const sim::Outcome& outcome, Json& json) {
  if (outcome.held_back > 0) {
    json["held_back"] = {{"requests", outcome.held_back},
                         {"longest_s", rounded(in_seconds(outcome.held_back_longest))}};
  }
  if (outcome.periods_left_out > 0) json["periods_left_out"] = outcome.periods_left_out;
}

Json outcome_json(const sim::Outcome& outcome) {
  Json json = {{"period_ms", outcome.period ? in_ms(*outcome.period) : Json(nullptr)},
               {"duration_s", rounded(in_seconds(outcome.duration))},
               {"utilisation", rounded(outcome.utilisation)},
               {"served", outcome.served},
               {"throughput", rounded(static_cast<double>(outcome.served) /
                                      std::max(in_seconds(outcome.duration), 1e-9))},
               {"jain", rounded(outcome.fairness)},
               {"contended_s", nullptr},
               {"events", outcome.events},
               {"findings", outcome.findings}};
  add_limits(outcome, json);
  if (outcome.contended_from && outcome.contended_until) {
    json["contended_s"] = {rounded(in_seconds(*outcome.contended_from)),
                           rounded(in_seconds(*outcome.contended_until))};
  }
  json["jobs"] = Json::object();
  for (const sim::JobOutcome& job : outcome.jobs) json["jobs"][job.name] = job_json(job);
  const std::vector<sim::JobOutcome> groups = grouped(outcome);
  if (groups.size() < outcome.jobs.size()) {
    for (const sim::JobOutcome& group : groups) json["groups"][group.name] = job_json(group);
  }
  for (const sim::TargetOutcome& target : outcome.targets) {
    json["targets"][target.name] = {{"utilisation", rounded(target.utilisation)},
                                    {"served", target.served},
                                    {"cost", target.cost},
                                    {"slots", target.slots}};
  }
  return json;
}

std::string service_name(const Study& study) {
  return study.exponential ? "exponential" : "as given";
}

Json workload_json(const WorkloadReport& report) {
  Json json = {{"file", report.file.path},       {"format", format_name(report.file.format)},
               {"requests", report.requests},    {"reads", report.reads},
               {"bytes", report.bytes},          {"length_s", rounded(in_seconds(report.length))},
               {"lines", report.lines},          {"not_understood", report.wrong},
               {"sorted", report.sorted},        {"moved", report.moved},
               {"is_cut", !report.cut.empty()},  {"not_simulated", Json::object()},
               {"notes", workload_notes(report)}};
  for (std::size_t i = 0; i < kSkippedKinds; ++i) {
    if (report.skipped[i] == 0) continue;
    json["not_simulated"][std::string(skipped_text(static_cast<Skipped>(i)))] = report.skipped[i];
  }
  return json;
}

Json head_json(const Study& study) {
  const sim::Scenario& scenario = study.scenario;
  Json json = {{"scenario", scenario.name},
               {"title", scenario.title},
               {"seed", study.seed},
               {"service", service_name(study)},
               {"length_s", nullptr}};
  if (study.on_server) json["on_server"] = true;
  if (scenario.length) json["length_s"] = rounded(in_seconds(*scenario.length));
  for (const sim::TargetSpec& target : scenario.targets) {
    json["capacity"][target.name] = rounded(per_second(target.capacity));
  }
  for (const WorkloadReport& report : study.workload) {
    json["workload"].push_back(workload_json(report));
  }
  return json;
}

// The active jobs of a period, and those that only have a record, in the order of their ids.
std::vector<JobPeriod> all_jobs(const PeriodReport& report) {
  std::vector<JobPeriod> jobs = report.jobs;
  for (const JobRecord& record : report.records) {
    const auto same = [&](const JobPeriod& job) { return job.job == record.job; };
    if (record.record == 0 || std::any_of(report.jobs.begin(), report.jobs.end(), same)) continue;
    JobPeriod idle;
    idle.job = record.job;
    idle.record = record.record;
    jobs.push_back(idle);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const JobPeriod& a, const JobPeriod& b) { return a.job.text() < b.job.text(); });
  return jobs;
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// ---- the page ----

// Which line of a figure each job belongs to.
std::map<std::string, std::size_t, std::less<>> group_of_job(
    const sim::Outcome& outcome, const std::vector<sim::JobOutcome>& groups) {
  std::map<std::string, std::size_t, std::less<>> index;
  for (const sim::JobOutcome& job : outcome.jobs) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].group == job.group) index[job.name] = i;
    }
  }
  return index;
}

// Records and demand in the intervals of the outcome: the record at the end of an interval, the
// demand per second. A group is several jobs, and a job may use several targets.
Json period_series(const sim::Outcome& outcome, const std::vector<sim::JobOutcome>& groups,
                   std::size_t bins, double scale) {
  const auto group_of = group_of_job(outcome, groups);
  std::vector<std::vector<double>> demand(groups.size(), std::vector<double>(bins));
  std::vector<std::vector<std::int64_t>> records(groups.size(), std::vector<std::int64_t>(bins));
  std::vector<std::vector<std::int64_t>> last(outcome.targets.size(),
                                              std::vector<std::int64_t>(groups.size()));
  std::size_t at = 0;
  const auto fill_to = [&](std::size_t bin) {
    for (; at < std::min(bin, bins); ++at) {
      for (std::size_t g = 0; g < groups.size(); ++g) {
        for (const std::vector<std::int64_t>& of_target : last) records[g][at] += of_target[g];
      }
    }
  };
  for (const sim::PeriodRow& row : outcome.periods) {
    // A report is for the period before it.
    const Nanoseconds end = row.report.at.time_since_epoch() - Nanoseconds{1};
    const auto bin = static_cast<std::size_t>(std::max(end, Nanoseconds{0}) / outcome.bin);
    fill_to(bin);
    last[row.target].assign(groups.size(), 0);
    for (const JobRecord& record : row.report.records) {
      const auto group = group_of.find(record.job.text());
      if (group != group_of.end()) last[row.target][group->second] += record.record;
    }
    for (const JobPeriod& job : row.report.jobs) {
      const auto group = group_of.find(job.job.text());
      if (group == group_of.end() || bin >= bins) continue;
      demand[group->second][bin] +=
          static_cast<double>(job.demand.count()) / in_seconds(outcome.bin) / scale;
    }
  }
  fill_to(bins);
  Json series = {{"record", records}, {"demand", Json::array()}};
  for (const std::vector<double>& values : demand) {
    Json line = Json::array();
    for (const double value : values) line.push_back(rounded(value));
    series["demand"].push_back(std::move(line));
  }
  return series;
}

Json figure_json(const sim::Outcome& outcome, double scale) {
  Json json = {{"policy", contender_name(outcome.contender)},
               {"period_ms", outcome.period ? in_ms(*outcome.period) : Json(nullptr)},
               {"duration_s", rounded(in_seconds(outcome.duration))},
               {"bin_s", rounded(in_seconds(outcome.bin))},
               {"utilisation", rounded(outcome.utilisation)},
               {"served", outcome.served},
               {"jain", rounded(outcome.fairness)}};
  add_limits(outcome, json);
  const std::vector<sim::JobOutcome> groups = grouped(outcome);
  const auto bins =
      static_cast<std::size_t>((outcome.duration + outcome.bin - Nanoseconds{1}) / outcome.bin);
  for (const sim::JobOutcome& group : groups) {
    Json series = Json::array();
    for (std::size_t i = 0; i < bins; ++i) {
      const std::uint64_t cost = i < group.bins.size() ? group.bins[i].cost : 0;
      // The last interval of a run may be shorter.
      const Nanoseconds begin = outcome.bin * static_cast<std::int64_t>(i);
      const double width = in_seconds(std::min(outcome.bin, outcome.duration - begin));
      series.push_back(rounded(static_cast<double>(cost) / std::max(width, 1e-3) / scale));
    }
    Json job = job_json(group);
    job["name"] = group.name;
    job["series"] = std::move(series);
    json["jobs"].push_back(std::move(job));
  }
  if (!outcome.periods.empty()) json["periods"] = period_series(outcome, groups, bins, scale);
  return json;
}

Json sweep_json(const std::vector<sim::Outcome>& sweep) {
  Json json = Json::object();
  for (const sim::Outcome& outcome : sweep) {
    json[std::string(contender_name(outcome.contender))].push_back(outcome_json(outcome));
  }
  return json;
}

}  // namespace

std::string result_json(const Study& study) {
  Json json = head_json(study);
  json["policies"] = Json::object();
  for (const sim::Outcome& outcome : study.outcomes) {
    json["policies"][std::string(contender_name(outcome.contender))] = outcome_json(outcome);
  }
  if (!study.sweep.empty()) json["sweep"] = sweep_json(study.sweep);
  return text_of(json, 2) + "\n";
}

std::string periods_csv(const Study& study) {
  std::string csv =
      "policy,target,time_s,job,nodes,demand,initial,redistributed,final,rate,record,borrowed,"
      "lent\n";
  std::map<std::string_view, std::uint64_t> nodes;
  for (const sim::JobSpec& job : study.scenario.jobs) nodes[job.name] = job.nodes;
  for (const sim::Outcome& outcome : study.outcomes) {
    const double period = in_seconds(outcome.period.value_or(std::chrono::seconds{1}));
    for (const sim::PeriodRow& row : outcome.periods) {
      for (const JobPeriod& job : all_jobs(row.report)) {
        fmt::format_to(std::back_inserter(csv), "{},{},{:.6f},{},{},{},{},{},{},{:.3f},{},{},{}\n",
                       contender_name(outcome.contender), study.scenario.targets[row.target].name,
                       in_seconds(row.report.at.time_since_epoch()), job.job.text(),
                       nodes.at(job.job.text()), job.demand.count(), job.initial.count(),
                       job.redistributed.count(), job.final.count(),
                       static_cast<double>(job.final.count()) / period, job.record,
                       job.borrowed.count(), job.lent.count());
      }
    }
  }
  return csv;
}

std::string throughput_csv(const Study& study) {
  std::string csv = "policy,time_s,job,served,cost\n";
  for (const sim::Outcome& outcome : study.outcomes) {
    const int digits = outcome.bin % std::chrono::milliseconds{100} == Nanoseconds{0} ? 1 : 2;
    std::size_t bins = 0;
    for (const sim::JobOutcome& job : outcome.jobs) bins = std::max(bins, job.bins.size());
    for (std::size_t i = 0; i < bins; ++i) {
      for (const sim::JobOutcome& job : outcome.jobs) {
        const sim::Bin bin = i < job.bins.size() ? job.bins[i] : sim::Bin{};
        fmt::format_to(std::back_inserter(csv), "{},{:.{}f},{},{},{}\n",
                       contender_name(outcome.contender),
                       in_seconds(outcome.bin * static_cast<std::int64_t>(i)), digits, job.name,
                       bin.served, bin.cost);
      }
    }
  }
  return csv;
}

std::string report_html(const Study& study) {
  const Cost::Kind cost = study.scenario.targets.front().cost.kind();
  constexpr double kMib = 1024 * 1024;
  const double scale = cost == Cost::Kind::kBytes ? kMib : 1;
  double capacity = 0;
  for (const sim::TargetSpec& target : study.scenario.targets) {
    capacity += per_second(target.capacity) / scale;
  }
  Json json = head_json(study);
  json["total_capacity"] = rounded(capacity);
  json["unit"] = cost == Cost::Kind::kBytes ? "MiB/s"
                 : cost == Cost::Kind::kOp  ? "requests/s"
                                            : "cost/s";
  for (const sim::Outcome& outcome : study.outcomes) {
    json["policies"].push_back(figure_json(outcome, scale));
  }
  if (!study.sweep.empty()) json["sweep"] = sweep_json(study.sweep);
  return report_page(kPage, text_of(json, -1));
}

Result<void> write_study(const Study& study, const std::string& folder) {
  const NamedText files[] = {
      {"result.json", result_json(study)},
      {"periods.csv", periods_csv(study)},
      {"throughput.csv", throughput_csv(study)},
      {"report.html", report_html(study)},
  };
  return write_texts(folder, files);
}

}  // namespace weir::study
