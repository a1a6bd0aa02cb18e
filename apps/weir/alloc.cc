// SPDX-License-Identifier: Apache-2.0
//
// weir alloc: the allocation step of AdapTBF as a filter.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/lines.h"
#include "weir/adapt/allocator.h"
#include "weir/adapt/share_levels.h"
#include "weir/adapt/tree_allocator.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/fd.h"

namespace weir::app {
namespace {

using Json = nlohmann::json;

constexpr const char* kFooter = R"(
Input, one line per period:
  {"jobs":{"ID":{"nodes":N,"demand":N},...}}
Output, one line per period: the jobs that were active in it (demand above 0), sorted by id
  {"budget":N,"jobs":{"ID":{"initial":N,"redistributed":N,"final":N,"record":N},...}}

With --tree LEVELS, one line per period; PATH has a value for each level above the last one:
  {"jobs":{"ID":{"path":[PATH],"weight":N,"demand":N,"reserve":N},...},"weights":{"A/B":N,...}}
  {"budget":N,"nodes":{"A":{"initial":N,...},"A/B":{...},"A/B/ID":{...},...}}

Examples:
  echo '{"jobs":{"a":{"nodes":3,"demand":2},"b":{"nodes":1,"demand":20}}}' |
    weir alloc --rate 100 --period 100ms
  weir alloc --rate 20k --period 20ms --half-life 60s --floor --explain periods.jsonl

A line that cannot be read is reported on standard error as 'weir alloc: line N: ...' and skipped;
the exit status is then 65. Manual: weir-alloc(1).)";

// Enough for more than a hundred thousand jobs.
constexpr std::size_t kLineMax = std::size_t{64} << 20;
// Maximum number of jobs with records; beyond it, those of the longest inactive jobs are
// written off.
constexpr std::size_t kJobsMax = std::size_t{1} << 20;

struct AllocArguments {
  std::string file = "-";
  std::string rate;
  std::string period;
  std::optional<std::string> half_life;
  std::optional<std::string> tree;
  bool floor = false;
  bool explain = false;
};

// ---- reading a period ----

// Parses one line into demands, or an error. Stops at the first error. A JSON tree would lose keys
// that are given twice.
class PeriodReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<Allocator::Demand> demands;
  std::string mistake;

  bool null() override { return value("null"); }
  bool boolean(bool yes) override { return value(yes ? "true" : "false"); }
  bool string(string_t& text) override { return value(quote(text)); }
  bool binary(binary_t&) override { return value("binary"); }
  bool number_float(number_float_t, const string_t& text) override {
    return value(text.size() > kQuoteMax ? quote(text) : text);
  }
  bool number_integer(number_integer_t number) override {
    return number < 0 ? value(std::to_string(number)) : whole(static_cast<std::uint64_t>(number));
  }
  bool number_unsigned(number_unsigned_t number) override { return whole(number); }

  bool start_object(std::size_t) override {
    if (field_ != Field::kNone) return value("an object");
    ++depth_;
    nodes_.reset();
    demand_.reset();
    return true;
  }
  bool end_object() override {
    if (depth_ == kJobDepth && !end_job()) return false;
    if (depth_ == 1 && !has_jobs_) return refuse(R"(there is no "jobs")", kForm);
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return value("an array"); }
  bool end_array() override { return true; }

  bool key(string_t& name) override {
    if (depth_ == 1) return line_key(name);
    return depth_ == 2 ? job_key(name) : field_key(name);
  }

  bool parse_error(std::size_t at, const std::string&, const Json::exception& error) override {
    std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: what is wrong"
    const std::size_t colon = what.find(": ");
    if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
    std::string clean(what.substr(0, what.find("; last read")));
    for (char& c : clean) c = c >= ' ' && c <= '~' ? c : '?';
    return refuse(fmt::format("column {}: {}", at, clean), kForm);
  }

