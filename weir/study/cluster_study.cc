// SPDX-License-Identifier: Apache-2.0
#include "weir/study/cluster_study.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/study/report_page.h"

namespace weir::study {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double value) { return std::round(value * 1e6) / 1e6; }
double in_ms(Nanoseconds time) { return rounded(static_cast<double>(time.count()) / 1e6); }
double quantile_ms(const sim::Quantiles& times, std::uint64_t percent) {
  return rounded(static_cast<double>(times.quantile(percent, 100)) / 1e6);
}
std::string percent(double part) { return fmt::format("{:.2f} %", part * 100); }
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Parts of the page; web/cluster-report.js draws them.
Json section_json(std::string_view title, std::string_view note) {
  return {{"title", title}, {"note", note}, {"lines", Json::array()}, {"bars", Json::array()}};
}

Json series_json(std::string_view name, Json values) {
  return {{"name", name}, {"values", std::move(values)}};
}

Result<void> write(const Json& result, const Json& page, const std::string& folder) {
  const NamedText files[] = {
      {"result.json", text_of(result, 2) + "\n"},
      {"report.html", report_page("cluster-report.js", text_of(page, -1))},
  };
  return write_texts(folder, files);
}

// ---- one limit on many servers ----

// Windows of 500 ms that are above the limit, of all that begin after the first second.
struct OverLimit {
  std::size_t windows = 0;
  std::size_t above = 0;
};
OverLimit over_limit(const sim::ClusterLimitOutcome& run) {
  constexpr std::size_t kFirst = 14;  // it ends at 1.5 s
  OverLimit all;
  for (std::size_t i = kFirst; i < run.rolling.size(); ++i) {
    ++all.windows;
    if (run.rolling[i] > 1) ++all.above;
  }
  return all;
}

Json limit_run_json(const sim::ClusterLimitOutcome& run) {
  const auto window = [](const sim::WindowFigures& figures) {
    return Json{{"least", rounded(figures.least)}, {"most", rounded(figures.most)}};
  };
  Json servers = Json::array();
  for (const sim::TargetOutcome& server : run.outcome.targets) servers.push_back(server.served);
  const OverLimit over = over_limit(run);
  const sim::JobOutcome& job = run.outcome.jobs.front();
  return {{"policy", contender_name(run.outcome.contender)},
          {"served", run.outcome.served},
          {"used", rounded(run.utilisation)},
          {"used_through_outage",
           run.through_outage ? Json(rounded(*run.through_outage)) : Json(nullptr)},
          {"in_500_ms", window(run.short_windows)},
          {"over_limit", {{"windows", over.windows}, {"above", over.above}}},
          {"in_5_s", window(run.long_windows)},
          {"latency_p50_ms", quantile_ms(job.latency, 50)},
          {"latency_p99_ms", quantile_ms(job.latency, 99)},
          {"epochs", run.cluster.epochs},
          {"evictions", run.cluster.evictions},
          {"messages", run.cluster.messages},
          {"findings", run.outcome.findings},
          {"served_by_server", std::move(servers)}};
}

Json limit_table(const ClusterLimitStudy& study) {
  Json rows = Json::array();
  for (const sim::ClusterLimitOutcome& run : study.runs) {
    const sim::JobOutcome& job = run.outcome.jobs.front();
    const OverLimit over = over_limit(run);
    rows.push_back({contender_name(run.outcome.contender), percent(run.utilisation),
                    fmt::format("{} of {}", over.above, over.windows),
                    percent(run.short_windows.least), percent(run.short_windows.most),
                    percent(run.long_windows.least), percent(run.long_windows.most),
                    fmt::format("{:.1f} ms", quantile_ms(job.latency, 50)),
                    fmt::format("{:.1f} ms", quantile_ms(job.latency, 99)), run.cluster.messages});
  }
  return {{"columns",
           {"policy", "limit used", "500 ms over the limit", "least in 500 ms", "most in 500 ms",
            "least in 5 s", "most in 5 s", "latency p50", "latency p99", "messages"}},
          {"rows", std::move(rows)}};
}

