// SPDX-License-Identifier: Apache-2.0
//
// weir sim: runs scenarios under several policies, in virtual time.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/lustre_sim.h"
#include "apps/weir/progress.h"
#include "apps/weir/sim_cluster_limit.h"
#include "apps/weir/sim_compare.h"
#include "apps/weir/sim_faults.h"
#include "apps/weir/sim_groups.h"
#include "apps/weir/sim_locks.h"
#include "apps/weir/sim_policies.h"
#include "apps/weir/sim_workload.h"
#include "weir/adapt/options.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/host/files.h"
#include "weir/sim/replay.h"
#include "weir/sim/traced.h"
#include "weir/sim/world.h"
#include "weir/study/lock_scenario_file.h"
#include "weir/study/scenario_file.h"
#include "weir/study/study.h"
#include "weir/study/workload.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
Policies:
  none      first come, first served
  static    a fixed rate for each job by its nodes
  adaptbf   the AdapTBF controller as published: served counts, 100 ms, no lending in between
  weir      Weir's controller: backlog, 20 ms, instant loans that are paid back
  wfq       fair queueing by nodes without tokens: the upper bound
Schedulers of others, for comparison; not run unless named:
  mclock, sfq-d, sfq-d-auto, gift, themis, io-latency, lustre-tbf
The scenario cluster-limit, one limit on many servers, has the policies slices, fixed and each.
group-epochs, groups of clients that take turns, always runs all of its own.
Policies for scenarios of locks:
  weir, dld, lustre   set the lock volume as Weir, the 2007 design document or Lustre do
  frozen              the lock volume stays at its maximum
  lru-N               each client caches N locks

Examples:
  weir sim --list
  weir sim redistribution --policy none,static,adaptbf,weir --out /tmp/redistribution
  weir sim period-sweep --policy adaptbf,weir --service exponential
  weir sim my-cluster.toml --seed 7 --only big,small
  weir sim compare --out /tmp/comparison
  weir sim cluster-limit --out /tmp/cluster-limit
  weir sim cluster-limit --servers 1000 --policy slices
  weir sim cluster-faults --seed 1000
  weir sim group-epochs
  weir sim lock-volume --policy weir,lru-100
  weir sim --workload usr_0.csv --workload src1_0.csv --policy none,weir
  weir serve --export ram=memory:1GiB --trace /tmp/t      and later: weir sim --replay /tmp/t

The report is DIR/report.html; result.json, periods.csv and throughput.csv contain its data.
Manual: weir-sim(1).)";

constexpr const char* kPolicies = "none,static,adaptbf,weir,wfq";
constexpr const char* kLustrePolicies = "none,static,adaptbf,weir";

struct SimArguments {
  std::string scenario;
  std::optional<std::string> policies;
  std::string service = "as-given";
  std::optional<std::string> period;
  std::optional<std::string> length;
  std::optional<std::string> only;
  std::optional<std::string> out;
  std::vector<std::string> traces;
  WorkloadArguments workload;
  ClusterSimOptions cluster;
  std::uint64_t seed = 1;
  bool list = false;
  bool unchecked = false;
  bool quiet = false;
};

// ---- options ----

std::optional<Nanoseconds> period_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const Nanoseconds period = value_or_fail(parse_duration(*text), Exit::kUsage, "--period");
  if (period < ControllerOptions::kPeriodMin || period > ControllerOptions::kPeriodMax) {
    throw Failure{Exit::kUsage,
                  fmt::format("--period: {} is not valid; expected 1ms to 10s", quote(*text))};
  }
  return period;
}