 private:
  enum class Field : std::uint8_t { kNone, kNodes, kDemand };
  static constexpr int kJobDepth = 3;
  static constexpr const char* kForm = R"(expected {"jobs":{"ID":{"nodes":N,"demand":N},...}})";

  bool refuse(const std::string& what, const std::string& hint) {
    if (mistake.empty()) mistake = what + "; " + hint;
    return false;
  }
  std::string field_name() const {
    return fmt::format("{} of job {}", field_ == Field::kNodes ? "nodes" : "demand", quote(job_));
  }
  std::string field_hint() const {
    return field_ == Field::kNodes
               ? fmt::format("expected a whole number from 1 to {}", Allocator::kNodesMax)
               : fmt::format("expected a whole number from 0 to {}", Allocator::kDemandMax.count());
  }

  // A value in the wrong place.
  bool value(const std::string& text) {
    if (field_ != Field::kNone) return refuse(field_name() + ": " + text, field_hint());
    if (depth_ == 0) return refuse(text + " is not a period", kForm);
    if (depth_ == 1) return refuse(R"("jobs" is )" + text, kForm);
    return refuse(fmt::format("job {} is {}", quote(job_), text),
                  R"(expected {"nodes":N,"demand":N})");
  }

  bool whole(std::uint64_t number) {
    if (field_ == Field::kNone) return value(std::to_string(number));
    const bool nodes = field_ == Field::kNodes;
    const std::uint64_t most = nodes ? Allocator::kNodesMax : Allocator::kDemandMax.count();
    if (number > most || (nodes && number == 0)) return value(std::to_string(number));
    (nodes ? nodes_ : demand_) = number;
    field_ = Field::kNone;
    return true;
  }

  bool line_key(const std::string& name) {
    if (name != "jobs") return refuse("unknown key " + quote(name), kForm);
    if (has_jobs_) return refuse(R"("jobs" is given twice)", "give each key once");
    has_jobs_ = true;
    return true;
  }

  bool job_key(const std::string& name) {
    job_ = name;
    if (name.size() <= JobId::kSizeMax) return true;
    return refuse(fmt::format("job id {} has {} bytes", quote(name), name.size()),
                  fmt::format("at most {} fit", JobId::kSizeMax));
  }

  bool field_key(const std::string& name) {
    if (name == "nodes") {
      field_ = Field::kNodes;
    } else if (name == "demand") {
      field_ = Field::kDemand;
    } else {
      return refuse(fmt::format("unknown key {} of job {}", quote(name), quote(job_)),
                    "expected nodes and demand");
    }
    const bool twice = field_ == Field::kNodes ? nodes_.has_value() : demand_.has_value();
    return twice ? refuse(field_name() + " is given twice", "give each key once") : true;
  }

  bool end_job() {
    if (!nodes_ || !demand_) {
      return refuse(fmt::format("job {} has no {}", quote(job_), nodes_ ? "demand" : "nodes"),
                    R"(expected {"nodes":N,"demand":N})");
    }
    demands.push_back({JobId(job_), *nodes_, Tokens{*demand_}});
    return true;
  }

  int depth_ = 0;
  bool has_jobs_ = false;
  Field field_ = Field::kNone;
  std::string job_;
  std::optional<std::uint64_t> nodes_;
  std::optional<std::uint64_t> demand_;
};

Result<std::vector<Allocator::Demand>> read_period(const std::string& line) {
  const auto refuse = [](const std::string& what) {
    return tl::unexpected(Error{std::errc::invalid_argument, "", what, ""});
  };
  if (line.size() > kLineMax) {
    return refuse(fmt::format("longer than {}", print_size(Bytes{kLineMax})));
  }
  PeriodReader reader;
  if (!Json::sax_parse(line, &reader)) return refuse(reader.mistake);
  std::sort(reader.demands.begin(), reader.demands.end(),
            [](const auto& a, const auto& b) { return a.job < b.job; });
  const auto twice =
      std::adjacent_find(reader.demands.begin(), reader.demands.end(),
                         [](const auto& a, const auto& b) { return a.job == b.job; });
  if (twice != reader.demands.end()) {
    return refuse(
        fmt::format("job {} is given twice; give each job once", quote(twice->job.text())));
  }
  return std::move(reader.demands);
}

