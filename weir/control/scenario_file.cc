// SPDX-License-Identifier: Apache-2.0
#include "weir/control/scenario_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/control/embedded.h"
#include "weir/control/files.h"
#include "weir/control/nearest.h"
#include "weir/control/trace_text.h"

namespace weir::control {
namespace {

constexpr std::string_view kEnding = ".toml";

// The reader goes on after a mistake; only the first one is told.
class Mistakes {
 public:
  explicit Mistakes(std::string file) : file_(std::move(file)) {}

  void add(const toml::source_region& at, std::string_view what, std::string_view hint = {}) {
    if (first_) return;
    first_ = Error{std::errc::invalid_argument, fmt::format("{}:{}", file_, at.begin.line),
                   std::string(what), std::string(hint)};
  }
  const std::optional<Error>& first() const { return first_; }

 private:
  std::string file_;
  std::optional<Error> first_;
};

// A table whose keys are known. Asking for one gives its value, or what it is without being given.
class Table {
 public:
  Table(const toml::table& table, std::string name, Mistakes& mistakes,
        std::initializer_list<std::string_view> keys)
      : table_(table), name_(std::move(name)), mistakes_(mistakes), keys_(keys) {
    for (const auto& [key, value] : table_) {
      if (std::find(keys_.begin(), keys_.end(), key.str()) != keys_.end()) continue;
      const auto meant = nearest(key.str(), keys_);
      mistakes_.add(key.source(), fmt::format("{}: no key {}", name_, quote(key.str())),
                    meant ? fmt::format("did you mean {}?", *meant)
                          : fmt::format("there are: {}", fmt::join(keys_, ", ")));
    }
  }

  const std::string& name() const { return name_; }
  Mistakes& mistakes() { return mistakes_; }
  bool has(std::string_view key) const { return table_.contains(key); }
  const toml::node* get(std::string_view key) const { return table_.get(key); }

  void refuse(std::string_view key, std::string_view what, std::string_view hint = {}) {
    const toml::node* node = get(key);
    mistakes_.add(node != nullptr ? node->source() : table_.source(),
                  fmt::format("{}: {} {}", name_, key, what), hint);
  }

  std::string text(std::string_view key, std::string without) {
    const toml::node* node = get(key);
    if (node == nullptr) return without;
    if (const auto value = node->value_exact<std::string>()) return *value;
    refuse(key, "must be a text in quotes");
    return without;
  }

  // A whole number from least to most.
  std::uint64_t number(std::string_view key, std::uint64_t without, std::uint64_t least,
                       std::uint64_t most) {
    const toml::node* node = get(key);
    if (node == nullptr) return without;
    const auto value = node->value_exact<std::int64_t>();
    if (value && *value >= 0) {
      const auto count = static_cast<std::uint64_t>(*value);
      if (count >= least && count <= most) return count;
    }
    refuse(key, fmt::format("must be a whole number from {} to {}", least, most));
    return without;
  }
  std::uint32_t small(std::string_view key, std::uint32_t without, std::uint32_t least,
                      std::uint32_t most) {
    return static_cast<std::uint32_t>(number(key, without, least, most));
  }

  bool flag(std::string_view key) {
    const toml::node* node = get(key);
    if (node == nullptr) return false;
    if (const auto value = node->value_exact<bool>()) return *value;
    refuse(key, "must be true or false");
    return false;
  }

  Nanoseconds time(std::string_view key, Nanoseconds without) {
    if (!has(key)) return without;
    std::string text = this->text(key, "0s");
    const bool back = text.starts_with('-');
    if (back) text.erase(0, 1);
    const auto value = parse_duration(text);
    if (value) return back ? -*value : *value;
    refuse(key, "is no time", "expected one such as '16ms' or '5s'");
    return without;
  }
  Nanoseconds time_from_0(std::string_view key, Nanoseconds without) {
    const Nanoseconds value = time(key, without);
    if (value >= Nanoseconds{0}) return value;
    refuse(key, "is below 0");
    return without;
  }

  Bytes size(std::string_view key, Bytes without) {
    if (!has(key)) return without;
    const auto value = parse_size(text(key, "1B"));
    if (value && *value > Bytes{0}) return *value;
    refuse(key, "is no size", "expected one such as '4KiB'");
    return without;
  }

