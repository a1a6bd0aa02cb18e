// SPDX-License-Identifier: Apache-2.0
//
// weir lustre: adjusts the rules of a Lustre server to its counters.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/slurm_poll.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/slurm.h"
#include "weir/host/clock.h"
#include "weir/host/files.h"
#include "weir/host/heap.h"
#include "weir/host/signals.h"
#include "weir/host/state_file.h"
#include "weir/host/timer_fd.h"
#include "weir/lustre/driver.h"
#include "weir/lustre/guard.h"
#include "weir/lustre/names.h"
#include "weir/lustre/server.h"
#include "weir/lustre/tree.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
ACTION is one of
  check   report what the server has and what is missing; change nothing
  run     adjust the rules of ost_io until SIGTERM or SIGINT, then remove them

Examples:
  weir lustre check
  weir lustre run --dry-run
  weir lustre run --slurm --job-pattern %j
  weir lustre run --capacity 4000 --period 100ms

Changes only rules that it created, and the policy only with --set-policy. Manual: weir-lustre(1).
docs/runbook-lustre.md describes how to try it on a server.)";

// In a row, while the server can be read: waiting would not help.
constexpr int kFailedWritesMax = 20;
// Rounds in a row that take more than half of the period, before it is lengthened.
constexpr int kSlowRounds = 5;
// The guard of a run that has just died may still be running.
constexpr Nanoseconds kLockPatience = std::chrono::seconds{3};
constexpr Nanoseconds kLockPause = std::chrono::milliseconds{50};

struct LustreArguments {
  std::string action;
  std::string root;
  std::string map = "/var/lib/weir/lustre.map";
  std::string prefix{lustre::Names::kPrefixDefault};
  std::string period = "20ms";
  std::string capacity = "auto";
  std::string dead_man = "5s";
  std::string lctl = "auto";
  std::string lctl_program = "lctl";
  std::optional<std::string> nodes;
  std::string job_pattern = "%j";
  std::string slurm_every = "10s";
  std::string squeue = "squeue";
  std::uint64_t rounds = 0;
  std::uint32_t step = 10;
  bool dry_run = false;
  bool set_policy = false;
  bool slurm = false;
  bool verbose = false;
};

lustre::HostTree::Options tree_options(const LustreArguments& arguments) {
  using Lctl = lustre::HostTree::Lctl;
  lustre::HostTree::Options options;
  options.root = arguments.root;
  options.lctl_program = arguments.lctl_program;
  options.lctl = arguments.lctl == "always"  ? Lctl::kAlways
                 : arguments.lctl == "never" ? Lctl::kNever
                                             : Lctl::kAuto;
  return options;
}

Exit exit_for(const Error& error) {
  if (error.code == std::errc::no_such_file_or_directory ||
      error.code == std::errc::permission_denied ||
      error.code == std::errc::operation_not_permitted) {
    return Exit::kNoInput;
  }
  return error.code == std::errc::no_such_device || error.code == std::errc::not_supported
             ? Exit::kConfig
             : Exit::kIoErr;
}

[[noreturn]] void give_up(const Error& error) { throw Failure{exit_for(error), error.message()}; }

Nanoseconds duration_of(const std::string& text, const char* option, Nanoseconds least,
                        Nanoseconds most) {
  const Nanoseconds time = value_or_fail(parse_duration(text), Exit::kUsage, option);
  if (time < least || time > most) {
    throw Failure{Exit::kUsage,
                  fmt::format("{}: {} is out of range; expected {} to {}", option, quote(text),
                              print_duration(least), print_duration(most))};
  }
  return time;
}

// Of the map, if there is a file: it has its first line at least, so an empty one was truncated by
// another program.
lustre::Names read_names(const LustreArguments& arguments, const std::optional<std::string>& map) {
  check(lustre::Names::read(arguments.prefix, "").map([](const auto&) {}), Exit::kUsage, "");
  const std::string where = "--map " + quote(arguments.map);
  if (map && map->empty()) {
    throw Failure{Exit::kCantCreate,
                  fmt::format("{}: is empty, which a map never is: rules of an earlier run are no "
                              "longer known; restore it, or remove it and stop the rules whose "
                              "names start with {}",
                              where, arguments.prefix)};
  }
  return value_or_fail(lustre::Names::read(arguments.prefix, map.value_or("")), Exit::kCantCreate,
                       where);
}

// ---- check ----