// ---- writing ----

void print_json(Tokens budget, const std::vector<JobPeriod>& jobs) {
  std::string text;
  for (const JobPeriod& job : jobs) {
    text += fmt::format(R"({}{}:{{"initial":{},"redistributed":{},"final":{},"record":{}}})",
                        text.empty() ? "" : ",", Json(job.job.text()).dump(), job.initial.count(),
                        job.redistributed.count(), job.final.count(), job.record);
  }
  fmt::print("{{\"budget\":{},\"jobs\":{{{}}}}}\n", budget.count(), text);
}

// The same in words.
class Explanation {
 public:
  Explanation(const AllocArguments& arguments, Rate rate) : arguments_(arguments), rate_(rate) {}

  void print(Tokens budget, const std::vector<JobPeriod>& jobs) {
    ++number_;
    if (jobs.empty()) {
      fmt::print("period {}: no job is active; no tokens are allocated\n", number_);
    } else {
      print_initial(budget, jobs);
      for (const JobPeriod& job : jobs) print_lending(job);
      for (const JobPeriod& job : jobs) print_repayment(job, jobs);
      print_outcome(jobs);
    }
    before_ = jobs;
  }

 private:
  static std::string tokens(std::uint64_t count) {
    return fmt::format("{} token{}", count, count == 1 ? "" : "s");
  }

  const JobPeriod* before(const JobId& job) const {
    for (const JobPeriod& known : before_) {
      if (known.job == job) return &known;
    }
    return nullptr;
  }

  void print_initial(Tokens budget, const std::vector<JobPeriod>& jobs) const {
    std::uint64_t nodes = 0;
    for (const JobPeriod& job : jobs) nodes += job.nodes;
    fmt::print("period {}: {} ({} for {}, with the fraction carried over) for {} node{}\n", number_,
               tokens(budget.count()), print_rate(rate_), arguments_.period, nodes,
               nodes == 1 ? "" : "s");
    for (const JobPeriod& job : jobs) {
      fmt::print("  {} has {} of the nodes: initial allocation {}, demand {}\n",
                 quote(job.job.text()), job.nodes, tokens(job.initial.count()), job.demand.count());
    }
  }

  void print_lending(const JobPeriod& job) const {
    const std::string name = quote(job.job.text());
    if (job.redistributed < job.initial) {
      fmt::print("  {} lends {}: its demand is only {}\n", name,
                 tokens((job.initial - job.redistributed).count()), job.demand.count());
    } else if (job.redistributed > job.initial) {
      const JobPeriod* known = before(job.job);
      const bool had = known != nullptr && known->final > Tokens{0};
      fmt::print("  {} borrows {}: its demand is {}, and it {} {}\n", name,
                 tokens((job.redistributed - job.initial).count()), job.demand.count(),
                 had ? "last had" : "has", had ? known->final.count() : job.initial.count());
    }
  }

  void print_repayment(const JobPeriod& job, const std::vector<JobPeriod>& jobs) const {
    const std::string name = quote(job.job.text());
    if (job.final < job.redistributed) {
      std::string lenders;
      for (const JobPeriod& other : jobs) {
        if (other.final <= other.redistributed) continue;
        lenders += (lenders.empty() ? "" : ", ") + quote(other.job.text());
      }
      fmt::print("  {} repays {} to {}, because it borrowed before{}\n", name,
                 tokens((job.redistributed - job.final).count()), lenders,
                 arguments_.floor ? "; it keeps half of its initial allocation" : "");
    } else if (job.final > job.redistributed) {
      fmt::print("  {} gets {} back that it lent before\n", name,
                 tokens((job.final - job.redistributed).count()));
    }
  }

