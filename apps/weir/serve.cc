// SPDX-License-Identifier: Apache-2.0
//
// weir serve: an NBD server with a scheduler.
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/commands.h"
#include "apps/weir/gateways.h"
#include "apps/weir/nfs_check.h"
#include "apps/weir/serve_arguments.h"
#include "apps/weir/slurm_feed.h"
#include "weir/base/quote.h"
#include "weir/classify/plain_rates.h"
#include "weir/classify/rule_spec.h"
#include "weir/cluster/cluster.h"
#include "weir/cluster/lock_service.h"
#include "weir/config/file_follower.h"
#include "weir/config/serve_config.h"
#include "weir/control/client.h"
#include "weir/control/control.h"
#include "weir/control/http_keys.h"
#include "weir/control/snapshot.h"
#include "weir/control/tokens.h"
#include "weir/host/files.h"
#include "weir/host/heap.h"
#include "weir/host/log.h"
#include "weir/serve/event_log.h"
#include "weir/serve/listen.h"
#include "weir/serve/options.h"
#include "weir/serve/plain_text.h"
#include "weir/serve/server.h"
#include "weir/serve/service.h"
namespace weir::app {
namespace {

constexpr const char* kServeFooter = R"(
Stores:
  file:PATH[,size=SIZE][,direct]     a file; created as a sparse file if missing and size is given
  device:PATH[,direct][,force]       a block device; force: even if the system uses it
  memory:SIZE                        memory; lost when the server exits
  shaped:KEY=VALUE,...:STORE         a store that is slowed down: iops=2000, bps=100MB, latency=1ms

Examples:
  weir serve --export scratch=file:scratch.img,size=4GiB
  weir serve --listen unix:/run/nbd.sock --export ram=memory:1GiB --capacity 4000
  weir serve --export a=file:a.img,size=1GiB --rule 'start r1 jobid={ior.*} rate=1000'
  weir serve --lock 127.0.0.1:10811 --lock-state /var/lib/weir/locks
  nbdinfo nbd://localhost/scratch          qemu-img info nbd://localhost/scratch/job=ior.n1

Prints 'ready ADDRESS...' when it accepts clients. On SIGTERM, answers all accepted requests and
exits. On SIGHUP, reads the configuration file, the jobs file and the certificates again.
Manual: weir-serve(1).)";

constexpr const char* kNfsFooter = R"(
Examples:
  weir nfs --listen :2049 --server nfs.example.org
  weir nfs --listen :2049 --server 10.0.0.5 --adaptive off --rule 'start r uid={1002} rate=500'
  mount -t nfs -o vers=4.1 gateway.example.org:/export /mnt
  weir nfs check nfs.example.org

Prints 'ready ADDRESS...' when it accepts clients. On SIGTERM, forwards and answers all accepted
calls and exits. On SIGHUP, reads the configuration file and the jobs file again.
Manual: weir-nfs(1).)";

// EINVAL is an error of the command line, anything else of the system.
Exit status_of(const Error& error) {
  return error.code == std::errc::invalid_argument ? Exit::kUsage : Exit::kCantCreate;
}

// The same for a reload, which must not throw.
Result<serve::ServeOptions> read_again(const ServeArguments& arguments) {
  auto options = read_options(arguments);
  if (!options) return options;
  if (auto added = register_gateways(*options); !added) return tl::unexpected(added.error());
  if (auto checked = serve::check(*options); !checked) return tl::unexpected(checked.error());
  if (auto tried = serve::try_services(*options); !tried) return tl::unexpected(tried.error());
  return options;
}

constexpr std::string_view kNoControl = "none";

control::ControlOptions control_options(const ServeArguments& arguments,
                                        const serve::ServeOptions& options) {
  control::ControlOptions wanted;
  wanted.version = WEIR_VERSION;
  wanted.http.socket_path = arguments.control                ? *arguments.control
                            : options.control_socket.empty() ? control::default_control_socket()
                                                             : options.control_socket;
  if (wanted.http.socket_path == kNoControl) wanted.http.socket_path.clear();
  wanted.http.tcp = options.control.tcp;
  auto tokens = control::read_tokens(options.control.token_file);
  if (!tokens) {
    const bool is_text = tokens.error().code == std::errc::invalid_argument;
    throw Failure{is_text ? Exit::kUsage : Exit::kNoInput,
                  "--control-token: " + tokens.error().message()};
  }
  wanted.http.tokens = *std::move(tokens);
  if (!options.control.tls.empty()) {
    auto keys = control::load_http_keys(options.control.tls);
    if (!keys) throw Failure{Exit::kNoInput, "--control-tls: " + keys.error().message()};
    wanted.http.keys = *std::move(keys);
  }
  wanted.journal = options.control.journal;
  if (arguments.journal_repair) wanted.damage = control::Journal::Damage::kRepair;
  return wanted;
}