class Checklist {
 public:
  void tell(std::string_view what, const std::string& text) {
    fmt::print("{:<10} {}\n", what, text);
  }
  void miss(std::string_view what, const Error& error) {
    fmt::print("{:<10} NOT READY: {}\n", what, error.message());
    if (!worst_) worst_ = exit_for(error);
  }
  int finish() const {
    fmt::print("{:<10} {}\n", "result",
               worst_ ? "not ready; see the lines above"
                      : "ready: weir lustre run --dry-run shows what it would do");
    return static_cast<int>(worst_.value_or(Exit::kOk));
  }

 private:
  std::optional<Exit> worst_;
};

void check_jobs(lustre::Tree& tree, Checklist& list) {
  const auto targets = lustre::targets_of(tree);
  if (!targets) return list.miss("targets", targets.error());
  for (const std::string& name : *targets) {
    const auto view = lustre::target_view(tree, name);
    if (!view) {
      list.miss("target", view.error());
      continue;
    }
    std::size_t unnamed = 0;
    for (const lustre::JobCounters& job : view->jobs) unnamed += !lustre::is_expressible(job.job);
    list.tell("target",
              fmt::format(
                  "{}: {} job{} in job_stats{}{}{}", name, view->jobs.size(),
                  view->jobs.size() == 1 ? "" : "s", view->is_cut ? ", which is truncated" : "",
                  unnamed == 0 ? std::string() : fmt::format(", {} that no rule can name", unnamed),
                  view->rpcs ? "" : "; no stats, so jobs that vanish cannot be detected"));
  }
}

void check_rules(lustre::Tree& tree, const lustre::Names& names, Checklist& list) {
  const auto rules = lustre::rules_of(tree);
  if (!rules) return list.miss("rules", rules.error());
  std::size_t ours = 0;
  std::size_t others = 0;
  for (const lustre::RuleLine& rule : rules->regular.front().rules) {
    if (rule.name == "default") continue;
    ++(names.owner(rule.name, rule.conds) ? ours : others);
  }
  list.tell("rules", fmt::format("{} of Weir; {} others, which stay unchanged and match first",
                                 ours, others));
}

void check_map(const std::string& path, Checklist& list) {
  if (access(path.c_str(), W_OK) == 0) return list.tell("map", path);
  if (errno != ENOENT) {
    return list.miss("map", fail_errno(errno, path, "name another file with --map").value());
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK) == 0) return list.tell("map", path + ": does not exist yet");
  list.miss("map", fail_errno(errno, folder, "create it, or name another file with --map").value());
}

int check_server(const LustreArguments& arguments) {
  lustre::HostTree tree(tree_options(arguments));
  const auto map = host::read_file(arguments.map);
  const lustre::Names names =
      read_names(arguments, map ? std::optional(*map) : std::optional<std::string>());
  Checklist list;
  check_jobs(tree, list);
  const auto policies = lustre::policies_of(tree);
  if (policies) {
    list.tell("CPTs", fmt::format("{}; each change of a rule gives up to {} free tokens on each",
                                  lustre::partitions_of(tree), lustre::depth_of(tree)));
  }
  if (!policies) {
    list.miss("policy", policies.error());
    return list.finish();
  }
  const auto type = lustre::type_of(*policies);
  if (type) {
    list.tell("policy", fmt::format("tbf {}; {} requests wait", type->empty() ? "(generic)" : *type,
                                    policies->queued()));
    check_rules(tree, names, list);
  } else {
    list.miss("policy", type.error());
  }
  const auto way = tree.way_of_writing(lustre::kRulesPath);
  way ? list.tell("writes", *way + " to nrs_tbf_rule") : list.miss("writes", way.error());
  check_map(arguments.map, list);
  return list.finish();
}

// ---- run ----

static_assert(lustre::Names::kTextMax <= host::StateFile::kSizeMax);

host::StateFile open_map(const std::string& path) {
  for (Nanoseconds waited{0};; waited += kLockPause) {
    auto file = host::StateFile::open(path);
    if (file || file.error().code != std::errc::device_or_resource_busy ||
        waited >= kLockPatience) {
      return value_or_fail(std::move(file), Exit::kCantCreate, "--map");
    }
    poll(nullptr, 0, static_cast<int>(kLockPause / std::chrono::milliseconds{1}));
  }
}

