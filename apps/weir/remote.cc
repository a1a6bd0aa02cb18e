// SPDX-License-Identifier: Apache-2.0
//
// weir status, explain, ledger, job and rule: a server's API as commands.
#include "apps/weir/remote.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"

namespace weir::app {
namespace {

constexpr const char* kStatusFooter = R"(
Examples:
  weir status
  weir status --json | jq .services

Manual: weir-status(1).)";

constexpr const char* kExplainFooter = R"(
Examples:
  weir explain ior.17
  weir explain default/dd.500
  weir explain --json ior.17

Manual: weir-explain(1).)";

constexpr const char* kLedgerFooter = R"(
Examples:
  weir ledger
  weir ledger --json

Manual: weir-ledger(1).)";

constexpr const char* kRuleFooter = R"(
Examples:
  weir rule start dd 'jobid={dd.*}' rate=100
  weir rule change dd rate=200
  weir rule list
  weir rule stop dd

Manual: weir-rule(1). Syntax of rules: weir-rules(7).)";

constexpr const char* kJobFooter = R"(
Examples:
  weir job add ior.17 64
  weir job set ior.17 32
  weir job list
  weir job rm ior.17

Manual: weir-job(1).)";

Exit status_of(const Error& error) {
  switch (error.code) {
    case std::errc::no_such_file_or_directory:
      return Exit::kNoInput;
    case std::errc::not_connected:
    case std::errc::connection_reset:
    case std::errc::host_unreachable:  // etcd
      return Exit::kUnavailable;
    case std::errc::timed_out:
    case std::errc::protocol_error:
    case std::errc::operation_canceled:
    case std::errc::resource_unavailable_try_again:
    case std::errc::no_space_on_device:
    case std::errc::io_error:
      return Exit::kTempFail;
    default:
      return Exit::kDataErr;
  }
}

Json parsed(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Failure{Exit::kTempFail, "the server's response is not JSON"};
  return json;
}

std::string capacity_text(const Json& service) {
  if (service["capacity"].is_null()) return "unknown";
  const auto capacity = service["capacity"].get<std::uint64_t>();
  if (service["capacity_unit"] == "bytes") {
    return short_number(static_cast<double>(capacity)) + "B/s";
  }
  return capacity < 10'000 ? std::to_string(capacity) : short_number(static_cast<double>(capacity));
}

// The turns of its groups of clients, if there are any.
void show_groups(const Json& service) {
  const Json& all = service["groups"];
  if (all.is_null()) return;
  const auto step = all["step"].get<std::string>();
  fmt::print("\n{:<12} {:<20} {:>10} {:>8}  {}\n", "SERVICE", "GROUP", "TURNS", "WAITING",
             step == "own"        ? "TURNS OF THIS SERVER ALONE"
             : step == "cluster"  ? "IN STEP WITH THE CLUSTER"
             : step == "mixed"    ? "SERVERS HAVE DIFFERENT GROUPS: NO TURNS"
             : step == "inactive" ? "NO TURNS UNDER THIS POLICY"
                                  : "CUT OFF FROM THE CLUSTER: TURNS OF THIS SERVER ALONE");
  for (const Json& one : all["groups"]) {
    fmt::print("{:<12} {:<20} {:>10} {:>8}  {}\n", service["service"].get<std::string>(),
               one["group"].get<std::string>(), one["turns"].get<std::uint64_t>(),
               one["waiting"].get<std::uint64_t>(),
               one["group"] == all["preferred"] ? "preferred" : "");
  }
}