  void print_outcome(const std::vector<JobPeriod>& jobs) const {
    for (const JobPeriod& job : jobs) {
      const std::string debt =
          job.record == 0
              ? "has no open loans"
              : fmt::format(
                    "has {} {}", job.record > 0 ? "lent" : "borrowed",
                    tokens(static_cast<std::uint64_t>(job.record > 0 ? job.record : -job.record)));
      fmt::print("  {} gets {} and {}\n", quote(job.job.text()), tokens(job.final.count()), debt);
    }
    if (arguments_.half_life) fmt::print("  records are halved in {}\n", *arguments_.half_life);
  }

  const AllocArguments& arguments_;
  Rate rate_;
  std::uint64_t number_ = 0;
  std::vector<JobPeriod> before_;
};

// ---- the command ----

Nanoseconds positive_duration(const std::string& text, const char* option, const char* example) {
  const Nanoseconds time = value_or_fail(parse_duration(text), Exit::kUsage, option);
  if (time > Nanoseconds{0}) return time;
  throw Failure{Exit::kUsage,
                fmt::format("{}: {}: must not be zero; try {}", option, quote(text), example)};
}

Allocator::Options allocator_options(const AllocArguments& arguments) {
  const Rate rate = value_or_fail(parse_rate(arguments.rate), Exit::kUsage, "--rate");
  const Nanoseconds period = positive_duration(arguments.period, "--period", "100ms");
  if (period > Ledger::kPeriodMax) {
    throw Failure{Exit::kUsage, fmt::format("--period: {}: longer than {}", quote(arguments.period),
                                            print_duration(Ledger::kPeriodMax))};
  }
  Allocator::Options options{.rate = rate, .period = period};
  if (arguments.half_life) {
    options.half_life = positive_duration(*arguments.half_life, "--half-life", "60s");
  }
  options.floor = arguments.floor;
  options.jobs_max = kJobsMax;
  return options;
}

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

// ---- trees ----

// Finds a key that is given twice in an object, which a JSON tree loses. The callback of the parser
// of trees would do so too, but takes the square of the number of jobs.
class TwiceFinder : public nlohmann::json_sax<Json> {
 public:
  std::string twice;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) twice = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

// A line of --tree.
class TreeLine {
 public:
  explicit TreeLine(std::size_t levels) : levels_(levels) {}

  std::vector<TreeAllocator::Demand> demands;
  absl::flat_hash_map<std::string, std::uint64_t> weights;