// Called by the guard, in its own process.
void remove_rules(const LustreArguments& arguments, lustre::Guard::Reason reason) {
  const host::LogWriter log;
  std::optional<host::StateFile> lock;
  if (reason == lustre::Guard::Reason::kGone) {
    auto file = host::StateFile::open(arguments.map);
    if (file) {
      lock.emplace(std::move(*file));
    } else if (file.error().code == std::errc::device_or_resource_busy) {
      return;  // another run has taken over
    }
  }
  const auto text = host::read_file(arguments.map);
  auto names = lustre::Names::read(arguments.prefix, text.value_or(""));
  if (!names) return;
  lustre::HostTree tree(tree_options(arguments));
  lustre::Driver driver(
      {}, tree, *names, [](std::string_view) { return Result<void>{}; },
      [](std::string_view, std::string_view) {});
  const auto removed = driver.remove_all();
  // A run that never started, or had no rules, leaves nothing to report.
  if (removed && driver.counters().writes == 0) return;
  print_error("weir lustre: guard: the driver {}; its rules {}\n",
              reason == lustre::Guard::Reason::kGone ? "is gone" : "hangs",
              removed ? "are removed" : "cannot be removed: " + removed.error().message());
}

class LustreRun {
 public:
  explicit LustreRun(const LustreArguments& arguments)
      : arguments_(arguments),
        period_(duration_of(arguments.period, "--period", std::chrono::milliseconds{10},
                            std::chrono::seconds{10})),
        tree_(tree_options(arguments)) {}

  int run() {
    host::pin_heap_thresholds();
    read_options();
    if (!arguments_.dry_run) {
      guard_.emplace(value_or_fail(
          lustre::Guard::start(patience_, [&](auto reason) { remove_rules(arguments_, reason); }),
          Exit::kIoErr, ""));
      map_.emplace(open_map(arguments_.map));
    }
    const host::LogWriter log;  // created after the guard is forked, because it has a thread
    const bool has_map = map_ && !map_->is_new();
    names_.emplace(read_names(arguments_, has_map ? std::optional(map_->text()) : std::nullopt));
    if (!prepare_policy()) return 0;
    make_driver();
    auto signals = value_or_fail(host::SignalFd::create({SIGTERM, SIGINT}), Exit::kIoErr, "");
    auto timer = value_or_fail(host::TimerFd::create(), Exit::kIoErr, "");
    if (arguments_.slurm) {
      slurm_.emplace(arguments_.squeue, slurm_every_);
    }
    host::notify_manager("READY=1");
    in_files_before_ = tree_.in_files();
    print_error("weir lustre: adjusting the rules of ost_io every {}{}\n", print_duration(period_),
                arguments_.dry_run ? " (dry run)" : "");
    loop(signals, timer);
    return finish();
  }

 private:
  // Parses all options before anything is started, so that an error needs no cleanup.
  void read_options() {
    if (arguments_.slurm) {
      pattern_ = value_or_fail(config::JobPattern::parse(arguments_.job_pattern), Exit::kUsage,
                               "--job-pattern");
      slurm_every_ = duration_of(arguments_.slurm_every, "--slurm-every", std::chrono::seconds{1},
                                 std::chrono::hours{1});
    }
    patience_ = duration_of(arguments_.dead_man, "--dead-man", period_ * 2, std::chrono::hours{1});
    if (arguments_.capacity != "auto") {
      capacity_ = value_or_fail(parse_rate(arguments_.capacity), Exit::kUsage, "--capacity");
    }
    if (arguments_.nodes) {
      nodes_ = value_or_fail(config::parse_nodes(value_or_fail(host::read_file(*arguments_.nodes),
                                                               Exit::kNoInput, "--nodes")),
                             Exit::kDataErr, "--nodes");
    }
    (void)read_names(arguments_, std::nullopt);
  }

  // False if there is nothing to do: a dry run does not start tbf.
  bool prepare_policy() {
    const auto policies = lustre::policies_of(tree_);
    const auto type = policies ? lustre::type_of(*policies)
                               : Result<std::string>(tl::unexpected(policies.error()));
    const bool is_curable = policies || policies.error().code == std::errc::invalid_argument;
    if (!type && arguments_.set_policy && arguments_.dry_run && is_curable) {
      for (const char* const command : {"fifo", "tbf jobid"}) {
        fmt::print("{:<60} # nrs_policies: {}\n", command, type.error().what);
      }
      print_error("weir lustre: without tbf there are no rules to show\n");
      return false;
    }
    if (!type && arguments_.set_policy) {
      const auto wait = [] { return poll(nullptr, 0, 50) == 0; };
      print_error("weir lustre: starting 'tbf jobid' on ost_io\n");
      const auto set = lustre::set_policy(tree_, wait);
      if (!set) give_up(set.error());
    } else if (!type) {
      give_up(type.error());
    }
    const auto view = lustre::look(tree_);
    if (!view) give_up(view.error());
    cpts_ = static_cast<std::uint32_t>(view->rules.regular.size());
    return true;
  }