Json time_axis(std::size_t points) {
  Json axis = Json::array();
  for (std::size_t i = 0; i < points; ++i) {
    axis.push_back(rounded(0.1 * static_cast<double>(i + 1)));
  }
  return axis;
}

Json rolling_figure(const ClusterLimitStudy& study) {
  Json figure = {{"id", "windows"},
                 {"title", "The 500 ms before each moment"},
                 {"y_label", "of the limit"},
                 {"percent", true},
                 {"reference", 1},
                 {"reference_name", "limit"},
                 {"by_policy", true},
                 {"series", Json::array()}};
  std::size_t points = 0;
  for (const sim::ClusterLimitOutcome& run : study.runs) {
    Json values = Json::array();
    for (const double part : run.rolling) values.push_back(rounded(part));
    points = std::max(points, run.rolling.size());
    figure["series"].push_back(
        series_json(contender_name(run.outcome.contender), std::move(values)));
  }
  figure["x"] = time_axis(points);
  return figure;
}

Json servers_figure(const sim::ClusterLimitOutcome& run) {
  const std::string name(contender_name(run.outcome.contender));
  Json figure = {{"id", "servers-" + name},
                 {"title", name + ": requests of each server"},
                 {"y_label", "requests/s"},
                 {"series", Json::array()}};
  std::size_t points = 0;
  for (const auto& server : run.servers) points = std::max(points, server.size());
  for (std::size_t i = 0; i < run.servers.size(); ++i) {
    Json values = Json::array();
    for (std::size_t at = 0; at < points; ++at) {
      values.push_back(at < run.servers[i].size() ? run.servers[i][at] * 10 : 0);
    }
    figure["series"].push_back(series_json(run.outcome.targets[i].name, std::move(values)));
  }
  figure["x"] = time_axis(points);
  return figure;
}

Json server_bars(const ClusterLimitStudy& study) {
  Json figure = {{"id", "served"},
                 {"title", "Requests served by each server"},
                 {"y_label", "requests"},
                 {"groups", Json::array()},
                 {"series", Json::array()}};
  for (const sim::TargetOutcome& server : study.runs.front().outcome.targets) {
    figure["groups"].push_back(server.name);
  }
  for (const sim::ClusterLimitOutcome& run : study.runs) {
    Json values = Json::array();
    for (const sim::TargetOutcome& server : run.outcome.targets) values.push_back(server.served);
    figure["series"].push_back(
        series_json(contender_name(run.outcome.contender), std::move(values)));
  }
  return figure;
}

// ---- faults ----

Json fault_json(const FaultStudy::Run& run) {
  const sim::ClusterResult& of = run.result;
  return {{"seed", run.seed},        {"servers", run.servers},
          {"epochs", of.epochs},     {"errors", of.errors},
          {"crashes", of.crashes},   {"partitions", of.partitions},
          {"stops", of.stops},       {"forgotten", of.forgotten},
          {"leaders", of.leaders},   {"evictions", of.evictions},
          {"messages", of.messages}, {"longest_round_ms", in_ms(of.round_max)},
          {"findings", of.findings}, {"first_findings", of.first_findings}};
}

Json fault_figure(const FaultStudy& study, std::string_view key, std::string_view title,
                  std::string_view unit) {
  Json x = Json::array();
  Json values = Json::array();
  for (const FaultStudy::Run& run : study.runs) {
    x.push_back(run.seed);
    values.push_back(fault_json(run)[std::string(key)]);
  }
  return {{"id", key},         {"title", title},
          {"y_label", unit},   {"x_label", "seed of the cluster"},
          {"x", std::move(x)}, {"series", Json::array({series_json(title, std::move(values))})}};
}

// ---- groups ----

struct GroupNumbers {
  double operations = 0;  // per second
  double p50_ms = 0;
  double p99_ms = 0;
  double ragged_ms = 0;
  double ragged = 0;  // part of the time
};

