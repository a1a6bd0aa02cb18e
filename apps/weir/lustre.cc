// SPDX-License-Identifier: Apache-2.0
//
// weir lustre: adjusts the rules of a Lustre server to its counters. This file has the arguments
// and `check`; the other actions are in lustre_*.cc.
#include "apps/weir/lustre.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/files.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
ACTION is one of
  check     report what the server has and what is missing; change nothing
  run       adjust the rules of its services until SIGTERM or SIGINT, then remove them
  record    observe the server and write what it sees to the file OBJECT
  what-if   report what run would have done in the recording OBJECT
  status    show the load and the counters of a run; also metrics, for Prometheus
  top       show the jobs of a run
  explain   tell why a run holds the job OBJECT, or does not
  ledger    show what the jobs of a run have lent and borrowed
  limit     start, change, stop or list limits of all servers of a cluster, through a run

Examples:
  weir lustre check
  weir lustre run --dry-run
  weir lustre record /var/tmp/monday
  weir lustre what-if /var/tmp/monday --nodes sizes
  weir lustre run --slurm --job-pattern %j
  weir lustre explain ior.500
  weir lustre run --cluster /etc/weir.conf
  weir lustre limit start dd 'jobid={dd.*}' rate=1000

Changes only rules that it created, and the policy only with --set-policy. Manual: weir-lustre(1).
docs/runbook-lustre.md describes how to try it on a server.)";

}  // namespace

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

RuleController::Options controller_options(const LustreArguments& arguments) {
  const bool is_paper = arguments.algorithm == "paper";
  RuleController::Options options =
      is_paper ? RuleController::Options::paper() : RuleController::Options{};
  if (arguments.period) {
    options.period = duration_of(*arguments.period, "--period", std::chrono::milliseconds{10},
                                 std::chrono::seconds{10});
  }
  options.step_percent = arguments.step;
  if (arguments.capacity != "auto") {
    options.capacity = value_or_fail(parse_rate(arguments.capacity), Exit::kUsage, "--capacity");
  }
  if (is_paper && !options.capacity) {
    throw Failure{Exit::kUsage,
                  "--algorithm paper: needs --capacity RATE; the published algorithm divides a "
                  "rate that it does not measure"};
  }
  return options;
}

std::vector<config::JobNodes> nodes_of(const LustreArguments& arguments) {
  if (!arguments.nodes) return {};
  return value_or_fail(config::parse_nodes(value_or_fail(host::read_file(*arguments.nodes),
                                                         Exit::kNoInput, "--nodes")),
                       Exit::kDataErr, "--nodes");
}

std::vector<const lustre::Service*> services_of(const LustreArguments& arguments,
                                                lustre::Tree& tree) {
  std::vector<const lustre::Service*> services;
  for (const std::string& name : arguments.services) {
    for (const lustre::Service* const service : kLustreServices) {
      const bool is_known = std::find(services.begin(), services.end(), service) != services.end();
      if (service->name == name && !is_known) services.push_back(service);
    }
  }
  if (!arguments.services.empty()) return services;
  for (const lustre::Service* const service : {&lustre::kOstService, &lustre::kMdtService}) {
    if (lustre::targets_of(tree, *service)) services.push_back(service);
  }
  if (services.empty()) services.push_back(&lustre::kOstService);
  return services;
}

std::string map_path(const LustreArguments& arguments, const lustre::Service& service) {
  if (&service == &lustre::kOstService) return arguments.map;
  return fmt::format("{}.{}", arguments.map, service.name);
}

lustre::Costing costing_of(const LustreArguments& arguments) {
  using Costing = lustre::Costing;
  if (arguments.costs == "measured") return {};
  if (arguments.costs == "equal") return {.kind = Costing::Kind::kEqual, .operations = {}};
  return value_or_fail(
      Costing::parse(value_or_fail(host::read_file(arguments.costs), Exit::kNoInput, "--costs")),
      Exit::kDataErr, "--costs");
}

lustre::Names read_names(const LustreArguments& arguments, const std::string& path,
                         const std::optional<std::string>& map) {
  check(lustre::Names::read(arguments.prefix, "").map([](const auto&) {}), Exit::kUsage, "");
  const std::string where = "--map " + quote(path);
  if (map && map->empty()) {
    throw Failure{Exit::kCantCreate,
                  fmt::format("{}: is empty, so rules of an earlier run are no longer "
                              "known; restore it, or remove it and stop the rules whose "
                              "names start with {}",
                              where, arguments.prefix)};
  }
  return value_or_fail(lustre::Names::read(arguments.prefix, map.value_or("")), Exit::kCantCreate,
                       where);
}