// Keeps only the named jobs or groups, to see their results alone.
void keep_only(const std::string& list, sim::Scenario& scenario) {
  if (!scenario.trace.empty()) {
    throw Failure{Exit::kUsage,
                  "--only: cannot select jobs of a trace; use a trace without the other jobs"};
  }
  if (!scenario.streams.empty()) {
    throw Failure{Exit::kUsage,
                  "--only: cannot select jobs of a workload; leave others out with --map '-: ...'"};
  }
  std::set<std::string> wanted;
  for (const std::string& name : split(list)) wanted.insert(name);
  std::set<std::string> found;
  std::vector<sim::JobSpec> kept;
  for (sim::JobSpec& job : scenario.jobs) {
    if (!wanted.contains(job.name) && !wanted.contains(job.group)) continue;
    found.insert(wanted.contains(job.name) ? job.name : job.group);
    kept.push_back(std::move(job));
  }
  for (const std::string& name : wanted) {
    if (!found.contains(name)) {
      throw Failure{Exit::kUsage, fmt::format("--only: no job {} in the scenario", quote(name))};
    }
  }
  scenario.jobs = std::move(kept);
}

study::LoadedScenario scenario_of(const SimArguments& arguments) {
  study::LoadedScenario loaded =
      load_with_workload(arguments.scenario, arguments.workload, arguments.length);
  sim::Scenario& scenario = loaded.scenario;
  if (arguments.only) keep_only(*arguments.only, scenario);
  if (arguments.service == "exponential") {
    for (sim::TargetSpec& target : scenario.targets) {
      target.store.service.kind = sim::ServiceTime::Kind::kExponential;
    }
  } else if (arguments.service != "as-given") {
    throw Failure{Exit::kUsage,
                  fmt::format("--service: {} is not valid; expected exponential or as-given",
                              quote(arguments.service))};
  }
  check(sim::check(scenario), Exit::kUsage, "");
  return loaded;
}

// ---- the table ----

std::string milliseconds(std::uint64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  return ms < 10 ? fmt::format("{:.2f}", ms) : fmt::format("{:.1f}", ms);
}

std::string percent(const std::optional<double>& part) {
  return part ? fmt::format("{:.1f} %", *part * 100) : "-";
}

void show_job(const sim::JobOutcome& job, std::size_t name_width) {
  fmt::print("  {:<{}}{:>7}{:>11.1f}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}\n", job.name,
             name_width, job.nodes, job.throughput, percent(job.share), percent(job.entitlement),
             milliseconds(job.wait.quantile(50, 100)), milliseconds(job.wait.quantile(99, 100)),
             milliseconds(job.latency.quantile(50, 100)),
             milliseconds(job.latency.quantile(99, 100)), job.record);
}

std::string heading(const sim::Outcome& outcome) {
  std::string name(sim::contender_name(outcome.contender));
  if (outcome.period) name += " " + print_duration(*outcome.period);
  return name;
}

void show_outcome(const sim::Outcome& outcome) {
  fmt::print("\n{:<16}utilisation {:.2f} %   served {}   {:.1f} s   Jain {}\n", heading(outcome),
             outcome.utilisation * 100, outcome.served,
             static_cast<double>(outcome.duration.count()) / 1e9,
             outcome.fairness ? fmt::format("{:.4f}", *outcome.fairness) : "-");
  const std::vector<sim::JobOutcome> groups = grouped(outcome);
  std::size_t width = 4;
  for (const sim::JobOutcome& job : groups) width = std::max(width, job.name.size());
  fmt::print("  {:<{}}{:>7}{:>11}{:>9}{:>10}{:>20}{:>20}{:>9}\n", "", width, "", "", "", "",
             "wait ms", "latency ms", "");
  fmt::print("  {:<{}}{:>7}{:>11}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}\n", "job", width, "nodes",
             "requests/s", "share", "entitled", "p50", "p99", "p50", "p99", "record");
  for (const sim::JobOutcome& job : groups) show_job(job, width);
  if (outcome.held_back > 0) {
    fmt::print("  {} requests were held back by up to {:.3f} s: too many were outstanding\n",
               outcome.held_back, static_cast<double>(outcome.held_back_longest.count()) / 1e9);
  }
  if (outcome.targets.size() == 1) return;
  for (const sim::TargetOutcome& target : outcome.targets) {
    fmt::print("  target {}: utilisation {:.2f} %, served {}\n", target.name,
               target.utilisation * 100, target.served);
  }
}