void show_status(const Json& status) {
  std::uint64_t longest = 0;
  for (const Json& one : status["threads"]) {
    longest = std::max(longest, one["longest_turn_ns"].get<std::uint64_t>());
  }
  const std::size_t threads = status["threads"].size();
  fmt::print("weir {}, {} connections, {} requests, I/O with {}, {} thread{}, longest turn {}\n",
             status["version"].get<std::string>(), status["connections"].get<std::uint64_t>(),
             status["counters"]["requests"].get<std::uint64_t>(), status["io"].get<std::string>(),
             threads, threads == 1 ? "" : "s", short_time(static_cast<double>(longest)));
  if (const auto dropped = status["counters"]["log_dropped"].get<std::uint64_t>(); dropped > 0) {
    fmt::print("log       {} lines could not be written to standard error\n", dropped);
  }
  for (const Json& one : status["hung_exports"]) {
    fmt::print(
        "hung      export {}: its store has completed no request for {}; {} requests wait: check "
        "the device or file server behind it\n",
        quote(one["export"].get<std::string>()), short_time(one["silent_ns"].get<double>()),
        one["unfinished"].get<std::uint64_t>() + one["kept"].get<std::uint64_t>());
  }
  fmt::print("{:<12} {:<14} {:>10} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6}  {}\n", "SERVICE", "POLICY",
             "CAPACITY", "QUEUED", "RUNNING", "SLOTS", "CLASSES", "JOBS", "RULES", "ADAPTIVE");
  for (const Json& one : status["services"]) {
    fmt::print("{:<12} {:<14} {:>10} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6}  {}\n",
               one["service"].get<std::string>(), one["policy"].get<std::string>(),
               capacity_text(one), one["queued"].get<std::uint64_t>(),
               one["running"].get<std::uint64_t>(), one["slots"]["count"].get<std::uint64_t>(),
               one["classes"].get<std::uint64_t>(), one["jobs"].get<std::uint64_t>(),
               one["rules"].get<std::uint64_t>(), one["adaptive"].get<std::string>());
  }
  for (const Json& one : status["services"]) {
    for (const Json& note : one["notes"]) {
      fmt::print("note      service {}: {}\n", one["service"].get<std::string>(),
                 note.get<std::string>());
    }
  }
  for (const Json& one : status["services"]) show_groups(one);
  for (const Json& one : status["services"]) {
    if (one["tree"].is_null()) continue;
    fmt::print("shares    service {}: tree {}, {} nodes above the jobs (weir ledger --nodes)\n",
               one["service"].get<std::string>(), one["tree"]["levels"].get<std::string>(),
               one["tree"]["nodes"].get<std::uint64_t>());
  }
  for (const Json& one : status["services"]) {
    const double scale = one["reserve_permille"].get<double>() / 10;
    if (scale == 100) continue;
    fmt::print(
        "reserved  service {}: the reservations in use exceed 90 % of the capacity; each is "
        "reduced to {:.1f} %\n",
        one["service"].get<std::string>(), scale);
  }
}

// Of each request and of all in the window, with the part of the wait.
void show_causes(const Json& delays) {
  fmt::print("{}\n", delays["text"].get<std::string>());
  if (delays["causes"].empty()) return;
  const double wait = delays["wait_ns"].get<double>();
  fmt::print("  {:<6} {:>9} {:>9}\n", "", "each", "total");
  for (const Json& one : delays["causes"]) {
    const auto cause = one["cause"].get<std::string>();
    const bool is_wait = cause != "device" && cause != "all";
    const double part = wait > 0 ? 100 * one["total_ns"].get<double>() / wait : 0;
    fmt::print("  {:<6} {:>9} {:>9} {:>6}  {}\n", cause, one["each"].get<std::string>(),
               one["total"].get<std::string>(), is_wait ? fmt::format("{:.0f} %", part) : "",
               one["text"].get<std::string>());
  }
}

void show_explanation(const Json& it) {
  fmt::print("{}\n", it["verdict"].get<std::string>());
  if (!it["cure"].is_null()) fmt::print("to change it: {}\n", it["cure"].get<std::string>());
  fmt::print("\n");
  for (const Json& fact : it["facts"]) {
    fmt::print("{:<9} {}\n", fact["name"].get<std::string>(), fact["text"].get<std::string>());
  }
  if (!it["delays"].is_null()) show_causes(it["delays"]);
  if (it["standing"].empty()) return;
  fmt::print("job       {}\n", it["job"]["job"].get<std::string>());
  for (const Json& sentence : it["standing"]) fmt::print("  {}\n", sentence.get<std::string>());
}

// Without a loan, a record is that of the allocations of periods: then 0 would look like a mistake.
void show_ledger(const Json& accounts) {
  const bool has_tree = std::any_of(accounts.begin(), accounts.end(),
                                    [](const Json& one) { return !one["path"].is_null(); });
  bool has_gaps = false;
  fmt::print("{:<32} {:>12} {:>12} {:>12}{}\n", "JOB", "RECORD", "LENT", "BORROWED",
             has_tree ? "  NODE" : "");
  for (const Json& one : accounts) {
    const auto record = one["record"].get<std::int64_t>();
    const auto lent = one["lent"].get<std::uint64_t>();
    const auto borrowed = one["borrowed"].get<std::uint64_t>();
    const Json& path = one["path"];
    const bool has_loans = lent > 0 || borrowed > 0;
    has_gaps |= record != 0 && !has_loans;
    fmt::print("{:<32} {:>12} {:>12} {:>12}{}\n", one["job"].get<std::string>(), record,
               has_loans ? std::to_string(lent) : "-", has_loans ? std::to_string(borrowed) : "-",
               path.is_null() ? "" : "  " + path.get<std::string>());
  }
  if (has_gaps) {
    fmt::print(
        "-: no loans within periods; the record comes from the allocations of the periods\n");
  }
}