namespace {

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

void check_jobs(lustre::Tree& tree, const lustre::Service& service, Checklist& list) {
  const auto targets = lustre::targets_of(tree, service);
  if (!targets) return list.miss("targets", targets.error());
  for (const std::string& name : *targets) {
    const auto view = lustre::target_view(tree, name, service);
    if (!view) {
      list.miss("target", view.error());
      continue;
    }
    std::size_t unnamed = 0;
    for (const lustre::JobCounters& job : view->jobs) unnamed += !lustre::is_expressible(job.job);
    list.tell(
        "target",
        fmt::format(
            "{}: {} job{} in job_stats{}{}{}", name, view->jobs.size(),
            view->jobs.size() == 1 ? "" : "s", view->is_cut ? ", which is truncated" : "",
            unnamed == 0 ? std::string() : fmt::format(", {} that no rule can name", unnamed),
            !view->totals.empty() ? "" : "; no stats, so jobs that vanish cannot be detected"));
  }
}

void check_rules(lustre::Tree& tree, const lustre::Service& service, const lustre::Names& names,
                 Checklist& list) {
  const auto rules = lustre::rules_of(tree, service);
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

void check_service(const LustreArguments& arguments, lustre::HostTree& tree,
                   const lustre::Service& service, Checklist& list) {
  const std::string path = map_path(arguments, service);
  const auto map = host::read_file(path);
  const lustre::Names names =
      read_names(arguments, path, map ? std::optional(*map) : std::optional<std::string>());
  check_jobs(tree, service, list);
  const auto policies = lustre::policies_of(tree, service);
  if (!policies) return list.miss("policy", policies.error());
  list.tell("CPTs", fmt::format("{}; each change of a rule gives up to {} free tokens on each",
                                lustre::partitions_of(tree), lustre::depth_of(tree)));
  const auto type = lustre::type_of(*policies, service);
  if (type) {
    list.tell("policy", fmt::format("tbf {}; {} requests wait", type->empty() ? "(generic)" : *type,
                                    policies->queued()));
    check_rules(tree, service, names, list);
  } else {
    list.miss("policy", type.error());
  }
  const auto way = tree.way_of_writing(service.rules);
  way ? list.tell("writes", *way + " to nrs_tbf_rule") : list.miss("writes", way.error());
  check_map(path, list);
}

int check_server(const LustreArguments& arguments) {
  lustre::HostTree tree(tree_options(arguments));
  Checklist list;
  const auto services = services_of(arguments, tree);
  for (const lustre::Service* const service : services) {
    if (services.size() > 1) list.tell("service", std::string(service->name));
    check_service(arguments, tree, *service, list);
  }
  return list.finish();
}

int drive(const LustreArguments& arguments) {
  const std::string& action = arguments.action;
  const bool needs_object = action == "record" || action == "what-if" || action == "explain";
  if (needs_object && arguments.object.empty()) {
    throw Failure{Exit::kUsage,
                  fmt::format("{}: expected {}", action, action == "explain" ? "a job" : "a file")};
  }
  if (action == "limit") return limit_lustre(arguments);
  if (!arguments.words.empty()) {
    throw Failure{Exit::kUsage, fmt::format("{}: unexpected argument {}", action,
                                            quote(arguments.words.front()))};
  }
  if (!needs_object && !arguments.object.empty()) {
    throw Failure{Exit::kUsage,
                  fmt::format("{}: unexpected argument {}", action, quote(arguments.object))};
  }
  if (action == "check") return check_server(arguments);
  if (action == "run") return run_lustre(arguments);
  if (action == "record") return record_lustre(arguments);
  if (action == "what-if") return decide_over_recording(arguments);
  for (const char* const shown : {"status", "top", "explain", "ledger", "metrics"}) {
    if (action == shown) return show_lustre(arguments);
  }
  throw Failure{Exit::kUsage,
                fmt::format("{} is not an action; expected check, run, record, what-if, status, "
                            "top, explain, ledger, metrics or limit",
                            quote(action))};
}

void add_operation(CLI::App& command, LustreArguments& arguments) {
  command.add_option("ACTION", arguments.action, "What to do, see below")->required();
  command.add_option("OBJECT", arguments.object,
                     "Recording of record and what-if, job of explain, or command of limit");
  command.add_option("WORDS", arguments.words, "Arguments of limit: NAME CONDITIONS KEY=VALUE...");
  command.add_flag("--dry-run", arguments.dry_run,
                   "Print every command with its reason; write nothing");
  command.add_flag("--set-policy", arguments.set_policy,
                   "Start 'tbf jobid' if it does not run; existing rules are lost");
  command
      .add_option("--algorithm", arguments.algorithm,
                  "Decide as Weir does (weir, the default), or as the AdapTBF paper (paper)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"weir", "paper"}));
  command
      .add_option("--period", arguments.period,
                  "Compute the rules every TIME (default 20ms; with paper 100ms)")
      ->type_name("TIME");
  command
      .add_option("--size", arguments.size,
                  "Record at most SIZE a day, less often if necessary (default 100MB)")
      ->type_name("SIZE");
  command
      .add_option("--control", arguments.remote.socket,
                  "Listen on, or ask, this control socket (default /run/weir-lustre.sock)")
      ->type_name("PATH");
  command
      .add_option("--control-tcp", arguments.control_tcp,
                  "Serve the console on this loopback address as well; requires --control-token")
      ->type_name("ADDRESS:PORT");
  command
      .add_option("--control-token", arguments.control_token,
                  "Read the tokens for --control-tcp from this file")
      ->type_name("FILE");
  command.add_flag("--json", arguments.remote.json, "Print the response of the driver as JSON");
  command
      .add_option("--service", arguments.services,
                  "Service to adjust, may be repeated (default: ost_io and mdt, as mounted)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"ost_io", "mdt", "mdt_readpage", "mdt_io"}));
  command
      .add_option("--cluster", arguments.cluster,
                  "Join the cluster of the section [cluster] in this file")
      ->type_name("FILE");
  command
      .add_option(
          "--costs", arguments.costs,
          "What requests cost: the time they take (measured, the default), equal, or a file "
          "with lines 'OPERATION COST'")
      ->type_name("HOW");
  command
      .add_option("--capacity", arguments.capacity,
                  "Requests per second that the server can do, or auto (default)")
      ->type_name("RATE");
  command
      .add_option("--step", arguments.step,
                  "Write a rate only if it differs by more than PERCENT (default 10)")
      ->type_name("PERCENT")
      ->check(CLI::Range(1, 100));
}

void add_sizes(CLI::App& command, LustreArguments& arguments) {
  command
      .add_option("--nodes", arguments.nodes,
                  "Read the number of nodes of jobs from FILE, lines 'JOB NODES'")
      ->type_name("FILE");
  command.add_flag("--slurm", arguments.slurm,
                   "Read the number of nodes of jobs from squeue --json");
  command
      .add_option("--job-pattern", arguments.job_pattern,
                  "Job id of a Slurm job in Lustre, such as %j.%u or %e.%H (default %j)")
      ->type_name("PATTERN");
  command
      .add_option("--job-facts", arguments.job_facts,
                  "Read whose jobs are whose, for limits, from FILE, lines 'GLOB KEY=VALUE...'")
      ->type_name("FILE");
  command
      .add_option("--slurm-every", arguments.slurm_every, "Query Slurm every TIME (default 10s)")
      ->type_name("TIME");
  command
      .add_option("--squeue", arguments.squeue, "Run this program to query Slurm (default squeue)")
      ->type_name("PATH");
}

void add_files(CLI::App& command, LustreArguments& arguments) {
  command
      .add_option("--prefix", arguments.prefix, "Start the names of rules with NAME (default weir)")
      ->type_name("NAME");
  command
      .add_option("--map", arguments.map,
                  "Keep the map from rule names to jobs in FILE (default /var/lib/weir/lustre.map)")
      ->type_name("FILE");
  command
      .add_option("--dead-man", arguments.dead_man,
                  "Remove the rules if no period has started for TIME (default 5s)")
      ->type_name("TIME");
  command.add_option("--root", arguments.root, "Prefix every path of the server with DIR")
      ->type_name("DIR");
  command
      .add_option("--lctl", arguments.lctl,
                  "Write with lctl: auto (default: if files cannot be opened), always or never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command
      .add_option("--lctl-program", arguments.lctl_program,
                  "Run this program as lctl (default lctl)")
      ->type_name("PATH");
  command.add_option("--rounds", arguments.rounds, "Exit after N periods (default 0: never)")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("-v,--verbose", arguments.verbose, "Print every command with its reason");
}

}  // namespace

std::string lustre_version() { return "weir-lustre " WEIR_VERSION; }

void add_lustre(CLI::App& weir, int& status) { add_lustre_command(weir, status, nullptr); }

void add_lustre_command(CLI::App& weir, int& status, OpenLustreCluster open) {
  auto arguments = std::make_shared<LustreArguments>();
  arguments->open_cluster = open;
  CLI::App* command = weir.add_subcommand(
      "lustre", "Adjust the TBF rules of a Lustre server to the load of its jobs");
  add_operation(*command, *arguments);
  add_sizes(*command, *arguments);
  add_files(*command, *arguments);
  command->footer(kFooter);
  command->callback([arguments, &status] { status = drive(*arguments); });
}

}  // namespace weir::app