void show_sweep(const std::vector<sim::Outcome>& sweep) {
  fmt::print("\n{:<16}{:>13}{:>10}   requests/s of each job\n", "period", "utilisation", "served");
  for (const sim::Outcome& outcome : sweep) {
    std::string jobs;
    for (const sim::JobOutcome& job : grouped(outcome)) {
      jobs += fmt::format("{:>9.1f}", job.throughput);
    }
    fmt::print("{:<16}{:>11.2f} %{:>10}{}\n", heading(outcome), outcome.utilisation * 100,
               outcome.served, jobs);
  }
}

// ---- the command ----

// Progress of all runs together, on a terminal.
class Bar {
 public:
  // `length` is that of one run, if known.
  Bar(std::size_t runs, std::optional<Nanoseconds> length, bool quiet)
      : runs_(runs),
        length_(length),
        shown_(!quiet && isatty(STDERR_FILENO) == 1),
        started_(host::now()) {}
  ~Bar() { erase(); }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void run_done() { ++done_; }
  void draw(Nanoseconds reached) {
    if (!shown_ || host::now() - started_ < std::chrono::milliseconds{500}) return;
    constexpr std::uint64_t kUnits = 1000;
    std::uint64_t part = 0;
    if (length_) {
      part = static_cast<std::uint64_t>(reached.count()) * kUnits /
             static_cast<std::uint64_t>(length_->count());
    }
    const std::uint64_t reached_units = done_ * kUnits + std::min(part, kUnits);
    (void)host::write_stderr(
        fmt::format("\r\x1b[K{}", Progress::bar(reached_units, runs_ * kUnits)));
    drawn_ = true;
  }
  void erase() {
    if (drawn_) (void)host::write_stderr("\r\x1b[K");
    drawn_ = false;
  }

 private:
  std::size_t runs_;
  std::optional<Nanoseconds> length_;
  bool shown_;
  Instant started_;
  std::size_t done_ = 0;
  bool drawn_ = false;
};

struct Runner {
  const SimArguments& arguments;
  const sim::Scenario& scenario;
  Bar& bar;
  bool keep_periods = false;

  sim::Outcome operator()(sim::Contender contender, std::optional<Nanoseconds> period) const {
    if (scenario.lustre) {
      LustreSimOptions options;
      options.seed = arguments.seed;
      options.period = period;
      return value_or_fail(simulate_lustre(scenario, contender, options), Exit::kUsage, "--policy");
    }
    sim::RunOptions options;
    options.seed = arguments.seed;
    options.period = period;
    options.checkers = !arguments.unchecked;
    options.keep_periods = keep_periods;
    options.progress = [this](Nanoseconds reached) { bar.draw(reached); };
    sim::Outcome outcome =
        value_or_fail(sim::run(scenario, contender, options), Exit::kDataErr, "");
    bar.run_done();
    return outcome;
  }
};

std::uint64_t tell_findings(const std::vector<sim::Outcome>& outcomes) {
  std::uint64_t all = 0;
  for (const sim::Outcome& outcome : outcomes) {
    all += outcome.findings;
    for (const std::string& finding : outcome.first_findings) {
      print_error("weir sim: {}: {}\n", heading(outcome), finding);
    }
  }
  return all;
}

int list_scenarios() {
  std::vector<study::NamedScenario> all = study::named_scenarios();
  all.push_back({kClusterLimit, kClusterLimitTitle});
  all.push_back({kClusterFaults, kClusterFaultsTitle});
  all.push_back({kGroupEpochs, kGroupEpochsTitle});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const study::NamedScenario& named : all) {
    fmt::print("{:<28}{}\n", named.name, named.title);
  }
  return 0;
}

// ---- a limit on many servers ----