  // Empty, or what is wrong.
  std::string read(const std::string& text) {
    TwiceFinder keys;
    if (!Json::sax_parse(text, &keys)) return fmt::format("not valid; {}", kForm);
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) return fmt::format("not valid; {}", kForm);
    if (!keys.twice.empty()) {
      return fmt::format("{} is given twice; give each key once", quote(keys.twice));
    }
    for (const auto& [key, value] : line.items()) {
      if (key != "jobs" && key != "weights") {
        return fmt::format("unknown key {}; {}", quote(key), kForm);
      }
      if (!value.is_object()) return fmt::format("{} is not an object; {}", quote(key), kForm);
    }
    if (!line.contains("jobs")) return fmt::format("there is no \"jobs\"; {}", kForm);
    if (line.contains("weights")) {
      for (const auto& [path, value] : line["weights"].items()) {
        std::uint64_t weight = 1;
        if (auto wrong =
                number(value, "weight of " + quote(path), 1, TreeAllocator::kWeightMax, weight);
            !wrong.empty()) {
          return wrong;
        }
        weights[path] = weight;
      }
    }
    for (const auto& [job, value] : line["jobs"].items()) {
      if (auto wrong = read_job(job, value); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  static constexpr const char* kForm =
      R"(expected {"jobs":{"ID":{"path":["A","B"],"weight":N,"demand":N,"reserve":N},...},)"
      R"("weights":{"A":N,"A/B":N,...}})";

  static std::string number(const Json& value, const std::string& what, std::uint64_t least,
                            std::uint64_t most, std::uint64_t& to) {
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= least &&
                      value.get<std::uint64_t>() <= most;
    if (fits) to = value.get<std::uint64_t>();
    return fits ? ""
                : fmt::format("{} is {}; expected a whole number from {} to {}", what,
                              quote(value.dump(-1, ' ', true, Json::error_handler_t::replace)),
                              least, most);
  }

  static std::string name(const std::string& text, std::string_view what, JobId& to) {
    if (text.empty() || text.size() > JobId::kSizeMax || text.find('/') != std::string::npos) {
      return fmt::format("{} {} is not valid; expected 1 to {} bytes without '/'", what,
                         quote(text), JobId::kSizeMax);
    }
    to = JobId(text);
    return {};
  }

  std::string read_job(const std::string& job, const Json& value) {
    TreeAllocator::Demand& demand = demands.emplace_back();
    if (auto wrong = name(job, "job", demand.job); !wrong.empty()) return wrong;
    const std::string of = " of job " + quote(job);
    if (!value.is_object() || !value.contains("demand")) {
      return fmt::format("job {} has no demand; {}", quote(job), kForm);
    }
    std::uint64_t tokens = 0;
    for (const auto& [key, field] : value.items()) {
      std::string wrong;
      if (key == "path") {
        wrong = read_path(field, of, demand);
      } else if (key == "weight") {
        wrong = number(field, key + of, 1, TreeAllocator::kWeightMax, demand.weight);
      } else if (key == "demand") {
        wrong = number(field, key + of, 0, Allocator::kDemandMax.count(), tokens);
      } else if (key == "reserve") {
        wrong = number(field, key + of, 0, TreeAllocator::kReserveMax, demand.reserve);
      } else {
        wrong = fmt::format("unknown key {}{}; expected path, weight, demand and reserve",
                            quote(key), of);
      }
      if (!wrong.empty()) return wrong;
    }
    demand.demand = Tokens{tokens};
    if (demand.path.size() + 1 == levels_) return {};
    return fmt::format("path{} has {} values; the tree has {} levels above the last", of,
                       demand.path.size(), levels_ - 1);
  }

  static std::string read_path(const Json& value, const std::string& of,
                               TreeAllocator::Demand& demand) {
    if (!value.is_array()) return fmt::format("path{} is not an array", of);
    for (const Json& one : value) {
      JobId part(TreeAllocator::kNone);
      if (one.is_string() && !one.get<std::string>().empty()) {
        auto wrong = name(one.get<std::string>(), "value" + of, part);
        if (!wrong.empty()) return wrong;
      } else if (!one.is_null() && !one.is_string()) {
        return fmt::format("path{} has a value that is not a string", of);
      }
      demand.path.push_back(part);
    }
    return {};
  }

  std::size_t levels_;
};

// Maximum number of inner nodes; each has an account for each of its children.
constexpr std::size_t kInnerMax = std::size_t{1} << 18;

void print_tree(Tokens budget, const std::vector<TreeAllocator::Node>& nodes) {
  std::string text;
  for (const TreeAllocator::Node& node : nodes) {
    const JobPeriod& period = node.period;
    text += fmt::format(R"({}{}:{{"initial":{},"redistributed":{},"final":{},"record":{}}})",
                        text.empty() ? "" : ",", Json(node.path).dump(), period.initial.count(),
                        period.redistributed.count(), period.final.count(), period.record);
  }
  fmt::print("{{\"budget\":{},\"nodes\":{{{}}}}}\n", budget.count(), text);
}

// One line; an error, or nothing.
std::string divide_line(TreeAllocator& tree, std::size_t levels, const std::string& text) {
  if (text.size() > kLineMax) return fmt::format("longer than {}", print_size(Bytes{kLineMax}));
  TreeLine line(levels);
  if (auto wrong = line.read(text); !wrong.empty()) return wrong;
  if (tree.inner_nodes() >= kInnerMax) {
    return fmt::format("the tree has {} nodes already; use fewer values above the last level",
                       kInnerMax);
  }
  std::vector<TreeAllocator::Node> nodes;
  const Tokens budget = tree.allocate(
      line.demands,
      [&](std::string_view path) {
        const auto found = line.weights.find(std::string(path));
        return found == line.weights.end() ? 1 : found->second;
      },
      nodes);
  print_tree(budget, nodes);
  return {};
}

int alloc(const AllocArguments& arguments) {
  const Allocator::Options options = allocator_options(arguments);
  host::Fd owned;
  int fd = STDIN_FILENO;
  std::string name = "standard input";
  if (arguments.file != "-") {
    name = quote(arguments.file);
    owned = host::Fd(open(arguments.file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!owned.is_open()) check(fail_errno(errno, name), Exit::kNoInput, "");
    fd = owned.get();
  }
  std::optional<TreeAllocator> tree;
  std::size_t levels = 0;
  if (arguments.tree) {
    levels = value_or_fail(parse_share_levels(*arguments.tree), Exit::kUsage, "--tree").size();
    if (arguments.explain) throw Failure{Exit::kUsage, "--explain: cannot be used with --tree"};
    tree.emplace(options);
  }
  Allocator allocator(options);
  Explanation explanation(arguments, options.rate);
  Exit status = Exit::kOk;
  Lines lines(fd, name, kLineMax + 1);
  std::string line;
  std::vector<JobPeriod> jobs;
  for (std::uint64_t number = 1; value_or_fail(lines.next(line), Exit::kIoErr, ""); ++number) {
    if (is_blank(line)) continue;
    if (tree) {
      const std::string wrong = divide_line(*tree, levels, line);
      if (!wrong.empty()) {
        print_error("weir alloc: line {}: {}\n", number, wrong);
        status = Exit::kDataErr;
      }
      check_output();
      continue;
    }
    const auto demands = read_period(line);
    if (!demands) {
      print_error("weir alloc: line {}: {}\n", number, demands.error().what);
      status = Exit::kDataErr;
      continue;
    }
    const Tokens budget = allocator.allocate(*demands, jobs);
    if (arguments.explain) {
      explanation.print(budget, jobs);
    } else {
      print_json(budget, jobs);
    }
    check_output();
  }
  return static_cast<int>(status);
}

}  // namespace

void add_alloc(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<AllocArguments>();
  CLI::App* command =
      weir.add_subcommand("alloc", "Compute token allocations of jobs with the AdapTBF algorithm");
  command->add_option("FILE", arguments->file,
                      "Read periods from FILE; - is standard input (default)");
  command
      ->add_option("--rate", arguments->rate,
                   "Rate of the target for all jobs, such as 1000, 20k or 30/min")
      ->type_name("RATE")
      ->required();
  command
      ->add_option("--period", arguments->period,
                   "Length of a period (one line of input), such as 100ms")
      ->type_name("DURATION")
      ->required();
  command
      ->add_option("--half-life", arguments->half_life,
                   "Halve lending records in this time (default: never)")
      ->type_name("DURATION");
  command
      ->add_option("--tree", arguments->tree,
                   "Divide the rate over a tree of these levels, such as projid,uid,jobid")
      ->type_name("LEVELS");
  command->add_flag("--floor", arguments->floor,
                    "Let a job that repays keep half of its initial allocation");
  command->add_flag("--explain", arguments->explain,
                    "Print the reasoning in words: which jobs lent and borrowed how much, and why");
  command->footer(kFooter);
  command->callback([arguments, &status] { status = alloc(*arguments); });
}

}  // namespace weir::app
