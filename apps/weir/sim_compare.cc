// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_compare.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/progress.h"
#include "apps/weir/sim_policies.h"
#include "apps/weir/sim_workload.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"
#include "weir/host/files.h"
#include "weir/host/mutex.h"
#include "weir/sim/measures.h"
#include "weir/sim/world.h"
#include "weir/study/compare.h"
#include "weir/study/lock_scenario_file.h"
#include "weir/study/scenario_file.h"
#include "weir/study/workload.h"

namespace weir::app {
namespace {

constexpr const char* kComparedPolicies =
    "weir,none,static,adaptbf,wfq,mclock,sfq-d,sfq-d-auto,gift,themis,io-latency,lustre-tbf";
constexpr std::uint64_t kSeedsMax = 1000;
constexpr std::uint64_t kThreadsMax = 256;

// Steps of all jobs that are measured in a run: they take 256 MiB.
constexpr std::uint64_t kStepsMax = 16'000'000;

struct CompareArguments {
  std::optional<std::string> scenarios;
  std::string policies = kComparedPolicies;
  std::optional<std::string> length;
  WorkloadArguments workload;
  std::string out;
  std::uint64_t seeds = 5;
  std::uint64_t threads = 0;  // 0: one for each processor
  bool quiet = false;
};

struct Loaded {
  sim::Scenario scenario;
  std::string digest;
};

// Runs of a workload end with its last request, under every policy. All jobs are measured every
// 100 ms, so a comparison cannot be of any length.
void bound_length(const std::vector<study::WorkloadReport>& workload, sim::Scenario& scenario) {
  Nanoseconds length{0};
  for (const study::WorkloadReport& report : workload) length = std::max(length, report.length);
  if (!scenario.length && length == Nanoseconds{0}) {
    throw Failure{Exit::kUsage, "--workload: has no times; give --length, such as --length 60s"};
  }
  if (!scenario.length) scenario.length = length;
  const auto steps = static_cast<std::uint64_t>(*scenario.length / sim::Measures::kStep);
  if (steps * scenario.jobs.size() <= kStepsMax) return;
  throw Failure{
      Exit::kUsage,
      fmt::format("--workload: {} jobs for {} cannot be compared; give --length {}",
                  scenario.jobs.size(), print_duration(*scenario.length),
                  print_duration(std::chrono::minutes{kStepsMax / scenario.jobs.size() / 600}))};
}

// Whether policies have anything to divide: two jobs use the same target.
bool is_shared(const sim::Scenario& scenario) {
  std::vector<std::set<std::size_t>> jobs(scenario.targets.size());
  for (std::size_t job = 0; job < scenario.jobs.size(); ++job) {
    for (const sim::ProcessSpec& process : scenario.jobs[job].processes) {
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (process.target.value_or(i) == i) jobs[i].insert(job);
      }
    }
  }
  return std::any_of(jobs.begin(), jobs.end(), [](const auto& of) { return of.size() > 1; });
}

// All built-in scenarios in which several jobs share what one scheduler divides, so that none is
// left out for its result. A sweep of periods has the load of another scenario.
std::vector<std::string> default_scenarios() {
  std::vector<std::string> names;
  for (const study::NamedScenario& each : study::named_scenarios()) {
    const auto text = study::find_scenario(each.name);
    if (!text || study::is_lock_scenario(text->text)) continue;
    const auto scenario = study::load_scenario(each.name);
    if (!scenario || scenario->lustre || !scenario->periods.empty()) continue;
    if (is_shared(*scenario)) names.push_back(each.name);
  }
  return names;
}

// Everything that a run depends on apart from policy and seed is in the digest.
Loaded load(const std::string& name, const CompareArguments& arguments) {
  std::string text;
  if (!name.empty()) {
    const auto found = study::find_scenario(name);
    if (!found) throw Failure{Exit::kNoInput, found.error().message()};
    text = found->text;
  }
  study::LoadedScenario loaded = load_with_workload(name, arguments.workload, arguments.length);
  if (!loaded.workload.empty()) bound_length(loaded.workload, loaded.scenario);
  if (!arguments.quiet) fmt::print("{}", study::workload_text(loaded.workload));
  std::string nodes;
  for (const sim::JobSpec& job : loaded.scenario.jobs) {
    nodes += fmt::format("{}={},", job.name, job.nodes);
  }
  std::string depths;
  for (const sim::StreamSpec& stream : loaded.scenario.streams) {
    depths += fmt::format("{},", stream.window);
  }
  const std::string digest =
      study::digest_of({WEIR_VERSION, text, arguments.length.value_or(""), nodes, depths,
                        study::workload_digest(loaded.workload)});
  return {std::move(loaded.scenario), digest};
}

// How often this thread lost its processor, or gave it back.
std::uint64_t thread_switches() {
  struct rusage usage {};
  (void)getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nvcsw + usage.ru_nivcsw);
}