  // "12.5%" as 125
  std::uint32_t permille(std::string_view key, std::uint32_t without) {
    if (!has(key)) return without;
    const std::string given = text(key, "0%");
    double percent = 0;
    const char* const end = given.data() + given.size();
    const auto read = std::from_chars(given.data(), end, percent);
    if (read.ec == std::errc() && read.ptr + 1 == end && *read.ptr == '%' && percent >= 0 &&
        percent <= 100) {
      return static_cast<std::uint32_t>(std::lround(percent * 10));
    }
    refuse(key, "is no percentage", "expected one such as '10%'");
    return without;
  }

  // Each table of an array of tables; a single table counts as an array of one.
  template <class Visit>
  void each(std::string_view key, Visit visit) {
    const toml::node* node = get(key);
    if (node == nullptr) return;
    if (const toml::table* one = node->as_table()) {
      visit(*one);
      return;
    }
    const toml::array* many = node->as_array();
    if (many == nullptr) {
      refuse(key, "must be a table, or an array of tables");
      return;
    }
    for (const toml::node& item : *many) {
      if (const toml::table* one = item.as_table()) {
        visit(*one);
      } else {
        mistakes_.add(item.source(), fmt::format("{}: {} must hold tables", name_, key));
      }
    }
  }

 private:
  const toml::table& table_;
  std::string name_;
  Mistakes& mistakes_;
  std::vector<std::string_view> keys_;
};

// ---- the parts ----

void read_disturbance(Table table, sim::StoreSpec& store) {
  sim::Disturbance disturbance;
  disturbance.at = table.time_from_0("at", Nanoseconds{0});
  disturbance.length = table.time_from_0("for", Nanoseconds{0});
  if (disturbance.length == Nanoseconds{0}) table.refuse("for", "must be above 0");
  const bool stalls = table.flag("stall");
  if (stalls == table.has("factor")) {
    table.refuse("factor", "or stall = true: exactly one of them must be given");
  }
  if (const toml::node* factor = table.get("factor"); factor != nullptr && !stalls) {
    const double times = factor->value<double>().value_or(0);
    if (!(times >= 0.01 && times <= 10'000)) {
      table.refuse("factor", "must be a number from 0.01 to 10000");
    }
    disturbance.percent =
        static_cast<std::uint32_t>(std::lround(std::clamp(times, 0.01, 1e4) * 100));
  }
  store.disturbances.push_back(disturbance);
}

Cost read_cost(Table& table) {
  const std::string given = table.text("cost", "op");
  if (given == "op") return Cost::op();
  if (given == "bytes") return Cost::bytes();
  // affine:A:B
  constexpr std::string_view kAffine = "affine:";
  std::uint32_t base = 0;
  std::uint32_t per_kib = 0;
  const char* const end = given.data() + given.size();
  if (given.starts_with(kAffine)) {
    const auto first = std::from_chars(given.data() + kAffine.size(), end, base);
    if (first.ec == std::errc() && first.ptr != end && *first.ptr == ':') {
      const auto second = std::from_chars(first.ptr + 1, end, per_kib);
      if (second.ec == std::errc() && second.ptr == end) return Cost::affine(base, per_kib);
    }
  }
  table.refuse("cost", "is none", "expected op, bytes or affine:A:B");
  return Cost::op();
}

Rate read_capacity(Table& table, Cost cost) {
  const Rate without = Rate::per_second(1000);
  const toml::node* node = table.get("capacity");
  if (node == nullptr) {
    table.refuse("capacity", "is missing", "give what the target serves a second, such as 1000");
    return without;
  }
  if (node->is_integer()) {
    constexpr std::uint64_t kMost = 1'000'000'000'000;
    return Rate::per_second(table.number("capacity", 1000, 1, kMost));
  }
  const std::string text = table.text("capacity", "1000");
  const auto rate = cost.kind() == Cost::Kind::kBytes ? parse_bandwidth(text) : parse_rate(text);
  if (rate) return *rate;
  table.refuse("capacity", "is no rate above 0",
               "expected 1000, or '256MiB/s' with cost = 'bytes'");
  return without;
}

void read_service(Table& table, sim::ServiceTime& service) {
  using Kind = sim::ServiceTime::Kind;
  service.base = table.time_from_0("service", std::chrono::milliseconds{16});
  service.per_mib = table.time_from_0("per_mib", Nanoseconds{0});
  service.spread_permille = table.permille("spread", 0);
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
    table.refuse("distribution", "is none", "expected constant, uniform or exponential");
  }
}

void read_target(Table table, sim::Scenario& scenario) {
  sim::TargetSpec target;
  target.name = table.text("name", scenario.targets.empty()
                                       ? "target"
                                       : fmt::format("target{}", scenario.targets.size() + 1));
  target.cost = read_cost(table);
  target.capacity = read_capacity(table, target.cost);
  target.estimate = table.flag("estimate");
  target.store.slots = table.small("slots", 16, 1, sim::kWindowMax);
  read_service(table, target.store.service);
  table.each("disturbance", [&](const toml::table& one) {
    read_disturbance(Table(one, "disturbance", table.mistakes(), {"at", "for", "factor", "stall"}),
                     target.store);
  });
  std::stable_sort(target.store.disturbances.begin(), target.store.disturbances.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  scenario.targets.push_back(std::move(target));
}

void read_sizes(Table& table, sim::ProcessSpec& process) {
  if (table.has("size")) process.sizes = {{table.size("size", Bytes{4096}), 1}};
  if (!table.has("sizes")) return;
  if (table.has("size")) table.refuse("sizes", "and size are both given");
  process.sizes.clear();
  table.each("sizes", [&](const toml::table& one) {
    Table item(one, "sizes", table.mistakes(), {"size", "weight"});
    process.sizes.push_back(
        {item.size("size", Bytes{4096}), item.small("weight", 1, 1, 1'000'000)});
  });
}

void read_kind(Table& table, sim::ProcessSpec& process) {
  using Kind = sim::ProcessSpec::Kind;
  const std::string kind = table.text("kind", "continuous");
  constexpr std::uint64_t kMost = 1'000'000'000'000;
  if (kind == "burst") {
    process.kind = Kind::kBurst;
  } else if (kind == "think") {
    process.kind = Kind::kThink;
  } else if (kind != "continuous") {
    table.refuse("kind", "is none", "expected continuous, burst or think");
  }
  process.requests = table.number("requests", sim::ProcessSpec::kEndless, 1, kMost);
  process.requests_min = table.number("requests_min", 1, 1, kMost);
  process.every = table.time_from_0("every", Nanoseconds{0});
  process.think = table.time_from_0("think", Nanoseconds{0});
  const std::pair<std::string_view, Kind> belongs[] = {
      {"every", Kind::kBurst}, {"think", Kind::kThink}, {"requests_min", Kind::kThink}};
  for (const auto& [key, to] : belongs) {
    if (table.has(key) && process.kind != to) {
      table.refuse(key, fmt::format("has no meaning in a {} process", kind));
    }
  }
}

void read_process(Table table, const sim::Scenario& scenario, sim::JobSpec& job,
                  std::uint32_t reads_percent) {
  sim::ProcessSpec process;
  read_kind(table, process);
  process.count = table.small("count", 1, 1, sim::kProcessesMax);
  process.window = table.small("window", 8, 1, sim::kWindowMax);
  process.start = table.time_from_0("start", Nanoseconds{0});
  process.reads_percent = table.permille("reads", reads_percent * 10) / 10;
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

void read_job(Table table, sim::Scenario& scenario) {
  sim::JobSpec job;
  job.name = table.text("name", "");
  if (job.name.empty()) table.refuse("name", "is missing");
  job.group = job.name;
  job.nodes = table.number("nodes", 1, 1, sim::kNodesMax);
  const std::uint32_t reads_percent = table.permille("reads", 1000) / 10;
  table.each("process", [&](const toml::table& one) {
    read_process(Table(one, fmt::format("process of {}", quote(job.name)), table.mistakes(),
                       {"kind", "count", "window", "start", "requests", "requests_min", "every",
                        "think", "size", "sizes", "reads", "target"}),
                 scenario, job, reads_percent);
  });
  const std::uint32_t count = table.small("count", 1, 1, sim::kJobsMax);
  if (count == 1) {
    scenario.jobs.push_back(std::move(job));
    return;
  }
  for (std::uint32_t i = 1; i <= count; ++i) {
    sim::JobSpec one = job;
    one.name = fmt::format("{}{}", job.group, i);
    scenario.jobs.push_back(std::move(one));
  }
}

void read_faults(Table table, sim::FaultSpec& faults) {
  faults.late_permille = table.permille("late", 0);
  faults.late_by = table.time_from_0("late_by", Nanoseconds{0});
  faults.lost_permille = table.permille("lost", 0);
  faults.recover = table.time_from_0("recover", faults.recover);
  table.each("step", [&](const toml::table& one) {
    Table step(one, "step", table.mistakes(), {"at", "by"});
    faults.steps.push_back(
        {step.time_from_0("at", Nanoseconds{0}), step.time("by", Nanoseconds{0})});
  });
  std::stable_sort(faults.steps.begin(), faults.steps.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
}

void read_periods(Table& table, sim::Scenario& scenario) {
  const toml::node* node = table.get("periods");
  if (node == nullptr) return;
  const toml::array* periods = node->as_array();
  if (periods == nullptr || periods->empty()) {
    table.refuse("periods", "must be an array of times such as ['10ms', '100ms']");
    return;
  }
  for (const toml::node& item : *periods) {
    const auto text = item.value_exact<std::string>();
    const auto period = parse_duration(text.value_or(""));
    if (!text || !period) {
      table.refuse("periods", "holds what is no time", "expected times such as '100ms'");
      return;
    }
    scenario.periods.push_back(*period);
  }
}

Result<void> read_trace(Table& table, const std::string& folder, sim::Scenario& scenario) {
  if (!table.has("trace")) return {};
  std::filesystem::path path = table.text("trace", "");
  if (path.is_relative()) path = std::filesystem::path(folder) / path;
  const auto text = read_file(path.string());
  if (!text) return tl::unexpected(text.error());
  return add_trace(*text, path.string(), scenario);
}

void read_scenario(Table& table, sim::Scenario& scenario) {
  Mistakes& mistakes = table.mistakes();
  scenario.title = table.text("title", "");
  if (table.has("length")) {
    scenario.length = table.time_from_0("length", Nanoseconds{0});
    if (*scenario.length == Nanoseconds{0}) table.refuse("length", "must be above 0");
  }
  read_periods(table, scenario);
  scenario.targets.clear();
  table.each("target", [&](const toml::table& one) {
    read_target(Table(one, "target", mistakes,
                      {"name", "capacity", "estimate", "cost", "slots", "service", "per_mib",
                       "spread", "distribution", "disturbance"}),
                scenario);
  });
  if (scenario.targets.empty()) table.refuse("target", "is missing", "add a [target]");
  table.each("job", [&](const toml::table& one) {
    read_job(Table(one, "job", mistakes, {"name", "count", "nodes", "reads", "process"}), scenario);
  });
  table.each("faults", [&](const toml::table& one) {
    read_faults(Table(one, "faults", mistakes, {"late", "late_by", "lost", "recover", "step"}),
                scenario.faults);
  });
}

}  // namespace

Result<sim::Scenario> parse_scenario(std::string_view text, const std::string& where,
                                     const std::string& folder) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return fail(std::errc::invalid_argument,
                fmt::format("{}:{}", where, parsed.error().source().begin.line),
                std::string(parsed.error().description()));
  }
  Mistakes mistakes(where);
  sim::Scenario scenario;
  Table table(parsed.table(), "scenario", mistakes,
              {"title", "length", "periods", "target", "job", "faults", "trace"});
  read_scenario(table, scenario);
  if (mistakes.first()) return tl::unexpected(*mistakes.first());
  if (auto read = read_trace(table, folder, scenario); !read) return tl::unexpected(read.error());
  if (auto checked = check(scenario); !checked) {
    checked.error().where = where + ": " + checked.error().where;
    return tl::unexpected(checked.error());
  }
  return scenario;
}

Result<sim::Scenario> load_scenario(const std::string& file_or_name) {
  const bool is_file =
      file_or_name.find('/') != std::string::npos || file_or_name.ends_with(kEnding);
  if (!is_file) {
    const auto text = embedded_file(file_or_name + std::string(kEnding));
    if (!text) {
      std::vector<std::string_view> names;
      for (const EmbeddedFile& file : embedded_files()) {
        if (file.name.ends_with(kEnding)) {
          names.push_back(file.name.substr(0, file.name.size() - kEnding.size()));
        }
      }
      const auto meant = nearest(file_or_name, names);
      return fail(std::errc::no_such_file_or_directory, quote(file_or_name),
                  "no scenario of this name",
                  meant ? fmt::format("did you mean {}?", *meant)
                        : "weir sim --list names them; a file is written with a / or .toml");
    }
    auto scenario = parse_scenario(*text, file_or_name, "");
    if (scenario) scenario->name = file_or_name;
    return scenario;
  }
  const auto text = read_file(file_or_name);
  if (!text) return tl::unexpected(text.error());
  const std::filesystem::path path = file_or_name;
  auto scenario = parse_scenario(*text, file_or_name, path.parent_path().string());
  if (scenario) scenario->name = path.stem().string();
  return scenario;
}

std::vector<NamedScenario> named_scenarios() {
  std::vector<NamedScenario> named;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.ends_with(kEnding)) continue;
    const std::string name(file.name.substr(0, file.name.size() - kEnding.size()));
    const auto scenario = load_scenario(name);
    named.push_back({name, scenario ? scenario->title : scenario.error().message()});
  }
  return named;
}

}  // namespace weir::control