// The nodes above the jobs in a tree of shares.
void show_nodes(const Json& nodes) {
  fmt::print("{:<32} {:<8} {:>12} {:>10} {:>12} {:>12} {:>12}\n", "NODE", "LEVEL", "WEIGHT",
             "SHARE", "RECORD", "LENT", "BORROWED");
  for (const Json& one : nodes) {
    const Json& share = one["share"];
    const std::string weight = fmt::format("{}/{}", one["weight"].get<std::uint64_t>(),
                                           one["weights"].get<std::uint64_t>());
    auto node = one["path"].get<std::string>();
    if (!one["name"].is_null()) node += " (" + one["name"].get<std::string>() + ")";
    fmt::print("{:<32} {:<8} {:>12} {:>10} {:>12} {:>12} {:>12}\n", node,
               one["level"].get<std::string>(), weight,
               share.is_null() ? "-" : std::to_string(share.get<std::uint64_t>()),
               one["record"].get<std::int64_t>(), one["lent"].get<std::uint64_t>(),
               one["borrowed"].get<std::uint64_t>());
  }
}

void show_rules(const Json& rules) {
  fmt::print("{:<16} {:<24} {:>7} {:<8} {:<9} {}\n", "RULE", "LIMITS", "CLASSES", "PRIORITY",
             "STATE", "CONDITIONS");
  for (const Json& one : rules) {
    auto limits = one["limits"].get<std::string>();
    if (limits.empty()) limits = "none";
    fmt::print("{:<16} {:<24} {:>7} {:<8} {:<9} {}\n", one["rule"].get<std::string>(), limits,
               one["classes"].get<std::uint64_t>(), one["heads"].get<std::string>(),
               one["state"].get<std::string>(), one["conditions"].get<std::string>());
  }
}

// Arguments of all commands, and of some.
struct Arguments {
  Remote remote;
  std::string service = "ost_io";
  std::string name;
  std::vector<std::string> words;
  std::uint64_t nodes = 0;
  bool of_nodes = false;  // instead of jobs
};

using Callback = void (*)(const Arguments&);

// A command with its own callback.
CLI::App* add(CLI::App& parent, const char* name, const char* help, const char* footer,
              Callback callback, const std::shared_ptr<Arguments>& arguments, int& status) {
  CLI::App* const command = parent.add_subcommand(name, help);
  command->footer(footer);
  arguments->remote.add_to(*command);
  command->callback([arguments, callback, &status] {
    callback(*arguments);
    status = static_cast<int>(Exit::kOk);
  });
  return command;
}

void show(const Arguments& arguments, const std::string& target, void (*printer)(const Json&)) {
  const std::string text = arguments.remote.ask("GET", target);
  if (arguments.remote.json) {
    fmt::print("{}", text);
  } else {
    printer(parsed(text));
  }
}

void confirm(const Arguments& arguments, const std::string& answer) {
  if (arguments.remote.json) fmt::print("{}", answer);
}

std::string service_path(const Arguments& arguments, const char* what) {
  return fmt::format("/v1/services/{}/{}", control::url_text(arguments.service), what);
}

// The names in a list of the server; none if it does not answer.
std::vector<std::string> names_in(const Remote& remote, const std::string& list, const char* key) {
  const auto answer = remote.client().ask("GET", list);
  const Json found = answer ? Json::parse(answer->body, nullptr, false) : Json();
  std::vector<std::string> names;
  if (!found.is_array()) return names;
  for (const Json& one : found) names.push_back(one.value(key, ""));
  return names;
}

// "; did you mean 'dd'?" with the nearest of the names that a list of the server has, or nothing.
std::string suggestion(const Remote& remote, const std::string& list, const char* key,
                       std::string_view name) {
  const std::vector<std::string> names = names_in(remote, list, key);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto best = nearest(name, views);
  return best ? "; did you mean " + quote(*best) + "?" : "";
}