GroupNumbers numbers_of(const GroupStudy::Run& run) {
  sim::Quantiles all;
  std::uint64_t operations = 0;
  for (const auto& group : run.result.groups) {
    operations += group.operations;
    all.merge(group.latency);
  }
  // The first second is not counted.
  const double seconds = static_cast<double>(run.spec.length.count()) / 1e9 - 1;
  return {.operations = rounded(static_cast<double>(operations) / seconds),
          .p50_ms = quantile_ms(all, 50),
          .p99_ms = quantile_ms(all, 99),
          .ragged_ms = in_ms(run.result.ragged_max),
          .ragged = rounded(static_cast<double>(run.result.ragged_sum.count()) / 1e9 / seconds)};
}

Json group_bars(const GroupStudy& study, std::string_view id, std::string_view title,
                std::string_view unit, double GroupNumbers::*value) {
  Json figure = {{"id", id},
                 {"title", title},
                 {"y_label", unit},
                 {"groups", Json::array({"all groups"})},
                 {"series", Json::array()}};
  for (const GroupStudy::Run& run : study.runs) {
    figure["series"].push_back(series_json(run.name, Json::array({numbers_of(run).*value})));
  }
  return figure;
}

}  // namespace

Result<void> write_cluster_limit(const ClusterLimitStudy& study, const std::string& folder) {
  Json result = {{"scenario", "cluster-limit"},
                 {"seed", study.seed},
                 {"servers", study.spec.servers},
                 {"limit", study.spec.limit},
                 {"length_s", in_ms(study.spec.length) / 1000},
                 {"partition", study.spec.partition == Partition::kLast ? "last" : "safe"},
                 {"policies", Json::array()}};
  for (const sim::ClusterLimitOutcome& run : study.runs) {
    result["policies"].push_back(limit_run_json(run));
  }
  Json windows = section_json(
      "The limit over time",
      "Requests of all servers in an interval of 500 ms, as a part of the limit. A policy is right "
      "if this is at most 100 % (and the bucket's depth), and good if it is near 100 % while the "
      "load is high. 500 ms over the limit: intervals above 100 %, of which one begins every "
      "100 ms. slices: the limit is divided in every epoch, by demand. fixed: every server "
      "always has limit / servers. each: every server has the whole limit. The first second, in "
      "which servers join, does not count in the table.");
  windows["table"] = limit_table(study);
  windows["lines"].push_back(rolling_figure(study));
  Json hot =
      section_json("The hot spot and the servers",
                   fmt::format("Nearly all work is on one server, and this server changes every "
                               "{} ms; the others have a trickle of requests.",
                               in_ms(study.spec.move_every)));
  for (const sim::ClusterLimitOutcome& run : study.runs) {
    hot["lines"].push_back(servers_figure(run));
  }
  hot["bars"].push_back(server_bars(study));
  const Json page = {
      {"title", study.title},
      {"subtitle", fmt::format("scenario cluster-limit · {} servers · one limit of {} "
                               "requests/s · {} s · seed {}",
                               study.spec.servers, study.spec.limit,
                               in_ms(study.spec.length) / 1000, study.seed)},
      {"sections", {std::move(windows), std::move(hot)}}};
  return write(result, page, folder);
}