  void make_driver() {
    lustre::Driver::Options options;
    options.dry_run = arguments_.dry_run;
    options.controller.period = period_;
    options.controller.cpts = cpts_;
    options.controller.depth = lustre::depth_of(tree_);
    options.controller.step_percent = arguments_.step;
    options.controller.capacity = capacity_;
    options.patience = patience_;
    driver_.emplace(
        options, tree_, *names_, [this](std::string_view text) { return map_->replace(text); },
        [this](std::string_view command, std::string_view reason) {
          if (!arguments_.dry_run && !arguments_.verbose) return;
          fmt::print("{:<60} # {}\n", command, reason);
          std::fflush(stdout);
        });
    for (const config::JobNodes& size : nodes_) {
      check(driver_->set_nodes(JobId(size.job), size.nodes), Exit::kDataErr, "--nodes");
    }
  }

  void loop(host::SignalFd& signals, host::TimerFd& timer) {
    Instant next = host::now();
    for (std::uint64_t rounds = 0; arguments_.rounds == 0 || rounds < arguments_.rounds; ++rounds) {
      if (guard_) guard_->beat();
      const Instant began = host::now();
      one_round();
      keep_period(host::now() - began);
      const Nanoseconds part = period_ / lustre::Driver::kGlances;
      for (int glances = 0; glances < lustre::Driver::kGlances; ++glances) {
        if (glances > 0) one_glance();
        next = std::max(next + part, host::now() + part / 4);  // never a busy loop
        timer.arm(next);
        if (!wait(signals, timer)) return;
      }
    }
  }

  // A period that rounds cannot keep, because there are many jobs, is lengthened so that at most
  // half of it is spent in rounds.
  void keep_period(Nanoseconds took) {
    slow_rounds_ = took > period_ / 2 ? slow_rounds_ + 1 : 0;
    if (took > period_) ++late_rounds_;
    const Nanoseconds longest = std::min<Nanoseconds>(std::chrono::seconds{10}, patience_ / 2);
    if (slow_rounds_ < kSlowRounds || period_ >= longest) return;
    slow_rounds_ = 0;
    period_ = std::min(std::max(took * 2, period_ * 3 / 2), longest);
    if (std::exchange(told_period_, true)) return;
    print_error(
        "weir lustre: a round takes {}, too long for a period of {}; the period is {} now and "
        "may grow further\n",
        print_duration(std::chrono::ceil<std::chrono::milliseconds>(took)), arguments_.period,
        print_duration(std::chrono::ceil<std::chrono::milliseconds>(period_)));
  }

  // False if it must exit.
  bool wait(host::SignalFd& signals, host::TimerFd& timer) {
    for (;;) {
      if (slurm_) slurm_->tick(host::now(), [this](std::string_view text) { take_sizes(text); });
      pollfd waiting[] = {{signals.fd(), POLLIN, 0},
                          {timer.fd(), POLLIN, 0},
                          {slurm_ ? slurm_->fd() : -1, POLLIN, 0}};
      if (poll(waiting, std::size(waiting), -1) < 0) continue;
      if (signals.next()) return false;
      if (timer.acknowledge()) return true;
    }
  }

  void take_sizes(std::string_view text) {
    auto jobs = config::SlurmJobs::parse(text);
    if (!jobs) return tell(jobs.error().message());
    slurm_jobs_ = std::move(*jobs);
    set_sizes();
  }