void send_rule(const Arguments& arguments, const std::string& verb) {
  std::string command = verb;
  for (const std::string& word : arguments.words) command += " " + word;
  try {
    confirm(arguments, arguments.remote.ask("POST", service_path(arguments, "rules"),
                                            Json{{"command", command}}.dump()));
  } catch (Failure& failure) {
    if (failure.status == Exit::kNoInput && !arguments.words.empty()) {
      failure.message += suggestion(arguments.remote, service_path(arguments, "rules"), "rule",
                                    arguments.words.front());
    }
    throw;
  }
}

// The server accepts that an unknown rule is stopped, as Lustre's do and so that a repeated request
// is harmless. A person who types a wrong name has to know.
void stop_rule(const Arguments& arguments) {
  const std::string& name = arguments.words.front();
  const std::string list = service_path(arguments, "rules");
  const auto names = names_in(arguments.remote, list, "rule");
  const bool is_listed = std::find(names.begin(), names.end(), name) != names.end();
  if (!names.empty() && !is_listed) {
    throw Failure{Exit::kNoInput, "no rule named " + quote(name) +
                                      suggestion(arguments.remote, list, "rule", name)};
  }
  send_rule(arguments, "stop");
}

void explain(const Arguments& it) {
  const std::string in = it.service.empty() ? "" : "&service=" + control::url_text(it.service);
  try {
    show(it, "/v1/explain?name=" + control::url_text(it.name) + in, show_explanation);
  } catch (Failure& failure) {
    if (failure.status == Exit::kNoInput) {
      const std::string service = it.service.empty() ? "ost_io" : it.service;
      failure.message += suggestion(
          it.remote, "/v1/services/" + control::url_text(service) + "/jobs", "job", it.name);
    }
    throw;
  }
}

void send_job(const Arguments& arguments, std::string_view method, const std::string& body) {
  confirm(arguments,
          arguments.remote.ask(method, "/v1/jobs/" + control::url_text(arguments.name), body));
}

// A command with subcommands; options may follow anywhere.
CLI::App* add_group(CLI::App& weir, const char* name, const char* help, const char* footer,
                    const std::shared_ptr<Arguments>& arguments) {
  CLI::App* const group = weir.add_subcommand(name, help);
  group->footer(footer);
  group->require_subcommand(1);
  arguments->remote.add_to(*group);
  return group;
}

CLI::App* add_below(CLI::App& group, const char* name, const char* help, Callback callback,
                    const std::shared_ptr<Arguments>& arguments, int& status) {
  CLI::App* const command = group.add_subcommand(name, help);
  command->fallthrough();
  command->callback([arguments, callback, &status] {
    callback(*arguments);
    status = static_cast<int>(Exit::kOk);
  });
  return command;
}

void add_rule_commands(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const rule =
      add_group(weir, "rule", "Start, change, stop and list rules of a running server", kRuleFooter,
                arguments);
  rule->add_option("--service", arguments->service, "Use this service (default ost_io)")
      ->type_name("NAME");
  const auto with = [&](const char* name, const char* help, Callback callback, const char* words) {
    CLI::App* const command = add_below(*rule, name, help, callback, arguments, status);
    if (words == nullptr) return;
    command->add_option("rule", arguments->words, words)->required()->type_name("WORD");
  };
  with(
      "start", "Start a rule: NAME CONDITIONS [KEY=VALUE...]",
      [](const Arguments& it) { send_rule(it, "start"); }, "See weir-rules(7)");
  with(
      "change", "Change a rule: NAME KEY=VALUE...",
      [](const Arguments& it) { send_rule(it, "change"); }, "See weir-rules(7)");
  with("stop", "Stop a rule", stop_rule, "Name of the rule");
  with(
      "list", "List the rules",
      [](const Arguments& it) { show(it, service_path(it, "rules"), show_rules); }, nullptr);
}

void list_jobs(const Arguments& arguments) {
  show(arguments, "/v1/jobs", [](const Json& jobs) {
    for (const Json& one : jobs) {
      fmt::print("{:<32} {:>8}\n", one["job"].get<std::string>(),
                 one["nodes"].get<std::uint64_t>());
    }
  });
}

void set_job(const Arguments& it) { send_job(it, "PUT", Json{{"nodes", it.nodes}}.dump()); }