sim::Stopwatch stopwatch() {
  return {.now = [] { return host::now().time_since_epoch(); }, .switches = thread_switches};
}

struct Plan {
  const Loaded* of = nullptr;
  sim::Contender policy = sim::Contender::kNone;
  study::RunKey key;
};

// What threads share: the plan to run next, the file and the results.
class Runs {
 public:
  Runs(std::vector<Plan> plans, std::FILE* file, bool quiet)
      : plans_(std::move(plans)), file_(file), shown_(!quiet && isatty(STDERR_FILENO) == 1) {}

  // Runs all plans on this many threads. The first error that occurred while writing.
  Result<void> run(std::size_t threads) {
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < std::min(threads, plans_.size()); ++i) {
      others.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& other : others) other.join();
    const host::MutexLock lock(mutex_);
    if (shown_) (void)host::write_stderr("\r\x1b[K");
    return write_error_ == 0 ? Result<void>{} : fail_errno(write_error_, "runs.jsonl");
  }

  std::vector<study::RunResult> take_results() {
    const host::MutexLock lock(mutex_);
    return std::move(results_);
  }

 private:
  static study::RunResult run_one(const Plan& plan) {
    sim::RunOptions options;
    options.seed = plan.key.seed;
    options.checkers = false;  // they would take most of the time; weir sim runs them
    options.keep_periods = false;
    options.measures = true;
    options.stopwatch = stopwatch();
    study::RunResult refused;
    refused.key = plan.key;
    refused.digest = plan.of->digest;
    const std::string why = sim::obstacle(plan.policy, plan.of->scenario);
    if (!why.empty()) {
      refused.refusal =
          fmt::format("policy {}: cannot express the scenario: {}", quote(plan.key.policy), why);
      return refused;
    }
    const Nanoseconds begin = host::thread_time();
    const auto outcome = sim::run(plan.of->scenario, plan.policy, options);
    const Nanoseconds cpu = host::thread_time() - begin;
    if (outcome) {
      return study::run_result(plan.key, plan.of->digest, plan.of->scenario, *outcome, cpu);
    }
    refused.refusal = outcome.error().message();
    return refused;
  }

  void work() {
    for (std::size_t i = next_++; i < plans_.size(); i = next_++) {
      study::RunResult result = run_one(plans_[i]);
      const std::string line = study::run_line(result);
      const host::MutexLock lock(mutex_);
      results_.push_back(std::move(result));
      const bool written =
          std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
      if (!written && write_error_ == 0) write_error_ = errno;
      if (write_error_ != 0) next_ = plans_.size();
      draw();
    }
  }

  void draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!shown_) return;
    (void)host::write_stderr(fmt::format("\r\x1b[K{}  {} of {} runs",
                                         Progress::bar(results_.size(), plans_.size()),
                                         results_.size(), plans_.size()));
  }

  const std::vector<Plan> plans_;
  std::FILE* const file_;
  const bool shown_;
  std::atomic<std::size_t> next_ = 0;
  host::Mutex mutex_;
  std::vector<study::RunResult> results_ ABSL_GUARDED_BY(mutex_);
  int write_error_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The intact lines of an earlier comparison; none if there was none.
std::vector<study::RunResult> earlier_runs(const std::string& path) {
  std::vector<study::RunResult> runs;
  const auto text = host::read_file(path);
  if (!text) {
    if (text.error().code == std::errc::no_such_file_or_directory) return runs;
    throw Failure{Exit::kNoInput, text.error().message()};
  }
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (auto run = study::parse_run_line(rest.substr(0, end))) runs.push_back(std::move(*run));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return runs;
}

std::string percent_or_dash(const std::vector<study::Estimate>& ranked, std::string_view policy) {
  const auto found = std::find_if(ranked.begin(), ranked.end(),
                                  [&](const auto& one) { return one.policy == policy; });
  if (found == ranked.end()) return "-";
  return fmt::format("{}{}", found->rank, found->is_tied ? "*" : "");
}