Result<void> write_faults(const FaultStudy& study, const std::string& folder) {
  Json result = {{"scenario", "cluster-faults"}, {"clusters", Json::array()}};
  sim::ClusterResult all;
  Json findings = Json::array();
  for (const FaultStudy::Run& run : study.runs) {
    result["clusters"].push_back(fault_json(run));
    all.crashes += run.result.crashes;
    all.partitions += run.result.partitions;
    all.stops += run.result.stops;
    all.forgotten += run.result.forgotten;
    all.leaders += run.result.leaders;
    all.evictions += run.result.evictions;
    all.epochs += run.result.epochs;
    all.findings += run.result.findings;
    for (const std::string& finding : run.result.first_findings) {
      findings.push_back(fmt::format("seed {}: {}", run.seed, finding));
    }
  }
  if (findings.empty()) findings.push_back("All checks passed in all clusters.");
  Json total = section_json(
      "All clusters together",
      "Faults end before the end of each run, and then every server must recover. Checked all the "
      "time: epochs are the same on all servers and in order, and slices never add up to more than "
      "the limit, whatever fails.");
  total["table"] = {{"columns",
                     {"clusters", "crashes", "partitions", "stops", "servers forgotten", "leaders",
                      "evictions", "epochs", "checks failed"}},
                    {"rows", Json::array({{study.runs.size(), all.crashes, all.partitions,
                                           all.stops, all.forgotten, all.leaders, all.evictions,
                                           all.epochs, all.findings}})}};
  total["notes"] = std::move(findings);
  Json each = section_json("Each cluster", "By its seed, with which weir sim repeats it.");
  each["lines"] = {fault_figure(study, "servers", "Servers", "servers"),
                   fault_figure(study, "crashes", "Crashes", "crashes"),
                   fault_figure(study, "evictions", "Evictions", "servers evicted by the leader"),
                   fault_figure(study, "longest_round_ms", "Longest round of the leader", "ms")};
  const Json page = {{"title", study.title},
                     {"subtitle", fmt::format("scenario cluster-faults · seeds {} to {}",
                                              study.runs.front().seed, study.runs.back().seed)},
                     {"sections", {std::move(total), std::move(each)}}};
  return write(result, page, folder);
}

Result<void> write_groups(const GroupStudy& study, const std::string& folder) {
  Json result = {{"scenario", "group-epochs"}, {"seed", study.seed}, {"runs", Json::array()}};
  Json rows = Json::array();
  for (const GroupStudy::Run& run : study.runs) {
    const GroupNumbers of = numbers_of(run);
    result["runs"].push_back({{"name", run.name},
                              {"operations_per_s", of.operations},
                              {"latency_p50_ms", of.p50_ms},
                              {"latency_p99_ms", of.p99_ms},
                              {"ragged_most_ms", of.ragged_ms},
                              {"ragged_part", of.ragged},
                              {"epochs", run.result.epochs},
                              {"messages", run.result.messages},
                              {"findings", run.result.idle_findings}});
    rows.push_back({run.name, fmt::format("{:.1f}", of.operations),
                    fmt::format("{:.2f} ms", of.p50_ms), fmt::format("{:.2f} ms", of.p99_ms),
                    fmt::format("{:.2f} ms", of.ragged_ms), percent(of.ragged), run.result.epochs});
  }
  Json section = section_json(
      "Servers that take turns",
      "An operation has one request on every server and is done when all of them are. together: "
      "servers prefer the same group at the same time; with quiesce they wait until the requests "
      "of "
      "the group before are done everywhere. apart: every server takes turns on its own. off: no "
      "turns. Ragged: the time in which servers in step prefer different groups.");
  section["table"] = {{"columns",
                       {"servers", "operations/s", "latency p50", "latency p99", "ragged at most",
                        "ragged part of the time", "epochs"}},
                      {"rows", std::move(rows)}};
  section["bars"] = {
      group_bars(study, "operations", "Operations", "operations/s", &GroupNumbers::operations),
      group_bars(study, "p50", "Latency, p50", "ms", &GroupNumbers::p50_ms),
      group_bars(study, "p99", "Latency, p99", "ms", &GroupNumbers::p99_ms),
      group_bars(study, "ragged", "Longest ragged time", "ms", &GroupNumbers::ragged_ms)};
  const sim::GroupTurnsSpec& spec = study.runs.front().spec;
  const Json page = {{"title", study.title},
                     {"subtitle", fmt::format("scenario group-epochs · {} servers · {} groups · "
                                              "turns of {} ms · {} s · seed {}",
                                              spec.servers, spec.groups, in_ms(spec.turn),
                                              in_ms(spec.length) / 1000, study.seed)},
                     {"sections", Json::array({std::move(section)})}};
  return write(result, page, folder);
}

}  // namespace weir::study