// A failure of the default socket, which was not requested explicitly, is not fatal.
std::unique_ptr<control::Control> open_control(const ServeArguments& arguments,
                                               serve::Server& server, cluster::LockService* locks) {
  control::ControlOptions wanted = control_options(arguments, server.options());
  check(check(wanted.http), Exit::kUsage, "");
  wanted.locks = locks;
  wanted.lock_target = locks;
  if (!wanted.is_on() && wanted.journal.empty()) {
    if (!arguments.control) {
      serve::EventLog::say(
          "no control socket: XDG_RUNTIME_DIR is not set; name a socket with --control");
    }
    return nullptr;
  }
  auto control = control::Control::create(server, wanted);
  if (control) return std::move(*control);
  const bool asked = arguments.control || !wanted.http.tcp.empty() || !wanted.journal.empty() ||
                     !server.options().control_socket.empty();
  if (asked) throw Failure{status_of(control.error()), control.error().message()};
  serve::EventLog::say("no control socket: " + control.error().message());
  return nullptr;
}

std::unique_ptr<cluster::Cluster> open_cluster(serve::Server& server) {
  if (!server.options().cluster.is_on()) return nullptr;
  auto cluster = cluster::Cluster::create(server, server.options().cluster);
  if (!cluster) throw Failure{status_of(cluster.error()), cluster.error().message()};
  return std::move(*cluster);
}

std::unique_ptr<cluster::LockService> open_locks(const serve::ServeOptions& options) {
  if (!options.lock.listen) return nullptr;
  const std::string trace = options.trace_file.empty() ? "" : options.trace_file + ".locks";
  return value_or_fail(cluster::LockService::create({.lock = options.lock,
                                                     .claims = options.claims,
                                                     .nodemaps = options.nodemaps,
                                                     .tls = options.tls,
                                                     .trace_file = trace,
                                                     .cluster = options.cluster}),
                       Exit::kCantCreate, "");
}

// What happened to the whole server, in the form of the lines for changes (weir/control/audit.h).
void audit(const std::string& event, const std::string& result) {
  const std::string who = fmt::format("uid {} pid {}", getuid(), getpid());
  const std::array<host::LogField, 3> fields = {
      {{"WEIR_WHO", who}, {"WEIR_WHAT", event}, {"WEIR_RESULT", result}}};
  serve::EventLog::audit(
      fmt::format("audit: {} who=\"{}\" version={} result={}", event, who, WEIR_VERSION, result),
      fields);
}

void say_all(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) serve::EventLog::say(line);
}

// Components with certificates; nullptr for those that this server does not run.
struct CertificateUsers {
  serve::Server* server;
  cluster::Cluster* cluster;
  cluster::LockService* locks;
  control::Control* control;
};

// Reads and checks the certificates on disk; calling the result makes all components use them.
// Files that are no longer readable (--user) are logged, and the certificates in use stay.
Result<std::function<void()>> read_certificates(const CertificateUsers& users) {
  std::vector<std::function<void()>> steps;
  const auto add = [&](auto* user) -> Result<void> {
    if (user == nullptr) return {};
    auto step = user->read_certificates();
    if (step) {
      steps.push_back(*std::move(step));
    } else if (step.error().code == std::errc::permission_denied) {
      serve::EventLog::say(step.error().message() +
                           "; the certificates in use stay until the next start");
    } else {
      return tl::unexpected(step.error());
    }
    return {};
  };
  for (const auto& added :
       {add(users.server), add(users.cluster), add(users.locks), add(users.control)}) {
    if (!added) return tl::unexpected(added.error());
  }
  return std::function<void()>([steps] {
    for (const auto& step : steps) step();
  });
}

// Reads the tokens again; a token that is no longer in the file is refused from now on.
std::vector<std::string> reload_tokens(const serve::Server& server, control::Control* control) {
  const std::string& path = server.options().control.token_file;
  if (control == nullptr || path.empty()) return {};
  auto tokens = control::read_tokens(path);
  if (!tokens) return {tokens.error().message() + "; the control tokens were not changed"};
  std::string line = fmt::format("{} control tokens", tokens->size());
  control->set_tokens(*std::move(tokens));
  return {std::move(line)};
}

// SIGHUP: reloads everything or nothing. Returns the lines to log.
std::vector<std::string> reload(const CertificateUsers& users,
                                std::optional<config::FileFollower>& follower) {
  const auto renew = read_certificates(users);
  if (!renew) {
    return {renew.error().message(),
            follower ? "the configuration was not changed" : "the certificates were not changed"};
  }
  if (follower) return follower->follow(*users.server, *renew);
  if (auto read = users.server->read_jobs_again(); !read) {
    return {read.error().message() + "; the job sizes were not changed"};
  }
  (*renew)();
  return {"reloaded job sizes and certificates"};
}