void show_ranks(const study::Comparison& comparison) {
  constexpr std::pair<study::Metric, const char*> kShown[] = {
      {study::Metric::kUtilisation, "used"},    {study::Metric::kShortfallMean, "share"},
      {study::Metric::kBurstyP99, "burst p99"}, {study::Metric::kSteadyP99, "steady p99"},
      {study::Metric::kStarvation, "starved"},  {study::Metric::kReserve, "reserved"},
      {study::Metric::kRepay, "repay"},         {study::Metric::kDecision, "cpu"}};
  for (const std::string& scenario : comparison.scenarios) {
    fmt::print("\n{:<28}", scenario);
    for (const auto& [metric, title] : kShown) fmt::print("{:>11}", title);
    fmt::print("\n");
    for (const std::string& policy : comparison.policies) {
      fmt::print("  {:<26}", policy);
      for (const auto& [metric, title] : kShown) {
        fmt::print("{:>11}",
                   percent_or_dash(study::rank(comparison.results, scenario, metric), policy));
      }
      fmt::print("\n");
    }
  }
  fmt::print("\nRanks; *: not significantly different from the first. -: no value.\n");
}

std::string command_of(const CompareArguments& arguments) {
  std::string command = "weir sim compare";
  if (arguments.scenarios) command += " --scenarios " + *arguments.scenarios;
  for (const std::string& file : arguments.workload.files) command += " --workload " + file;
  for (const std::string& rule : arguments.workload.maps) {
    command += fmt::format(" --map '{}'", rule);
  }
  if (arguments.workload.by) command += " --by " + *arguments.workload.by;
  if (arguments.workload.nodes) command += " --nodes " + *arguments.workload.nodes;
  if (arguments.workload.depth > 0) command += fmt::format(" --depth {}", arguments.workload.depth);
  if (arguments.policies != kComparedPolicies) command += " --policy " + arguments.policies;
  if (arguments.length) command += " --length " + *arguments.length;
  return command + fmt::format(" --seeds {} --out DIR", arguments.seeds);
}

// Two comparisons in one folder would mix their runs. The lock ends with the process.
host::Fd lock_folder(const std::string& folder) {
  host::Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) check(fail_errno(errno, quote(folder)), Exit::kCantCreate, "--out");
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  throw Failure{Exit::kCantCreate,
                fmt::format("--out: another comparison writes to {}; wait for it, or give another "
                            "folder",
                            quote(folder))};
}

// Closes a file that was opened with fopen(3).
struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

struct Study {
  std::vector<std::unique_ptr<Loaded>> loaded;
  std::vector<Plan> plans;
  study::Comparison comparison;
};

// A workload without a scenario gets a device of its own, which has no name.
std::vector<std::string> scenarios_of(const CompareArguments& arguments) {
  if (arguments.scenarios) return split(*arguments.scenarios);
  if (!arguments.workload.files.empty()) return {""};
  return default_scenarios();
}

// All runs of the comparison, and those that are still to be done.
Study plan(const CompareArguments& arguments, std::vector<study::RunResult> done) {
  Study study;
  const std::vector<sim::Contender> policies = policies_of(arguments.policies);
  for (const sim::Contender policy : policies) {
    if (sim::is_cluster_contender(policy)) {
      throw Failure{Exit::kUsage, fmt::format("--policy: {} is for cluster-limit only",
                                              sim::contender_name(policy))};
    }
    study.comparison.policies.emplace_back(sim::contender_name(policy));
  }
  std::set<study::RunKey> known;
  for (const std::string& name : scenarios_of(arguments)) {
    auto loaded = std::make_unique<Loaded>(load(name, arguments));
    const std::string& title = loaded->scenario.name;
    if (loaded->scenario.lustre) {
      throw Failure{Exit::kUsage, fmt::format("--scenarios: {} has a Lustre server; compare its "
                                              "policies with weir sim {}",
                                              quote(title), title)};
    }
    if (!study.comparison.titles.emplace(title, loaded->scenario.title).second) continue;
    study.comparison.scenarios.push_back(title);
    for (study::RunResult& result : done) {
      if (result.key.scenario != title || result.digest != loaded->digest) continue;
      if (!known.insert(result.key).second) continue;
      study.comparison.results.push_back(std::move(result));
    }
    for (const sim::Contender policy : policies) {
      for (std::uint64_t seed = 1; seed <= arguments.seeds; ++seed) {
        study::RunKey key{title, std::string(sim::contender_name(policy)), seed};
        if (!known.contains(key)) study.plans.push_back({loaded.get(), policy, std::move(key)});
      }
    }
    study.loaded.push_back(std::move(loaded));
  }
  study.comparison.command = command_of(arguments);
  return study;
}

