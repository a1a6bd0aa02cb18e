// SPDX-License-Identifier: Apache-2.0
#include "weir/study/workload.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::study {
namespace {

constexpr double kDefaultUse = 0.8;
constexpr std::uint64_t kDefaultCapacity = 1000;

// A file while a scenario runs.
class FileArrivals final : public sim::Arrivals {
 public:
  FileArrivals(const WorkloadFile& file, const JobMap& map) : map_(map), reader_(file, map_) {}

  Result<std::optional<sim::TraceEntry>> next() override { return reader_.next(); }

 private:
  JobMap map_;  // its own: runs may be on several threads
  WorkloadReader reader_;
};

tl::unexpected<Error> refuse(std::string_view where, std::string_view what,
                             std::string_view hint = {}) {
  return fail(std::errc::invalid_argument, where, what, hint);
}

Result<void> check_fields(const WorkloadFile& file, const JobMap::Options& map) {
  const auto check = [&](WorkloadField field, std::string_view what) -> Result<void> {
    if (has_field(file.format, field)) return {};
    return refuse(quote(file.path), fmt::format("has no field {} for {}", field_name(field), what),
                  fmt::format("a {} has the field {}", format_name(file.format),
                              field_name(usual_field(file.format))));
  };
  // A rule for files of another format matches nothing here; only the name is needed in all.
  if (!map.by || map.by_rules_only) return {};
  return check(*map.by, "names of jobs");
}

Result<WorkloadReport> read_all(const WorkloadFile& file, JobMap& map) {
  WorkloadReader reader(file, map);
  for (;;) {
    const auto entry = reader.next();
    if (!entry) return tl::unexpected(entry.error());
    if (!*entry) return reader.report();
  }
}

std::string why_nothing(const WorkloadReport& report) {
  if (!report.first_wrong.empty()) return report.first_wrong.front();
  const auto most = std::max_element(report.skipped.begin(), report.skipped.end());
  if (*most > 0) {
    const auto kind = static_cast<Skipped>(most - report.skipped.begin());
    return fmt::format("it has {} {}", *most, skipped_text(kind));
  }
  return report.cut.empty() ? "it has none" : report.cut;
}

// Reads a file for the first time.
Result<WorkloadReport> survey(const std::string& path, const sim::Scenario& scenario, JobMap& map) {
  auto file = open_workload(path);
  if (!file) return tl::unexpected(file.error());
  file->until = scenario.length;
  if (auto checked = check_fields(*file, map.options()); !checked) {
    return tl::unexpected(checked.error());
  }
  auto report = read_all(*file, map);
  if (!report) return report;
  // A trace of requests as they were issued to the device has no Q.
  if (report->requests == 0 && report->at_other_stage > 0) {
    file->stage = 'D';
    report = read_all(*file, map);
    if (!report) return report;
  }
  if (report->requests == 0) {
    return refuse(quote(path),
                  "contains no request that can be simulated: " + why_nothing(*report));
  }
  return report;
}

// The first request of all files of a format; none if each file has its own time 0.
std::optional<std::uint64_t> origin_of(const std::vector<WorkloadReport>& reports,
                                       WorkloadFormat format) {
  if (format == WorkloadFormat::kWeirTrace) return std::nullopt;
  std::uint64_t first = UINT64_MAX;
  for (const WorkloadReport& report : reports) {
    if (report.file.format == format) first = std::min(first, report.first_ticks);
  }
  return first;
}

std::string about(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

Result<std::vector<WorkloadReport>> add_workload(const WorkloadOptions& options,
                                                 sim::Scenario& scenario) {
  if (options.files.size() > WorkloadOptions::kFilesMax) {
    return refuse("workload", fmt::format("has more than {} files", WorkloadOptions::kFilesMax));
  }
  if (options.map.rules.size() > JobMap::kRulesMax) {
    return refuse("workload", fmt::format("has more than {} rules", JobMap::kRulesMax));
  }
  if (options.map.by_rules_only && options.map.rules.empty()) {
    return refuse("workload", "has no rules, and jobs are to be named by rules only");
  }
  JobMap map(options.map, scenario.jobs);
  std::vector<WorkloadReport> reports;
  for (const std::string& path : options.files) {
    auto report = survey(path, scenario, map);
    if (!report) return tl::unexpected(report.error());
    reports.push_back(std::move(*report));
  }
  map.seal();
  scenario.jobs = map.jobs();
  const auto shared = std::make_shared<const JobMap>(std::move(map));
  for (WorkloadReport& report : reports) {
    report.file.origin = origin_of(reports, report.file.format).value_or(report.first_ticks);
    const std::uint64_t shift = report.first_ticks - *report.file.origin;
    report.length += Nanoseconds{static_cast<std::int64_t>(shift * tick_ns(report.file.format))};
    sim::StreamSpec stream;
    stream.open = [file = report.file, shared]() -> Result<std::unique_ptr<sim::Arrivals>> {
      return std::unique_ptr<sim::Arrivals>(std::make_unique<FileArrivals>(file, *shared));
    };
    stream.window =
        options.depth.value_or(report.is_timed ? sim::kWindowMax : WorkloadOptions::kUntimedDepth);
    stream.largest = Bytes{report.largest};
    scenario.streams.push_back(std::move(stream));
  }
  return reports;
}

sim::Scenario scenario_for(const std::vector<WorkloadReport>& reports) {
  Nanoseconds length{0};
  double requests = 0;
  for (const WorkloadReport& report : reports) {
    length = std::max(length, report.length);
    requests += static_cast<double>(report.requests);
  }
  std::uint64_t capacity = kDefaultCapacity;
  if (length >= std::chrono::milliseconds{1}) {
    const double rate = requests / (static_cast<double>(length.count()) / 1e9) / kDefaultUse;
    // Two digits are enough for an assumption.
    const double unit = std::pow(10, std::floor(std::log10(std::max(rate, 1.0))) - 1);
    capacity = static_cast<std::uint64_t>(std::max(std::ceil(rate / unit) * unit, 1.0));
  }
  sim::Scenario scenario;
  scenario.name = std::filesystem::path(reports.front().file.path).stem().string();
  scenario.title = "Recorded workload on a device that it uses for 80 % of the time";
  sim::TargetSpec& target = scenario.targets.front();
  target.capacity = Rate::per_second(capacity);
  target.store.service.kind = sim::ServiceTime::Kind::kUniform;
  target.store.service.base = Nanoseconds{
      static_cast<std::int64_t>(std::uint64_t{1'000'000'000} * target.store.slots / capacity)};
  return scenario;
}

std::vector<std::string> workload_notes(const WorkloadReport& report) {
  std::vector<std::string> notes;
  std::vector<std::string> skipped;
  for (std::size_t i = 0; i < kSkippedKinds; ++i) {
    if (report.skipped[i] == 0) continue;
    skipped.push_back(
        fmt::format("{} {}", report.skipped[i], skipped_text(static_cast<Skipped>(i))));
  }
  if (!skipped.empty()) notes.push_back(fmt::format("not simulated: {}", fmt::join(skipped, ", ")));
  if (report.wrong > 0) {
    notes.push_back(fmt::format("not understood: {}; {}", about(report.wrong, "line", "lines"),
                                fmt::join(report.first_wrong, "; ")));
  }
  if (report.sorted > report.moved) {
    notes.push_back(
        fmt::format("{} out of order and sorted",
                    about(report.sorted - report.moved, "request was", "requests were")));
  }
  if (report.moved > 0) {
    notes.push_back(fmt::format("time goes back: {} moved by up to {} to keep the order",
                                about(report.moved, "request was", "requests were"),
                                print_duration(report.moved_longest)));
  }
  if (!report.cut.empty()) notes.push_back("cut: " + report.cut);
  if (report.appended > 0) {
    notes.push_back(fmt::format("{} of fio follow the first one, each after the one before",
                                about(report.appended, "run", "runs")));
  }
  if (!report.ignored_columns.empty()) {
    notes.push_back(fmt::format("ignored columns: {}", fmt::join(report.ignored_columns, ", ")));
  }
  if (!report.is_timed) notes.push_back("no times: sent as fast as outstanding requests allow");
  if (report.file.stage != 'Q') notes.push_back("no events Q: arrivals are the events D");
  if (report.devices.size() > 1) {
    notes.push_back(
        fmt::format("several devices: {}; if one is part of another, its requests count "
                    "twice unless a rule leaves one out",
                    fmt::join(report.devices, " and ")));
  }
  if (report.in_others > 0) {
    notes.push_back(fmt::format("more than {} jobs: {} in job {}", sim::kJobsMax - 1,
                                about(report.in_others, "request is", "requests are"),
                                JobMap::kOthers));
  }
  if (report.is_stopped) notes.push_back("read until the end of the run only");
  return notes;
}

std::string workload_text(const std::vector<WorkloadReport>& reports) {
  std::string text;
  for (const WorkloadReport& report : reports) {
    text += fmt::format(
        "{}: {}, {}, {:.0f} % reads, {:.1f} MiB, {:.3f} s\n", report.file.path,
        format_name(report.file.format), about(report.requests, "request", "requests"),
        100.0 * static_cast<double>(report.reads) / static_cast<double>(report.requests),
        static_cast<double>(report.bytes) / (1024 * 1024),
        static_cast<double>(report.length.count()) / 1e9);
    for (const std::string& note : workload_notes(report)) text += "  " + note + "\n";
  }
  return text;
}

std::string workload_digest(const std::vector<WorkloadReport>& reports) {
  std::string digest;
  for (const WorkloadReport& report : reports) {
    digest += fmt::format("{:016x}-{}-", report.digest, report.requests);
  }
  return digest;
}

}  // namespace weir::study