std::vector<sim::Contender> cluster_policies_of(const SimArguments& arguments) {
  if (!arguments.policies) {
    return {sim::kClusterContenders.begin(), sim::kClusterContenders.end()};
  }
  std::vector<sim::Contender> contenders = policies_of(*arguments.policies);
  for (const sim::Contender contender : contenders) {
    if (!sim::is_cluster_contender(contender)) {
      throw Failure{
          Exit::kUsage,
          fmt::format("--policy: {} is not valid for cluster-limit; expected slices, fixed or each",
                      sim::contender_name(contender))};
    }
  }
  return contenders;
}

int run_cluster_limit(const SimArguments& arguments) {
  const std::uint64_t findings =
      tell_findings(simulate_cluster_limit({.contenders = cluster_policies_of(arguments),
                                            .options = arguments.cluster,
                                            .length = arguments.length,
                                            .out = arguments.out,
                                            .seed = arguments.seed,
                                            .quiet = arguments.quiet,
                                            .show = show_outcome}));
  if (findings == 0) return 0;
  throw Failure{Exit::kSoftware,
                fmt::format("{} checks failed; the first are listed above", findings)};
}

// ---- traces of servers ----

void show_replay(const sim::ReplayReport& report) {
  fmt::print("trace of {}, seed {}, {:.3f} s, targets {}\n", report.head.build, report.head.seed,
             static_cast<double>(report.length.count()) / 1e9, report.targets);
  fmt::print("calls {}: admitted {}, decisions {} (run {}), completed {}, withdrawn {}\n",
             report.calls, report.admitted, report.decisions, report.run, report.completed,
             report.withdrawn);
  fmt::print("commands {}, periods {}\n", report.commands, report.periods);
  if (report.is_identical()) fmt::print("every decision is the same\n");
  std::fflush(stdout);
}

// Replays the whole trace, and notifies the observer, if there is one.
void replay_trace(const std::string& path, bool quiet, sim::ReplayObserver* observer) {
  auto source = value_or_fail(host::open_source(path), Exit::kNoInput, "--replay");
  const sim::ReplayReport report = sim::replay(std::move(source), observer);
  const bool is_trace = report.ending != TraceReader::Ending::kForeign;
  if (!quiet && is_trace) show_replay(report);
  if (!report.is_identical()) {
    throw Failure{Exit::kSoftware, fmt::format("{}: {}", quote(path), report.difference)};
  }
  if (report.ending == TraceReader::Ending::kUnread) throw Failure{Exit::kIoErr, report.complaint};
  if (report.is_whole()) return;
  std::string message = fmt::format("{}: {}", quote(path), report.complaint);
  if (is_trace) {
    message += fmt::format("; the {} calls in its first {} bytes are intact", report.calls,
                           report.good_bytes);
  }
  throw Failure{Exit::kDataErr, message};
}

// Traces of servers under the load of a scenario, each under one of the policies: the same table
// and report as if they had been simulated.
int report_traces(const SimArguments& arguments) {
  const std::vector<sim::Contender> contenders =
      policies_of(arguments.policies.value_or(kPolicies));
  if (contenders.size() != arguments.traces.size()) {
    throw Failure{Exit::kUsage,
                  "--replay: with a scenario, --policy must name the policy of each trace"};
  }
  study::Study study;
  study.on_server = true;
  study.scenario = scenario_of(arguments).scenario;
  if (!study.scenario.length) {
    throw Failure{Exit::kUsage, "--replay: the scenario has no length; give --length"};
  }
  if (arguments.out) check(host::make_folder(*arguments.out), Exit::kCantCreate, "--out");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    sim::TracedOutcome traced(study.scenario, contenders[i]);
    replay_trace(arguments.traces[i], true, &traced);
    study.outcomes.push_back(traced.outcome());
  }
  if (!arguments.quiet) {
    fmt::print("{}, on a server, from {} traces that replay the same\n", study.scenario.name,
               study.outcomes.size());
    for (const sim::Outcome& outcome : study.outcomes) show_outcome(outcome);
  }
  if (arguments.out) check(study::write_study(study, *arguments.out), Exit::kCantCreate, "--out");
  return 0;
}

