// SPDX-License-Identifier: Apache-2.0
#include "weir/study/scenario_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/toml_table.h"
#include "weir/host/files.h"
#include "weir/study/embedded.h"
#include "weir/study/lock_scenario_file.h"
#include "weir/study/trace_text.h"
#include "weir/target/tree_levels.h"

namespace weir::study {
namespace {

constexpr std::string_view kEnding = ".toml";

constexpr Nanoseconds kLongest = Nanoseconds::max();
constexpr Nanoseconds kReleaseMin = std::chrono::microseconds{1};
constexpr Bytes kLargest{std::uint64_t{1} << 40};  // a larger request is an error

Nanoseconds time_from_0(const config::TomlTable& table, std::string_view key, Nanoseconds without) {
  return table.time(key, without, Nanoseconds{0}, kLongest);
}

// "12.5%" as 125
std::uint32_t permille(const config::TomlTable& table, std::string_view key,
                       std::uint32_t without) {
  if (!table.has(key)) return without;
  const std::string given = table.text(key, "0%");
  double percent = 0;
  const char* const end = given.data() + given.size();
  const auto read = std::from_chars(given.data(), end, percent);
  if (read.ec == std::errc() && read.ptr + 1 == end && *read.ptr == '%' && percent >= 0 &&
      percent <= 100) {
    return static_cast<std::uint32_t>(std::lround(percent * 10));
  }
  table.refuse(key, "is not a percentage", "write for example '10%'");
  return without;
}

// ---- the parts ----

void read_disturbance(const config::TomlTable& table, sim::StoreSpec& store) {
  sim::Disturbance disturbance;
  disturbance.at = time_from_0(table, "at", Nanoseconds{0});
  disturbance.length = time_from_0(table, "for", Nanoseconds{0});
  if (disturbance.length == Nanoseconds{0}) table.refuse("for", "must be above 0");
  const bool stalls = table.flag("stall", false);
  const int given =
      (stalls ? 1 : 0) + (table.has("factor") ? 1 : 0) + (table.has("channels") ? 1 : 0);
  if (given != 1) {
    table.refuse("factor", "or stall = true or channels: give exactly one of them");
  }
  if (table.has("channels")) {
    disturbance.percent = sim::Disturbance::kChannels;
    disturbance.channels = table.small("channels", 1, 1, sim::kWindowMax);
  }
  if (const auto factor = table.get("factor"); factor && !stalls) {
    const auto* whole = factor->as<std::int64_t>();
    const auto* part = factor->as<double>();
    const double times = whole != nullptr  ? static_cast<double>(*whole)
                         : part != nullptr ? *part
                                           : 0;
    if (!(times >= 0.01 && times <= 10'000)) {
      table.refuse("factor", "must be a number from 0.01 to 10000");
    }
    disturbance.percent =
        static_cast<std::uint32_t>(std::lround(std::clamp(times, 0.01, 1e4) * 100));
  }
  store.disturbances.push_back(disturbance);
}

// Cost units per second: 1000, or '256MiB/s' if they are bytes. REQUIRES: it is given.
Rate read_rate(const config::TomlTable& table, std::string_view key, Cost cost) {
  const Rate without = Rate::per_second(1000);
  if (table.get(key)->as<std::int64_t>() != nullptr) {
    constexpr std::uint64_t kMost = 1'000'000'000'000;
    return Rate::per_second(table.number(key, 1000, 1, kMost));
  }
  const std::string text = table.text(key, "1000");
  const auto rate = cost.kind() == Cost::Kind::kBytes ? parse_bandwidth(text) : parse_rate(text);
  if (rate) return *rate;
  table.refuse(key, "is not a rate above 0", "expected 1000, or '256MiB/s' with cost = 'bytes'");
  return without;
}

Rate read_capacity(const config::TomlTable& table, Cost cost) {
  if (table.has("capacity")) return read_rate(table, "capacity", cost);
  table.miss("capacity", "give what the target serves per second, such as 1000");
  return Rate::per_second(1000);
}

void read_service(const config::TomlTable& table, sim::ServiceTime& service) {
  using Kind = sim::ServiceTime::Kind;
  service.base = time_from_0(table, "service", std::chrono::milliseconds{16});
  service.per_mib = time_from_0(table, "per_mib", Nanoseconds{0});
  service.spread_permille = permille(table, "spread", 0);
  service.kind = service.spread_permille > 0 ? Kind::kUniform : Kind::kConstant;
  if (!table.has("distribution")) return;
  const std::string name = table.text("distribution", "constant");
  if (name == "exponential") {
    service.kind = Kind::kExponential;
  } else if (name == "uniform") {
    service.kind = Kind::kUniform;
  } else if (name == "constant") {
    service.kind = Kind::kConstant;
  } else {
    table.refuse("distribution", "is not valid", "expected constant, uniform or exponential");
  }
}

void read_gate(const config::TomlTable& table, sim::Gate& gate) {
  gate.count = table.small("release", gate.count, 1, sim::kWindowMax);
  gate.every = table.time("release_every", gate.every, kReleaseMin, kLongest);
  if (table.has("release_every") && !table.has("release")) {
    table.refuse("release_every", "has no effect without release");
  }
}

void read_slots(const config::TomlTable& table, sim::TargetSpec& target) {
  const auto slots = table.get("slots");
  const auto* word = slots ? slots->as<std::string>() : nullptr;
  target.auto_slots = word != nullptr && *word == "auto";
  if (!target.auto_slots) target.store.slots = table.small("slots", 16, 1, sim::kWindowMax);
  if (table.has("latency_target")) {
    target.latency_target =
        table.time("latency_target", Nanoseconds{0}, std::chrono::microseconds{1}, kLongest);
  }
}

// The device: which requests wait inside it, and how.
void read_device(const config::TomlTable& table, sim::StoreSpec& store) {
  store.channels = table.small("channels", 0, 0, sim::kWindowMax);
  store.seek = time_from_0(table, "seek", Nanoseconds{0});
  store.seek_depth = table.small("seek_depth", store.seek_depth, 1, sim::kWindowMax);
  store.stall_every = time_from_0(table, "stall_every", Nanoseconds{0});
  store.stall_for = time_from_0(table, "stall_for", Nanoseconds{0});
  store.clump = table.small("clump", 0, 0, sim::kWindowMax);
  store.clump_every = time_from_0(table, "clump_every", Nanoseconds{0});
}

void read_tree(const config::TomlTable& table, sim::TargetSpec& target) {
  if (!table.has("tree")) {
    if (table.has("weights")) table.refuse("weights", "needs tree");
    return;
  }
  std::string text;
  for (const auto& item : table.texts("tree")) text += (text.empty() ? "" : ",") + item.text;
  const auto levels = parse_tree_levels(text);
  if (!levels) {
    table.refuse("tree", levels.error().what, levels.error().hint);
    return;
  }
  target.tree = *levels;
  const auto weights = table.get("weights");
  if (!weights) return;
  if (!weights->is_table()) {
    table.refuse("weights", "must be a table such as { '1' = 2, '1/7' = 3 }");
    return;
  }
  for (const config::TomlMember& member : weights->members()) {
    const auto* weight = member.value.as<std::int64_t>();
    if (weight == nullptr || *weight < 1) {
      table.refuse("weights", fmt::format("of {} is not a number from 1", quote(member.key.name)));
    } else {
      target.weights[member.key.name] = static_cast<std::uint64_t>(*weight);
    }
  }
}

void read_target(const config::TomlTable& table, sim::Scenario& scenario) {
  sim::TargetSpec target;
  target.name = table.text("name", scenario.targets.empty()
                                       ? "target"
                                       : fmt::format("target{}", scenario.targets.size() + 1));
  target.cost = table.cost("cost", Cost::op());
  target.capacity = read_capacity(table, target.cost);
  target.estimate = table.flag("estimate", false);
  read_slots(table, target);
  read_device(table, target.store);
  read_service(table, target.store.service);
  read_gate(table, target.store.gate);
  table.each("disturbance", [&](const config::TomlValue& one) {
    read_disturbance(config::TomlTable(one, "disturbance", table.mistakes(),
                                       {"at", "for", "factor", "stall", "channels"}),
                     target.store);
  });
  read_tree(table, target);
  std::stable_sort(target.store.disturbances.begin(), target.store.disturbances.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  scenario.targets.push_back(std::move(target));
}

void read_sizes(const config::TomlTable& table, sim::ProcessSpec& process) {
  if (table.has("size")) process.sizes = {{table.size("size", Bytes{4096}, Bytes{1}, kLargest), 1}};
  if (!table.has("sizes")) return;
  if (table.has("size")) table.refuse("sizes", "and size cannot both be given");
  process.sizes.clear();
  table.each("sizes", [&](const config::TomlValue& one) {
    config::TomlTable item(one, "sizes", table.mistakes(), {"size", "weight"});
    process.sizes.push_back({item.size("size", Bytes{4096}, Bytes{1}, kLargest),
                             item.small("weight", 1, 1, 1'000'000)});
  });
}

void read_kind(const config::TomlTable& table, sim::ProcessSpec& process) {
  using Kind = sim::ProcessSpec::Kind;
  const std::string kind = table.text("kind", "continuous");
  constexpr std::uint64_t kMost = 1'000'000'000'000;
  if (kind == "burst") {
    process.kind = Kind::kBurst;
  } else if (kind == "think") {
    process.kind = Kind::kThink;
  } else if (kind != "continuous") {
    table.refuse("kind", "is not valid", "expected continuous, burst or think");
  }
  process.requests = table.number("requests", sim::ProcessSpec::kEndless, 1, kMost);
  process.requests_min = table.number("requests_min", 1, 1, kMost);
  process.every = time_from_0(table, "every", Nanoseconds{0});
  process.think = time_from_0(table, "think", Nanoseconds{0});
  const std::pair<std::string_view, Kind> belongs[] = {
      {"every", Kind::kBurst}, {"think", Kind::kThink}, {"requests_min", Kind::kThink}};
  for (const auto& [key, to] : belongs) {
    if (table.has(key) && process.kind != to) {
      table.refuse(key, fmt::format("has no effect in a {} process", kind));
    }
  }
}

void read_process(const config::TomlTable& table, const sim::Scenario& scenario, sim::JobSpec& job,
                  std::uint32_t reads_percent) {
  sim::ProcessSpec process;
  read_kind(table, process);
  process.count = table.small("count", 1, 1, sim::kProcessesMax);
  process.window = table.small("window", 8, 1, sim::kWindowMax);
  process.start = time_from_0(table, "start", Nanoseconds{0});
  process.stagger = time_from_0(table, "stagger", Nanoseconds{0});
  process.reads_percent = permille(table, "reads", reads_percent * 10) / 10;
  read_sizes(table, process);
  if (table.has("target")) {
    const std::string name = table.text("target", "");
    process.target.reset();
    for (std::size_t i = 0; i < scenario.targets.size(); ++i) {
      if (scenario.targets[i].name == name) process.target = i;
    }
    if (!process.target && name != "all") {
      table.refuse("target", fmt::format("{} does not exist", quote(name)),
                   "expected the name of a target, or all");
    }
  }
  job.processes.push_back(std::move(process));
}

void read_job(const config::TomlTable& table, sim::Scenario& scenario) {
  sim::JobSpec job;
  job.name = table.text("name", "");
  if (job.name.empty()) table.miss("name");
  job.group = job.name;
  job.nodes = table.number("nodes", 1, 1, sim::kNodesMax);
  if (table.has("reserve")) {
    const Cost cost = scenario.targets.empty() ? Cost::op() : scenario.targets.front().cost;
    job.reserve = read_rate(table, "reserve", cost);
  }
  const std::uint32_t reads_percent = permille(table, "reads", 1000) / 10;
  table.each("process", [&](const config::TomlValue& one) {
    read_process(
        config::TomlTable(one, fmt::format("process of {}", quote(job.name)), table.mistakes(),
                          {"kind", "count", "window", "start", "stagger", "requests",
                           "requests_min", "every", "think", "size", "sizes", "reads", "target"}),
        scenario, job, reads_percent);
  });
  const std::uint32_t count = table.small("count", 1, 1, sim::kJobsMax);
  job.project = table.small("project", job.project, 0, kUnknownId - 1);
  job.user = table.small("user", job.user, 0, kUnknownId - 1);
  const std::uint32_t users = table.small("users", 1, 1, count);
  if (table.has("users") && !table.has("user")) table.refuse("users", "needs user, the first one");
  if (count % users != 0) table.refuse("users", fmt::format("must divide count, {}", count));
  const std::uint64_t zipf = table.number("zipf", 0, 1, sim::kNodesMax);
  if (zipf > 0 && table.has("nodes")) table.refuse("zipf", "and nodes cannot both be given");
  if (zipf > 0 && count == 1) table.refuse("zipf", "has no effect without count");
  if (count == 1) {
    scenario.jobs.push_back(std::move(job));
    return;
  }
  for (std::uint32_t i = 1; i <= count; ++i) {
    sim::JobSpec one = job;
    one.name = fmt::format("{}{}", job.group, i);
    if (zipf > 0) one.nodes = std::max<std::uint64_t>(zipf / i, 1);
    if (users > 1) one.user += (i - 1) / (count / users);
    scenario.jobs.push_back(std::move(one));
  }
}

void read_faults(const config::TomlTable& table, sim::FaultSpec& faults) {
  faults.late_permille = permille(table, "late", 0);
  faults.late_by = time_from_0(table, "late_by", Nanoseconds{0});
  faults.lost_permille = permille(table, "lost", 0);
  faults.recover = time_from_0(table, "recover", faults.recover);
  table.each("step", [&](const config::TomlValue& one) {
    config::TomlTable step(one, "step", table.mistakes(), {"at", "by"});
    faults.steps.push_back({time_from_0(step, "at", Nanoseconds{0}),
                            step.time("by", Nanoseconds{0}, -kLongest, kLongest)});
  });
  std::stable_sort(faults.steps.begin(), faults.steps.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
}

void read_lustre(const config::TomlTable& table, sim::Scenario& scenario) {
  sim::LustreSpec lustre;
  lustre.cpts = table.small("cpts", lustre.cpts, 1, sim::kCptsMax);
  lustre.late_timers = table.flag("late_timers", lustre.late_timers);
  lustre.vanish_permille = permille(table, "vanish", lustre.vanish_permille);
  lustre.vanish_for = time_from_0(table, "vanish_for", lustre.vanish_for);
  lustre.thin_percent = table.small("thin_percent", lustre.thin_percent, 1, 10'000);
  scenario.lustre = lustre;
}

void read_periods(const config::TomlTable& table, sim::Scenario& scenario) {
  const auto node = table.get("periods");
  if (!node) return;
  const auto periods = node->items();
  if (!periods || periods->empty()) {
    table.refuse("periods", "must be an array of times such as ['10ms', '100ms']");
    return;
  }
  for (const config::TomlValue& item : *periods) {
    const auto* text = item.as<std::string>();
    const auto period = parse_duration(text != nullptr ? *text : "");
    if (!period) {
      table.refuse("periods", "contains an invalid time", "expected times such as '100ms'");
      return;
    }
    scenario.periods.push_back(*period);
  }
}

Result<void> read_trace(const config::TomlTable& table, const std::string& folder,
                        sim::Scenario& scenario) {
  if (!table.has("trace")) return {};
  std::filesystem::path path = table.text("trace", "");
  if (path.is_relative()) path = std::filesystem::path(folder) / path;
  const auto text = host::read_file(path.string());
  if (!text) return tl::unexpected(text.error());
  return add_trace(*text, path.string(), scenario);
}

void read_texts(const config::TomlTable& table, std::string_view key,
                std::vector<std::string>& texts) {
  const auto node = table.get(key);
  if (!node) return;
  if (const auto* one = node->as<std::string>()) {
    texts.push_back(*one);
    return;
  }
  const auto items = node->items();
  for (const config::TomlValue& item : items.value_or(std::vector<config::TomlValue>{})) {
    if (const auto* text = item.as<std::string>()) texts.push_back(*text);
  }
  if (!items || items->empty() || texts.size() != items->size()) {
    table.refuse(key, "must be a text or an array of texts");
  }
}

void read_by(const config::TomlTable& table, JobMap::Options& map) {
  if (!table.has("by")) return;
  const std::string by = table.text("by", "");
  map.by_rules_only = by == kByRules;
  map.by = field_by(by);
  if (!map.by && !map.by_rules_only) {
    table.refuse("by", "is not a field",
                 "expected file, comm, pid, dev, host, volume, job, uid, "
                 "client, or rules");
  }
}

void read_workload(const config::TomlTable& table, const std::string& folder,
                   WorkloadOptions& workload) {
  read_texts(table, "files", workload.files);
  for (std::string& file : workload.files) {
    if (std::filesystem::path(file).is_relative()) {
      file = (std::filesystem::path(folder) / file).string();
    }
  }
  std::vector<std::string> maps;
  read_texts(table, "map", maps);
  for (const std::string& text : maps) {
    auto rule = JobRule::parse(text);
    if (rule) {
      workload.map.rules.push_back(std::move(*rule));
    } else {
      table.refuse("map", rule.error().where + ": " + rule.error().what, rule.error().hint);
    }
  }
  read_by(table, workload.map);
  if (table.has("depth")) workload.depth = table.small("depth", 1, 1, sim::kWindowMax);
}

// Options that were given beside the scenario come first.
WorkloadOptions merged(const WorkloadOptions& given, WorkloadOptions own) {
  if (!given.files.empty()) own.files = given.files;
  own.map.rules.insert(own.map.rules.begin(), given.map.rules.begin(), given.map.rules.end());
  if (given.map.by || given.map.by_rules_only) {
    own.map.by = given.map.by;
    own.map.by_rules_only = given.map.by_rules_only;
  }
  if (given.depth) own.depth = given.depth;
  return own;
}

void read_scenario(const config::TomlTable& table, sim::Scenario& scenario) {
  config::TomlMistakes& mistakes = table.mistakes();
  scenario.title = table.text("title", "");
  if (table.has("length")) {
    scenario.length = time_from_0(table, "length", Nanoseconds{0});
    if (*scenario.length == Nanoseconds{0}) table.refuse("length", "must be above 0");
  }
  read_periods(table, scenario);
  scenario.targets.clear();
  table.each("target", [&](const config::TomlValue& one) {
    read_target(config::TomlTable(one, "target", mistakes,
                                  {"name",         "capacity",       "estimate",      "cost",
                                   "slots",        "latency_target", "channels",      "seek",
                                   "seek_depth",   "stall_every",    "stall_for",     "clump",
                                   "clump_every",  "service",        "per_mib",       "spread",
                                   "distribution", "release",        "release_every", "disturbance",
                                   "tree",         "weights"}),
                scenario);
  });
  if (scenario.targets.empty()) table.miss("target", "add a [target]");
  table.each("job", [&](const config::TomlValue& one) {
    read_job(config::TomlTable(one, "job", mistakes,
                               {"name", "count", "nodes", "reserve", "zipf", "reads", "process",
                                "project", "user", "users"}),
             scenario);
  });
  table.each("faults", [&](const config::TomlValue& one) {
    read_faults(
        config::TomlTable(one, "faults", mistakes, {"late", "late_by", "lost", "recover", "step"}),
        scenario.faults);
  });
  table.each("lustre", [&](const config::TomlValue& one) {
    read_lustre(config::TomlTable(one, "lustre", mistakes,
                                  {"cpts", "late_timers", "vanish", "vanish_for", "thin_percent"}),
                scenario);
  });
}

}  // namespace

namespace {

Result<LoadedScenario> parse(std::string_view text, const std::string& where,
                             const std::string& folder, const ScenarioInput& input) {
  const auto document = config::parse_toml(text, where);
  if (!document) return tl::unexpected(document.error());
  config::TomlMistakes mistakes(where);
  LoadedScenario loaded;
  sim::Scenario& scenario = loaded.scenario;
  config::TomlTable table(
      *document, "scenario", mistakes,
      {"title", "length", "periods", "target", "job", "faults", "trace", "lustre", "workload"});
  read_scenario(table, scenario);
  WorkloadOptions workload;
  table.each("workload", [&](const config::TomlValue& one) {
    read_workload(config::TomlTable(one, "workload", mistakes, {"files", "map", "by", "depth"}),
                  folder, workload);
  });
  if (!mistakes.empty()) return tl::unexpected(mistakes.in_order().front());
  if (auto read = read_trace(table, folder, scenario); !read) return tl::unexpected(read.error());
  if (input.length) scenario.length = input.length;
  workload = merged(input.workload, std::move(workload));
  if (!workload.empty()) {
    auto added = add_workload(workload, scenario);
    if (!added) return tl::unexpected(added.error());
    loaded.workload = std::move(*added);
  }
  if (auto checked = check(scenario); !checked) {
    checked.error().where = where + ": " + checked.error().where;
    return tl::unexpected(checked.error());
  }
  return loaded;
}

// A workload without a scenario.
Result<LoadedScenario> make_scenario(const ScenarioInput& input) {
  sim::Scenario read;
  read.length = input.length;
  auto added = add_workload(input.workload, read);
  if (!added) return tl::unexpected(added.error());
  LoadedScenario loaded{scenario_for(*added), std::move(*added)};
  loaded.scenario.length = input.length;
  loaded.scenario.jobs = std::move(read.jobs);
  loaded.scenario.streams = std::move(read.streams);
  if (auto checked = check(loaded.scenario); !checked) return tl::unexpected(checked.error());
  return loaded;
}

}  // namespace

Result<sim::Scenario> parse_scenario(std::string_view text, const std::string& where,
                                     const std::string& folder) {
  auto loaded = parse(text, where, folder, {});
  if (!loaded) return tl::unexpected(loaded.error());
  return std::move(loaded->scenario);
}

Result<ScenarioText> find_scenario(const std::string& file_or_name) {
  const bool is_file =
      file_or_name.find('/') != std::string::npos || file_or_name.ends_with(kEnding);
  if (is_file) {
    auto text = host::read_file(file_or_name);
    if (!text) return tl::unexpected(text.error());
    const std::filesystem::path path = file_or_name;
    return ScenarioText{path.stem().string(), std::move(*text), file_or_name,
                        path.parent_path().string()};
  }
  const auto text = find_embedded(embedded_files(), file_or_name + std::string(kEnding));
  if (text) return ScenarioText{file_or_name, std::string(*text), file_or_name, ""};
  std::vector<std::string_view> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name.ends_with(kEnding)) {
      names.push_back(file.name.substr(0, file.name.size() - kEnding.size()));
    }
  }
  const auto meant = nearest(file_or_name, names);
  return fail(std::errc::no_such_file_or_directory, quote(file_or_name), "no such scenario",
              meant
                  ? fmt::format("did you mean {}?", *meant)
                  : "weir sim --list lists them; the name of a file contains a / or ends in .toml");
}

Result<LoadedScenario> load_scenario(const std::string& file_or_name, const ScenarioInput& input) {
  if (file_or_name.empty()) return make_scenario(input);
  const auto found = find_scenario(file_or_name);
  if (!found) return tl::unexpected(found.error());
  auto loaded = parse(found->text, found->where, found->folder, input);
  if (loaded) loaded->scenario.name = found->name;
  return loaded;
}

Result<sim::Scenario> load_scenario(const std::string& file_or_name) {
  auto loaded = load_scenario(file_or_name, ScenarioInput{});
  if (!loaded) return tl::unexpected(loaded.error());
  return std::move(loaded->scenario);
}

namespace {

std::string title_of(const std::string& name) {
  const auto found = find_scenario(name);
  if (found && is_lock_scenario(found->text)) {
    const auto scenario = parse_lock_scenario(found->text, name);
    return scenario ? scenario->title : scenario.error().message();
  }
  const auto scenario = load_scenario(name);
  return scenario ? scenario->title : scenario.error().message();
}

}  // namespace

std::vector<NamedScenario> named_scenarios() {
  std::vector<NamedScenario> named;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.ends_with(kEnding)) continue;
    const std::string name(file.name.substr(0, file.name.size() - kEnding.size()));
    named.push_back({name, title_of(name)});
  }
  return named;
}

}  // namespace weir::study
