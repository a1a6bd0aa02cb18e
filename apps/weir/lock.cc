// SPDX-License-Identifier: Apache-2.0
//
// weir lock: runs commands under a lock, and lists the locks of a server.
#include "apps/weir/lock.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/weir/command.h"
#include "apps/weir/commands.h"
#include "apps/weir/one_of.h"
#include "apps/weir/remote.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/cluster/lock_admin.h"

namespace weir::app {
namespace {

constexpr const char* kFooter = R"(
Actions:
  run RESOURCE -- COMMAND    run COMMAND while RESOURCE is locked; exits as COMMAND does
  list                       locks that are held or waited for
  watch RESOURCE             wait until RESOURCE is free, without taking it
  release RESOURCE           take RESOURCE away from its holders (on the server's machine)
  stats                      statistics of the server
  bench                      locks per second that this machine gets

Examples:
  weir lock run nightly -- rsync -a /data backup:
  weir lock run --shared --timeout 30s dataset/7 -- ./read-it
  weir lock run --mode CW log -- ./append     with other writers, but no readers
  weir lock watch --timeout 1h nightly        show its holders, and wait for them
  weir lock run --try report -- make report || echo 'another machine makes it'
  weir lock list --tls-certificates /etc/weir/pki --filter dataset/
  weir lock release nightly                   its holder hangs

$WEIR_LOCK_FENCE of COMMAND is a number that is larger than that of every earlier holder. If the
lock is lost, COMMAND gets SIGTERM, then SIGKILL, and the exit status is 75. Without --server, the
server is $WEIR_LOCK_SERVER or 127.0.0.1:10811. Manual: weir-lock(1).)";

constexpr int kWordsMax = 1 << 20;
constexpr const char* kDefaultServer = "127.0.0.1:10811";

struct LockArguments {
  std::string action;
  std::vector<std::string> words;
  std::string server;
  std::string job;
  std::string certificates;
  bool shared = false;
  std::string mode;
  bool only_try = false;
  std::string timeout;
  std::string kill_after;
  int conflict_status = 1;
  std::string filter;
  std::uint64_t most = 1000;
  bool json = false;
  std::uint32_t clients = 1;
  std::uint32_t window = 256;
  std::uint64_t fill = 0;
  std::string time;
  Remote remote;
  std::string client;
};

lock::ConnectOptions connect_options(const LockArguments& arguments) {
  lock::ConnectOptions options;
  const char* const named = std::getenv("WEIR_LOCK_SERVER");
  options.server = !arguments.server.empty() ? arguments.server
                   : named != nullptr        ? named
                                             : kDefaultServer;
  options.job = arguments.job;
  options.tls_directory = arguments.certificates;
  check(lock::check(options), Exit::kUsage, "");
  return options;
}

Nanoseconds time_of(const std::string& text, Nanoseconds without, const char* option) {
  return text.empty() ? without : value_or_fail(parse_duration(text), Exit::kUsage, option);
}

lock::Mode mode_of(const LockArguments& arguments) {
  if (arguments.mode.empty()) {
    return arguments.shared ? lock::Mode::kShared : lock::Mode::kExclusive;
  }
  if (arguments.shared) {
    throw Failure{Exit::kUsage, "--shared and --mode exclude each other"};
  }
  const auto mode = lock::mode_by(arguments.mode);
  if (!mode) {
    throw Failure{Exit::kUsage, fmt::format("--mode: {} is not a mode: expected NL, CR, CW, PR, "
                                            "PW or EX, or their names",
                                            quote(arguments.mode))};
  }
  return *mode;
}

void check_resource(const LockArguments& arguments) {
  if (lock::LockTable::is_name(arguments.words.front())) return;
  throw Failure{Exit::kUsage, fmt::format("{}: the name of a resource must have 1 to {} bytes",
                                          arguments.action, lock::kNameMax)};
}

int run(const LockArguments& arguments) {
  if (arguments.words.size() < 2) {
    throw Failure{Exit::kUsage, "run: a resource and, after --, a command are required"};
  }
  LockRun run;
  run.connect = connect_options(arguments);
  check_resource(arguments);
  run.resource = arguments.words.front();
  run.command.assign(arguments.words.begin() + 1, arguments.words.end());
  run.mode = mode_of(arguments);
  run.only_try = arguments.only_try;
  if (!arguments.timeout.empty()) run.timeout = time_of(arguments.timeout, {}, "--timeout");
  if (run.timeout == Nanoseconds{0}) {  // do not even wait for an answer of the server
    run.only_try = true;
    run.timeout.reset();
  }
  run.kill_after = time_of(arguments.kill_after, run.kill_after, "--kill-after");
  run.conflict_status = arguments.conflict_status;
  return run_locked(run);
}

int watch(const LockArguments& arguments) {
  if (arguments.words.size() != 1) throw Failure{Exit::kUsage, "watch: a resource is required"};
  check_resource(arguments);
  LockWatch watch;
  watch.connect = connect_options(arguments);
  watch.resource = arguments.words.front();
  watch.mode = mode_of(arguments);
  if (!arguments.timeout.empty()) watch.timeout = time_of(arguments.timeout, {}, "--timeout");
  watch.conflict_status = arguments.conflict_status;
  watch.json = arguments.json;
  return watch_lock(watch);
}

// Through the control socket, which decides who is an administrator and logs the change.
int release(const LockArguments& arguments) {
  if (arguments.words.size() != 1) throw Failure{Exit::kUsage, "release: a resource is required"};
  check_resource(arguments);
  std::string path = "/v1/locks/locks/resources/" + control::url_text(arguments.words.front());
  if (!arguments.client.empty()) {
    std::uint64_t client = 0;
    const char* const end = arguments.client.data() + arguments.client.size();
    const auto read = std::from_chars(arguments.client.data(), end, client, 16);
    if (read.ec != std::errc{} || read.ptr != end || client == 0) {
      throw Failure{Exit::kUsage, fmt::format("--client: {} is not a client: expected a number as "
                                              "weir lock list shows it",
                                              quote(arguments.client))};
    }
    path += fmt::format("?client={}", client);
  }
  const std::string answer = arguments.remote.ask("DELETE", path);
  if (arguments.json) fmt::print("{}", answer);
  return static_cast<int>(Exit::kOk);
}

int measure(const LockArguments& arguments) {
  LockMeasure measure;
  measure.connect = connect_options(arguments);
  measure.clients = arguments.clients;
  measure.window = arguments.window;
  measure.fill = arguments.fill;
  measure.time = time_of(arguments.time, measure.time, "--time");
  measure.json = arguments.json;
  return measure_locks(measure);
}

// ---- list ----

nlohmann::json to_json(const lock::LockView& lock) {
  return {{"name", lock.name},
          {"mode", lock::mode_name(lock.mode)},
          {"state", lock::state_name(lock.state)},
          {"client", lock.client},
          {"peer", lock.peer},
          {"fence", lock.fence},
          {"asked", lock.is_asked},
          {"wanted", lock::mode_name(lock.wanted)}};
}

int list(const LockArguments& arguments) {
  const lock::ConnectOptions to = connect_options(arguments);
  lock::ListOptions options{.filter = arguments.filter};
  nlohmann::json all = nlohmann::json::array();
  std::uint64_t left = arguments.most;
  const auto head = [] {
    fmt::print("{:<17}{:<9}{:<17}{:<18}{:<22}{:>20}  NAME\n", "MODE", "STATE", "WANTED", "CLIENT",
               "FROM", "FENCE");
  };
  while (left > 0) {
    options.max = std::min<std::uint64_t>(left, 1000);
    auto answer = cluster::ask_list(to, options);
    const bool is_refused = !answer && answer.error().code == std::errc::permission_denied;
    const auto page =
        value_or_fail(std::move(answer), is_refused ? Exit::kTempFail : Exit::kUnavailable, "list");
    if (!arguments.json && options.from == 0) head();
    for (const lock::LockView& lock : page.locks) {
      if (arguments.json) {
        all.push_back(to_json(lock));
      } else {
        const bool waits = lock.wanted != lock.mode;
        fmt::print("{:<17}{:<9}{:<17}{:<18x}{:<22}{:>20}  {}\n", lock::mode_name(lock.mode),
                   lock::state_name(lock.state), waits ? lock::mode_name(lock.wanted) : "-",
                   lock.client, lock.peer, lock.fence, quote(lock.name));
      }
    }
    left -= std::min<std::uint64_t>(left, page.locks.size());
    options.from = page.next;
    if (page.next == 0) break;
  }
  if (arguments.json) {
    // Names are any bytes, JSON is UTF-8.
    using Json = nlohmann::json;
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  return static_cast<int>(Exit::kOk);
}

// ---- stats ----

int stats(const LockArguments& arguments) {
  const auto stats =
      value_or_fail(cluster::ask_stats(connect_options(arguments)), Exit::kUnavailable, "stats");
  const lock::NamespaceView& view = stats.view;
  const nlohmann::ordered_json all = {
      {"namespace", view.name},
      {"role", lock::role_name(view.role)},
      {"active", view.active},
      {"preset", lock::preset_name(view.preset)},
      {"incarnation", stats.incarnation},
      {"recovering", view.is_recovering},
      {"lease", print_duration(stats.lease)},
      {"limit", view.limit},
      {"granted", view.granted},
      {"volume", view.server_lock_volume},
      {"grant_rate", view.grant_rate},
      {"cancel_rate", view.cancel_rate},
      {"grant_speed", view.grant_speed},
      {"resources", view.resources},
      {"waiting", view.waiting},
      {"parked", view.parked},
      {"converting", view.converting},
      {"watches", view.watches},
      {"gated", stats.gated},
      {"clients", view.clients()},
      {"grants", view.grants},
      {"cancels", view.cancels},
      {"conversions", view.counters.conversions},
      {"deadlocks", view.counters.deadlocks},
      {"evictions", view.counters.evictions},
      {"revoked", view.counters.revoked},
      {"unknown_cancels", view.counters.unknown_cancels},
      {"bad_names", view.counters.bad_names},
      {"too_many", view.counters.too_many},
      {"broken_rules", view.counters.broken_rules},
      {"lost_replays", view.counters.lost_replays},
      {"wrong_secrets", view.counters.wrong_secrets},
  };
  if (arguments.json) {
    fmt::print("{}\n", all.dump(2));
    return static_cast<int>(Exit::kOk);
  }
  for (const auto& [name, value] : all.items()) {
    fmt::print("{:<18}{}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return static_cast<int>(Exit::kOk);
}

int act(const LockArguments& arguments) {
  const std::string& action = arguments.action;
  const bool has_words = action == "run" || action == "watch" || action == "release";
  if (!has_words && !arguments.words.empty()) {
    throw Failure{Exit::kUsage,
                  fmt::format("{}: unexpected argument {}", action, quote(arguments.words[0]))};
  }
  if (action == "run") return run(arguments);
  if (action == "list") return list(arguments);
  if (action == "watch") return watch(arguments);
  if (action == "stats") return stats(arguments);
  if (action == "release") return release(arguments);
  return measure(arguments);
}

void add_run_options(CLI::App& command, LockArguments& arguments) {
  command.add_flag("--shared", arguments.shared,
                   "run, watch: share the lock with other clients that use --shared");
  command
      .add_option("--mode", arguments.mode,
                  "run, watch: lock in MODE: NL, CR, CW, PR (shared), PW or EX (default)")
      ->type_name("MODE");
  command.add_flag("--try", arguments.only_try, "run: do not wait for other holders");
  command.add_option("--timeout", arguments.timeout, "run, watch: wait at most TIME")
      ->type_name("TIME");
  command
      .add_option("--kill-after", arguments.kill_after,
                  "run: send SIGKILL TIME after SIGTERM when the lock is lost (default 2s)")
      ->type_name("TIME");
  command
      .add_option("--conflict-exit-code", arguments.conflict_status,
                  "run, watch: exit status if other clients hold the lock (default 1)")
      ->type_name("N")
      ->check(CLI::Range(0, 255));
}

}  // namespace

void add_lock(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<LockArguments>();
  CLI::App* command = weir.add_subcommand("lock", kLockHelp);
  CLI::Option* const action =
      command->add_option("ACTION", arguments->action, "run, list, watch, release, stats or bench")
          ->required()
          ->check(one_of({"run", "list", "watch", "release", "stats", "bench"}));
  // At least two: with fewer, CLI11 would assign the words after -- to weir itself.
  CLI::Option* const words = command
                                 ->add_option("WORDS", arguments->words,
                                              "run: RESOURCE -- COMMAND; watch, release: RESOURCE")
                                 ->expected(2, kWordsMax);
  action->each([words](const std::string& name) {
    if (name != "run") words->expected(1, kWordsMax);
  });
  command
      ->add_option(
          "--server", arguments->server,
          "Connect to ADDRESS:PORT or unix:PATH, or to the active one of several, separated by "
          "commas (default $WEIR_LOCK_SERVER or 127.0.0.1:10811)")
      ->type_name("ADDRESS");
  command
      ->add_option("--job", arguments->job,
                   "Send requests as this job, if the server accepts claims from this client")
      ->type_name("JOB");
  command
      ->add_option("--tls-certificates", arguments->certificates,
                   "Use TLS with ca-cert.pem, client-cert.pem and client-key.pem from DIRECTORY")
      ->type_name("DIRECTORY");
  add_run_options(*command, *arguments);
  command->add_option("--filter", arguments->filter, "list: only names that contain TEXT")
      ->type_name("TEXT");
  command->add_option("--most", arguments->most, "list: at most N locks (default 1000)")
      ->type_name("N")
      ->check(not_negative());
  command->add_flag("--json", arguments->json, "list, watch, release, stats, bench: print JSON");
  command
      ->add_option("--client", arguments->client,
                   "release: only from CLIENT, a number as list shows it")
      ->type_name("CLIENT");
  command
      ->add_option("--control", arguments->remote.socket,
                   "release: connect to this control socket (default $WEIR_SOCKET, otherwise the "
                   "default of weir serve)")
      ->type_name("PATH");
  command
      ->add_option("--clients", arguments->clients,
                   "bench: run N clients at the same time (default 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--window", arguments->window,
                   "bench: let each client wait for N locks at a time (default 256)")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000));
  command
      ->add_option("--fill", arguments->fill,
                   "bench: acquire N locks and hold them; measure nothing else")
      ->type_name("N")
      ->check(not_negative());
  command->add_option("--time", arguments->time, "bench: run for TIME (default 5s)")
      ->type_name("TIME");
  command->footer(kFooter);
  command->callback([arguments, &status] { status = act(*arguments); });
}

}  // namespace weir::app