// Rejects options that only scenarios with jobs and devices support.
void refuse_job_options(const SimArguments& arguments, const char* scenario) {
  const std::pair<const char*, bool> others[] = {{"--period", arguments.period.has_value()},
                                                 {"--only", arguments.only.has_value()},
                                                 {"--workload", !arguments.workload.files.empty()},
                                                 {"--service", arguments.service != "as-given"},
                                                 {"--unchecked", arguments.unchecked}};
  for (const auto& [option, is_given] : others) {
    if (is_given) {
      throw Failure{Exit::kUsage, fmt::format("{}: has no meaning for {}", option, scenario)};
    }
  }
}

FaultSimArguments fault_arguments(const SimArguments& arguments) {
  refuse_job_options(arguments, kClusterFaults);
  if (arguments.policies || arguments.length) {
    throw Failure{Exit::kUsage,
                  fmt::format("{}: has no meaning for {}",
                              arguments.policies ? "--policy" : "--length", kClusterFaults)};
  }
  if (const char* const option = arguments.cluster.first_of_limit()) {
    throw Failure{Exit::kUsage, fmt::format("{}: has no meaning for {}", option, kClusterFaults)};
  }
  return {.seed = arguments.seed,
          .partition = partition_of(arguments.cluster),
          .out = arguments.out,
          .quiet = arguments.quiet};
}

GroupSimArguments group_arguments(const SimArguments& arguments) {
  refuse_job_options(arguments, kGroupEpochs);
  if (arguments.policies) {
    throw Failure{Exit::kUsage, fmt::format("--policy: has no meaning for {}", kGroupEpochs)};
  }
  return {arguments.length, arguments.out, arguments.seed, arguments.quiet};
}

LockSimArguments lock_arguments(const SimArguments& arguments) {
  refuse_job_options(arguments, "a scenario of locks");
  return {arguments.policies, arguments.length, arguments.out, arguments.seed, arguments.quiet};
}

int simulate(const SimArguments& arguments) {
  if (arguments.list) return list_scenarios();
  if (arguments.scenario == kClusterLimit) return run_cluster_limit(arguments);
  if (arguments.scenario == kClusterFaults) return simulate_faults(fault_arguments(arguments));
  if (const char* const option = arguments.cluster.first()) {
    throw Failure{Exit::kUsage, fmt::format("{}: is for clusters only", option)};
  }
  if (arguments.scenario == kGroupEpochs) return simulate_groups(group_arguments(arguments));
  if (!arguments.traces.empty() && !arguments.scenario.empty()) return report_traces(arguments);
  for (const std::string& path : arguments.traces) replay_trace(path, arguments.quiet, nullptr);
  if (!arguments.traces.empty()) return 0;
  if (arguments.scenario.empty() && arguments.workload.files.empty()) {
    throw Failure{Exit::kUsage,
                  "a scenario or --workload is required; weir sim --list shows the names"};
  }
  if (const auto found = study::find_scenario(arguments.scenario);
      found && study::is_lock_scenario(found->text)) {
    return simulate_locks(*found, lock_arguments(arguments));
  }
  const std::optional<Nanoseconds> period = period_of(arguments.period);
  study::Study study;
  study::LoadedScenario loaded = scenario_of(arguments);
  study.scenario = std::move(loaded.scenario);
  study.workload = std::move(loaded.workload);
  const std::vector<sim::Contender> contenders =
      policies_of(arguments.policies.value_or(study.scenario.lustre ? kLustrePolicies : kPolicies));
  study.seed = arguments.seed;
  study.exponential = arguments.service == "exponential";
  // Report a folder that cannot be written before a long run, not after.
  if (arguments.out) check(host::make_folder(*arguments.out), Exit::kCantCreate, "--out");

  std::size_t runs = contenders.size();
  for (const sim::Contender contender : contenders) {
    if (sim::has_periods(contender)) runs += study.scenario.periods.size();
  }
  std::optional<Nanoseconds> length = study.scenario.length;
  for (const study::WorkloadReport& report : study.workload) {
    if (report.length > Nanoseconds{0} && !study.scenario.length) {
      length = std::max(length.value_or(report.length), report.length);
    }
  }
  Bar bar(runs, length, arguments.quiet);
  const Runner run{arguments, study.scenario, bar, arguments.out.has_value()};
  const Runner sweep{arguments, study.scenario, bar};
  for (const sim::Contender contender : contenders) {
    study.outcomes.push_back(run(contender, period));
    if (!sim::has_periods(contender)) continue;
    for (const Nanoseconds each : study.scenario.periods) {
      study.sweep.push_back(sweep(contender, each));
    }
  }
  bar.erase();

  if (!arguments.quiet) {
    fmt::print("{}{}{}, seed {}\n", study.scenario.name, study.scenario.title.empty() ? "" : ": ",
               study.scenario.title, study.seed);
    fmt::print("{}", study::workload_text(study.workload));
    for (const sim::Outcome& outcome : study.outcomes) show_outcome(outcome);
    if (!study.sweep.empty()) show_sweep(study.sweep);
  }
  check_output();
  if (arguments.out) check(study::write_study(study, *arguments.out), Exit::kCantCreate, "--out");
  const std::uint64_t findings = tell_findings(study.outcomes) + tell_findings(study.sweep);
  if (findings > 0) {
    throw Failure{Exit::kSoftware,
                  fmt::format("{} checks failed; the first are listed above", findings)};
  }
  return 0;
}

}  // namespace