  // If Slurm does not know the ids, those of the server's jobs are used.
  void set_sizes() {
    std::vector<std::string> seen;
    if (!pattern_->is_known()) {
      seen.reserve(driver_->controller().demands().size());
      for (const JobDemand& demand : driver_->controller().demands()) {
        seen.emplace_back(demand.job.text());
      }
    }
    sized_ = seen.size();
    const config::SlurmJobs::Sizes sizes = slurm_jobs_->sizes(*pattern_, seen);
    for (const auto& [job, nodes] : sizes_) driver_->forget_nodes(job);
    sizes_.clear();
    for (const config::JobNodes& size : sizes.jobs) {
      const JobId job(size.job);
      if (driver_->set_nodes(job, size.nodes)) sizes_[job] = size.nodes;
    }
    if (sizes.shared == shared_ && sizes.unknown == unknown_) return;
    shared_ = sizes.shared;
    unknown_ = sizes.unknown;
    print_error(
        "weir lustre: of {} job ids, {} belong to hosts that several jobs share and {} to no job "
        "that Slurm knows; each counts as one node\n",
        seen.size(), shared_, unknown_);
  }

  void size_new_jobs() {
    const bool by_seen = slurm_jobs_ && !pattern_->is_known();
    if (by_seen && driver_->controller().demands().size() != sized_) set_sizes();
  }

  void one_round() {
    const Instant began = host::now();
    const auto done = driver_->round(began);
    in_rounds_ += host::now() - began;
    if (done) {
      if (!told_.empty()) print_error("weir lustre: working again\n");
      told_.clear();
      size_new_jobs();
    } else if (!keeps_policy(done.error())) {
      note(done);
    }
    if (!has_given_up_writing()) return;
    const auto removed = driver_->remove_all();
    if (removed && guard_) guard_->dismiss();
    throw Failure{Exit::kTempFail,
                  fmt::format("writes failed in {} consecutive rounds; the rules were {}",
                              kFailedWritesMax, removed ? "removed" : "left to the guard")};
  }

  // A server that was restarted runs fifo. With --set-policy, tbf is started again, at most once in
  // the time after which the guard acts. False: the error is another one.
  bool keeps_policy(const Error& error) {
    const bool is_off = error.code == std::errc::no_such_device;
    if (!arguments_.set_policy || arguments_.dry_run || !is_off) return false;
    const Instant now = host::now();
    if (policy_set_at_ && now - *policy_set_at_ < patience_) return true;
    policy_set_at_ = now;
    const auto policies = lustre::policies_of(tree_);
    if (!policies || lustre::type_of(*policies)) return false;
    print_error("weir lustre: tbf does not run on ost_io; starting 'tbf jobid' again\n");
    note(lustre::set_policy(tree_, [&] {
      if (guard_) guard_->beat();
      return host::now() < now + patience_ && poll(nullptr, 0, 50) == 0;
    }));
    return true;
  }

  // A round without writes, including its glances, gives no information about the server.
  bool has_given_up_writing() {
    const auto& counters = driver_->counters();
    const bool failed = counters.failed_writes != failed_writes_;
    const bool wrote = counters.writes != writes_;
    failed_writes_ = counters.failed_writes;
    writes_ = counters.writes;
    if (failed) ++failed_in_a_row_;
    if (wrote) failed_in_a_row_ = 0;
    return failed_in_a_row_ >= kFailedWritesMax;
  }

  void one_glance() {
    const Instant began = host::now();
    note(driver_->glance(began));
    in_rounds_ += host::now() - began;
  }

  void note(const Result<void>& done) {
    if (!done) tell(done.error().message());
  }

  // Logs the same problem once.
  void tell(const std::string& message) {
    if (message == told_) return;
    told_ = message;
    print_error("weir lustre: {}; trying again\n", message);
  }

  int finish() {
    const auto& counters = driver_->counters();
    const Nanoseconds in_files = tree_.in_files() - in_files_before_;
    if (!arguments_.dry_run) {
      const auto removed = driver_->remove_all();
      if (!removed) give_up(removed.error());
      if (guard_) guard_->dismiss();
    }
    const auto rounds = static_cast<std::int64_t>(std::max<std::uint64_t>(counters.rounds, 1));
    const auto us = [&](Nanoseconds time) { return time.count() / rounds / 1000; };
    print_error(
        "weir lustre: {} rounds, {} late, {} writes, {} failed, {} repairs, {} processes of lctl; "
        "{} us a round and {} us in files\n",
        counters.rounds, late_rounds_, counters.writes, counters.failed_writes, counters.repairs,
        tree_.lctl_started(), us(in_rounds_ - in_files), us(in_files));
    return 0;
  }