// The server accepts any job, because its size may be set before it starts. A person who types a
// wrong name has to know.
void change_job(const Arguments& it) {
  std::vector<std::string> names = names_in(it.remote, "/v1/jobs", "job");
  for (const std::string& service : names_in(it.remote, "/v1/services", "service")) {
    const std::string jobs = "/v1/services/" + control::url_text(service) + "/jobs";
    // The list is bounded: the filter finds the job, the list has names to suggest.
    for (const std::string& list : {jobs + "?filter=" + control::url_text(it.name), jobs}) {
      for (std::string& name : names_in(it.remote, list, "job")) names.push_back(std::move(name));
    }
  }
  set_job(it);
  if (std::find(names.begin(), names.end(), it.name) != names.end()) return;
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto best = nearest(it.name, views);
  print_error("weir: job {} was not known: its number of nodes is set for when it starts{}\n",
              quote(it.name), best ? "; did you mean " + quote(*best) + "?" : "");
}

void add_job_commands(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const job = add_group(
      weir, "job", "Set the number of nodes of jobs on a running server", kJobFooter, arguments);
  const auto with = [&](const char* name, const char* help, Callback callback, bool has_nodes) {
    CLI::App* const command = add_below(*job, name, help, callback, arguments, status);
    command->add_option("job", arguments->name, "Job id")->required()->type_name("JOB");
    if (!has_nodes) return;
    command->add_option("nodes", arguments->nodes, "Number of nodes")
        ->required()
        ->type_name("NODES")
        ->check(not_negative());
  };
  with("add", "Set the number of nodes of a job, which may start later", set_job, true);
  with("set", "The same as add, with a message if the job is not known", change_job, true);
  with(
      "rm", "Remove this setting of a job", [](const Arguments& it) { send_job(it, "DELETE", ""); },
      false);
  add_below(*job, "list", "List the jobs that were set", list_jobs, arguments, status);
}

}  // namespace

control::ControlAnswer Remote::answer(std::string_view method, const std::string& target,
                                      std::string_view body) const {
  auto answer = client().ask(method, target, body);
  if (!answer) throw Failure{status_of(answer.error()), answer.error().message()};
  return std::move(*answer);
}

std::string Remote::ask(std::string_view method, const std::string& target,
                        std::string_view body) const {
  return answer(method, target, body).body;
}

Json Remote::get(const std::string& target) const { return parsed(ask("GET", target)); }

std::string short_number(double number) {
  static constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  while (std::fabs(number) >= 999.5 && unit + 1 < kUnits.size()) number /= 1000, ++unit;
  if (unit == 0) return fmt::format("{:.0f}", number);
  const double size = std::fabs(number);
  return fmt::format("{:.{}f}{}", number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string short_time(double ns) {
  static constexpr std::array<std::pair<double, const char*>, 3> kUnits = {
      {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};
  for (const auto& [size, unit] : kUnits) {
    if (ns < size) continue;
    const double number = ns / size;
    return fmt::format("{:.{}f}{}", number, number < 9.995 ? 2 : number < 99.95 ? 1 : 0, unit);
  }
  return fmt::format("{:.0f}ns", ns);
}

void add_remote_commands(CLI::App& weir, int& status) {
  add(
      weir, "status", "Show the state of a running server", kStatusFooter,
      [](const Arguments& it) { show(it, "/v1/status", show_status); },
      std::make_shared<Arguments>(), status);
  auto explained = std::make_shared<Arguments>();
  CLI::App* const command =
      add(weir, "explain", "Show which rule a class or job matches, and what delays it",
          kExplainFooter, explain, explained, status);
  explained->service.clear();
  command->add_option("--service", explained->service, "Search only this service (default: all)")
      ->type_name("NAME");
  command->add_option("name", explained->name, "Class (RULE/KEY), job, key or rule")
      ->required()
      ->type_name("NAME");
  auto accounts = std::make_shared<Arguments>();
  CLI::App* const ledger = add(
      weir, "ledger", "Show how many tokens jobs have lent and borrowed", kLedgerFooter,
      [](const Arguments& it) {
        show(it, service_path(it, it.of_nodes ? "shares" : "ledger"),
             it.of_nodes ? show_nodes : show_ledger);
      },
      accounts, status);
  ledger->add_option("--service", accounts->service, "Use this service (default ost_io)")
      ->type_name("NAME");
  ledger->add_flag("--nodes", accounts->of_nodes,
                   "Show the nodes above the jobs in a tree of shares");
  add_rule_commands(weir, status);
  add_job_commands(weir, status);
}

}  // namespace weir::app