void add_sim(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<SimArguments>();
  CLI::App* command =
      weir.add_subcommand("sim", "Simulate a scenario under several policies, in virtual time");
  command->add_option(
      "SCENARIO", arguments->scenario,
      "Name of a scenario (see --list), or a TOML file: with a / or ending in .toml");
  command
      ->add_option(
          "--policy", arguments->policies,
          "Run these policies, separated by commas (default: Weir's own; for locks, those of the "
          "scenario)")
      ->type_name("LIST");
  const auto set_seed = [arguments](const std::string& text) {
    arguments->seed = value_or_fail(parse_count(text), Exit::kUsage, "--seed");
  };
  command->add_option_function<std::string>("--seed", set_seed, "Random seed (default 1)")
      ->type_name("N");
  command->add_option("--out", arguments->out, "Write report.html and the results to DIR")
      ->type_name("DIR");
  command
      ->add_option("--service", arguments->service,
                   "Service times: as-given (default), or exponential with the same mean")
      ->type_name("KIND");
  command->add_option("--period", arguments->period, "Set the period of all controllers")
      ->type_name("TIME");
  command->add_option("--length", arguments->length, "Set the length of the run")
      ->type_name("TIME");
  command->add_option("--only", arguments->only, "Run only these jobs")->type_name("JOBS");
  command
      ->add_option("--replay", arguments->traces,
                   "Repeat a trace of weir serve and compare each decision; with a scenario and "
                   "--policy, show the results of several traces in its table")
      ->type_name("FILE")
      ->allow_extra_args(false);
  add_workload_options(*command, arguments->workload);
  add_cluster_options(*command, arguments->cluster);
  command->add_flag("--list", arguments->list, "List the scenarios and exit");
  command->add_flag("--unchecked", arguments->unchecked,
                    "Run without the checkers, which is faster");
  command->add_flag("-q,--quiet", arguments->quiet, "Print no table and no progress");
  command->footer(kFooter);
  const CLI::App* const compare = add_sim_compare(*command, status);
  command->callback([arguments, compare, &status] {
    if (!compare->parsed()) status = simulate(*arguments);
  });
}

}  // namespace weir::app