// Checks everything that can be checked without opening a store or socket.
void check_all(const ServeArguments& arguments, const serve::ServeOptions& options) {
  check(serve::check(options), Exit::kUsage, "");
  check(serve::try_services(options), Exit::kUsage, "");
  check(check(control_options(arguments, options).http), Exit::kUsage, "");
  const auto jobs = serve::Server::load_jobs(options.jobs_file, options.jobs);
  if (!jobs) throw Failure{status_of(jobs.error()), jobs.error().message()};
}

// Returns whether all requests were completed.
bool run_until_end(const ServeArguments& arguments, const serve::ServeOptions& from_file,
                   serve::Server& server) {
  std::optional<config::FileFollower> follower;
  if (!arguments.config.empty()) {
    follower.emplace([&] { return read_again(arguments); }, from_file);
  }
  const auto cluster = open_cluster(server);
  const auto locks = open_locks(server.options());
  const auto control = open_control(arguments, server, locks.get());
  server.on_reload([&](serve::Server& it) {
    const auto follow = [&] {
      auto lines = reload({&it, cluster.get(), locks.get(), control.get()}, follower);
      if (control != nullptr) control->changed();
      for (std::string& line : reload_tokens(it, control.get())) lines.push_back(std::move(line));
      say_all(lines);
      audit("reload", quote(fmt::format("{}", fmt::join(lines, "; "))));
    };
    control == nullptr ? follow() : control->change_elsewhere(follow);
  });
  for (const auto& service : server.services()) {
    for (const std::string& note : control::notes_of(service->target, service.get())) {
      say_all({fmt::format("service {}: {}", quote(service->name), note)});
    }
  }
  host::Wake slurm_stop(value_or_fail(host::make_wake_fd(), Exit::kIoErr, ""));
  if (control != nullptr) {
    control->set_cluster(cluster.get());
    control->start();
  }
  if (cluster != nullptr) cluster->start();
  std::optional<SlurmFeed> slurm;
  if (server.options().slurm.is_on || serve::has_accounts(server.options())) {
    slurm.emplace(server.options().slurm, server, std::move(slurm_stop), host_jobs_of(server));
  }
  const bool drained = server.run([&] {
    audit("start", "ok");
    std::string line = "ready";
    for (const serve::ListenAddress& address : server.listening()) {
      line += " " + serve::print_listen(address);
    }
    if (locks != nullptr) line += " lock:" + serve::print_listen(locks->listening());
    if (control != nullptr && control->tcp_port() != 0) {
      line += fmt::format(" control:{}", control->tcp_port());
    }
    if (cluster != nullptr) line += fmt::format(" cluster:{}", cluster->port());
    std::puts(line.c_str());  // errors are ignored: standard output may be closed
    std::fflush(stdout);
  });
  if (cluster != nullptr) cluster->stop();  // before the control, which uses it
  audit("stop", drained ? "ok" : "\"requests were left behind\"");
  return drained;
}

int run_server(const ServeArguments& arguments) {
  host::pin_heap_thresholds();
  const auto from_file = read_options(arguments);
  if (!from_file) throw Failure{Exit::kConfig, from_file.error().message()};
  check(register_gateways(*from_file), Exit::kUsage, "");
  serve::ServeOptions options = *from_file;
  for (const std::string& text : arguments.rules) {
    auto rule = parse_rule(with_plain_rates(text));
    if (!rule) throw Failure{Exit::kUsage, name_rule(rule.error(), text).message()};
    default_service(options).more_rules.push_back(*std::move(rule));
  }
  if (arguments.check_config) {
    check_all(arguments, options);
    say_all(serve::plain_text_warnings(options));
    return static_cast<int>(Exit::kOk);
  }
  for (const serve::NfsOptions& gateway : options.nfs) {
    check(serve::check_source(gateway.source), Exit::kCantCreate, "");
  }
  auto server = serve::Server::create(std::move(options));
  if (!server) throw Failure{status_of(server.error()), server.error().message()};
  say_all(serve::plain_text_warnings((*server)->options()));
  if (run_until_end(arguments, *from_file, **server)) return static_cast<int>(Exit::kOk);
  // The stores still use its memory, so it is not destroyed.
  (*server)->leave();
  std::fflush(stdout);
  host::flush_log();
  _exit(static_cast<int>(Exit::kIoErr));
}

}  // namespace

void add_serve(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command = weir.add_subcommand("serve", kServeHelp);
  add_serve_options(*command, *arguments);
  command->footer(kServeFooter);
  command->callback([arguments, &status] { status = run_server(*arguments); });
}

void add_nfs(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  arguments->nfs.emplace();
  CLI::App* command = weir.add_subcommand("nfs", kNfsHelp);
  add_nfs_options(*command, *arguments);
  const CLI::App* const check = add_nfs_check(*command, status);
  command->footer(kNfsFooter);
  command->callback([arguments, check, &status] {
    if (!check->parsed()) status = run_server(*arguments);
  });
}

}  // namespace weir::app