  const LustreArguments& arguments_;
  Nanoseconds period_;
  Nanoseconds patience_{0};
  std::uint32_t cpts_ = 1;  // used by ost_io; the server may have more
  Nanoseconds slurm_every_{0};
  std::optional<Rate> capacity_;
  std::vector<config::JobNodes> nodes_;
  lustre::HostTree tree_;
  std::optional<lustre::Guard> guard_;
  std::optional<host::StateFile> map_;
  std::optional<lustre::Names> names_;
  std::optional<lustre::Driver> driver_;
  std::optional<SlurmPoll> slurm_;
  std::optional<config::JobPattern> pattern_;
  std::optional<config::SlurmJobs> slurm_jobs_;
  std::map<JobId, std::uint64_t> sizes_;
  std::size_t sized_ = 0;  // ids that were seen then
  std::uint64_t shared_ = 0;
  std::uint64_t unknown_ = 0;
  std::string told_;
  Nanoseconds in_rounds_{0};
  int slow_rounds_ = 0;  // in a row
  std::uint64_t late_rounds_ = 0;
  bool told_period_ = false;
  std::optional<Instant> policy_set_at_;
  Nanoseconds in_files_before_{0};
  std::uint64_t failed_writes_ = 0;  // at the last round
  std::uint64_t writes_ = 0;
  int failed_in_a_row_ = 0;
};

int drive(const LustreArguments& arguments) {
  if (arguments.action == "check") return check_server(arguments);
  if (arguments.action == "run") return LustreRun(arguments).run();
  throw Failure{Exit::kUsage,
                fmt::format("{} is not an action; expected check or run", quote(arguments.action))};
}

}  // namespace

void add_lustre(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<LustreArguments>();
  CLI::App* command = weir.add_subcommand(
      "lustre", "Adjust the TBF rules of a Lustre server to the load of its jobs");
  command->add_option("ACTION", arguments->action, "check or run")->required();
  command->add_flag("--dry-run", arguments->dry_run,
                    "Print every command with its reason; write nothing");
  command->add_flag("--set-policy", arguments->set_policy,
                    "Start 'tbf jobid' on ost_io if it does not run; existing rules are lost");
  command->add_option("--period", arguments->period, "Compute the rules every TIME (default 20ms)")
      ->type_name("TIME");
  command
      ->add_option("--capacity", arguments->capacity,
                   "Requests per second that the server can do, or auto (default)")
      ->type_name("RATE");
  command
      ->add_option("--step", arguments->step,
                   "Write a rate only if it differs by more than PERCENT (default 10)")
      ->type_name("PERCENT")
      ->check(CLI::Range(1, 100));
  command
      ->add_option("--nodes", arguments->nodes,
                   "Read the number of nodes of jobs from FILE, lines 'JOB NODES'")
      ->type_name("FILE");
  command->add_flag("--slurm", arguments->slurm,
                    "Read the number of nodes of jobs from squeue --json");
  command
      ->add_option("--job-pattern", arguments->job_pattern,
                   "Job id of a Slurm job in Lustre, such as %j.%u or %e.%H (default %j)")
      ->type_name("PATTERN");
  command
      ->add_option("--slurm-every", arguments->slurm_every, "Query Slurm every TIME (default 10s)")
      ->type_name("TIME");
  command
      ->add_option("--squeue", arguments->squeue,
                   "Run this program to query Slurm (default squeue)")
      ->type_name("PATH");
  command
      ->add_option("--prefix", arguments->prefix,
                   "Start the names of rules with NAME (default weir)")
      ->type_name("NAME");
  command
      ->add_option(
          "--map", arguments->map,
          "Keep the map from rule names to jobs in FILE (default /var/lib/weir/lustre.map)")
      ->type_name("FILE");
  command
      ->add_option("--dead-man", arguments->dead_man,
                   "Remove the rules if no period has started for TIME (default 5s)")
      ->type_name("TIME");
  command->add_option("--root", arguments->root, "Prefix every path of the server with DIR")
      ->type_name("DIR");
  command
      ->add_option("--lctl", arguments->lctl,
                   "Write with lctl: auto (default: if files cannot be opened), always or never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command
      ->add_option("--lctl-program", arguments->lctl_program,
                   "Run this program as lctl (default lctl)")
      ->type_name("PATH");
  command->add_option("--rounds", arguments->rounds, "Exit after N periods (default 0: never)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("-v,--verbose", arguments->verbose, "Print every command with its reason");
  command->footer(kFooter);
  command->callback([arguments, &status] { status = drive(*arguments); });
}

}  // namespace weir::app