// Keeps the results of this comparison, in a fixed order, and drops results of other policies and
// seeds in the folder.
void arrange(study::Comparison& comparison, std::uint64_t seeds) {
  const auto place = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  std::erase_if(comparison.results, [&](const study::RunResult& result) {
    return result.key.seed > seeds ||
           place(comparison.policies, result.key.policy) == std::ssize(comparison.policies);
  });
  std::sort(comparison.results.begin(), comparison.results.end(),
            [&](const auto& a, const auto& b) {
              const auto order = [&](const study::RunResult& of) {
                return std::tuple(place(comparison.scenarios, of.key.scenario),
                                  place(comparison.policies, of.key.policy), of.key.seed);
              };
              return order(a) < order(b);
            });
}

int compare(const CompareArguments& arguments) {
  if (arguments.seeds == 0 || arguments.seeds > kSeedsMax) {
    throw Failure{Exit::kUsage, fmt::format("--seeds: expected 1 to {}", kSeedsMax)};
  }
  if (arguments.threads > kThreadsMax) {
    throw Failure{Exit::kUsage, fmt::format("--threads: expected at most {}", kThreadsMax)};
  }
  check(host::make_folder(arguments.out), Exit::kCantCreate, "--out");
  const host::Fd folder = lock_folder(arguments.out);
  const std::string path = arguments.out + "/runs.jsonl";
  std::vector<study::RunResult> done = earlier_runs(path);
  // No line may be appended to a truncated one.
  std::string intact;
  for (const study::RunResult& result : done) intact += study::run_line(result);
  check(host::write_file(path, intact), Exit::kCantCreate, "--out");
  Study study = plan(arguments, std::move(done));
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "ae"));
  if (!file) check(fail_errno(errno, quote(path)), Exit::kCantCreate, "--out");

  const std::size_t kept = study.comparison.results.size();
  if (!arguments.quiet && kept > 0) fmt::print("{} runs were done before\n", kept);
  Runs runs(std::move(study.plans), file.get(), arguments.quiet);
  const std::size_t threads = arguments.threads > 0
                                  ? static_cast<std::size_t>(arguments.threads)
                                  : std::max<std::size_t>(std::thread::hardware_concurrency(), 1);
  check(runs.run(threads), Exit::kCantCreate, "--out");
  for (study::RunResult& result : runs.take_results()) {
    study.comparison.results.push_back(std::move(result));
  }
  arrange(study.comparison, arguments.seeds);
  check(study::write_comparison(study.comparison, arguments.out), Exit::kCantCreate, "--out");

  std::set<std::pair<std::string, std::string>> told;
  for (const study::RunResult& result : study.comparison.results) {
    if (result.refusal.empty() || !told.insert({result.key.scenario, result.key.policy}).second) {
      continue;
    }
    print_error("weir sim compare: {}: {}\n", result.key.scenario, result.refusal);
  }
  if (!arguments.quiet) show_ranks(study.comparison);
  check_output();
  return 0;
}

}  // namespace

CLI::App* add_sim_compare(CLI::App& sim, int& status) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = sim.add_subcommand(
      "compare", "Run scenarios under several policies and seeds, and rank the policies");
  command->add_option("--out", arguments->out, "Write the report and the results to DIR")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--scenarios", arguments->scenarios,
                   "Names or files of scenarios, separated by commas (default: all in which jobs "
                   "share a device)")
      ->type_name("LIST");
  add_workload_options(*command, arguments->workload);
  command
      ->add_option("--policy", arguments->policies,
                   "Policies, separated by commas (default: all for one server)")
      ->type_name("LIST");
  command->add_option("--seeds", arguments->seeds, "Number of seeds, from 1 (default 5)")
      ->type_name("N")
      ->check(not_negative());
  command
      ->add_option("--threads", arguments->threads,
                   "Number of threads (default: one per processor)")
      ->type_name("N")
      ->check(not_negative());
  command->add_option("--length", arguments->length, "Set the length of all runs")
      ->type_name("TIME");
  command->add_flag("-q,--quiet", arguments->quiet, "Print no table and no progress");
  command->callback([arguments, &status] { status = compare(*arguments); });
  return command;
}

}  // namespace weir::app
