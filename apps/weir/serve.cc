// SPDX-License-Identifier: Apache-2.0
//
// weir serve: an NBD server with the scheduler inside.
#include <algorithm>
#include <cerrno>
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
#include "apps/weir/slurm_feed.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/cluster/cluster.h"
#include "weir/cluster/lock_service.h"
#include "weir/config/file_follower.h"
#include "weir/config/serve_config.h"
#include "weir/config/slurm.h"
#include "weir/control/client.h"
#include "weir/control/control.h"
#include "weir/host/files.h"
#include "weir/host/heap.h"
#include "weir/host/log.h"
#include "weir/serve/event_log.h"
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

Prints 'ready ADDRESS...' when it accepts clients. On SIGTERM, forwards and answers all accepted
calls and exits. On SIGHUP, reads the configuration file and the jobs file again.
Manual: weir-nfs(1).)";

// What weir nfs has in addition.
struct NfsArguments {
  std::vector<std::string> listen;
  std::string server;
  std::string max_wait;
};

struct ServeArguments {
  std::optional<NfsArguments> nfs;  // of weir nfs
  std::string config;
  bool check_config = false;
  std::vector<std::string> listen;
  std::vector<std::string> exports;
  std::string policy;
  std::vector<std::string> rules;
  std::string adaptive;
  std::string capacity;
  std::optional<std::uint32_t> slots;
  std::optional<std::uint32_t> classes;
  std::string claims;
  std::vector<std::string> nodemaps;
  std::string memory;
  std::string handshake_timeout;
  std::string drain_timeout;
  std::optional<std::uint32_t> connections;
  std::string user;
  std::string jobs_file;
  bool slurm = false;
  std::string job_pattern;
  std::string slurm_every;
  std::string squeue;
  std::optional<std::string> control;
  std::string control_tcp;
  std::string control_token;
  std::string journal;
  bool journal_repair = false;
  std::string trace_file;
  std::string io;
  std::string threads;
  std::string tls;
  std::string tls_certificates;
  bool tls_verify_peer = false;
  std::string lock;
  std::string lock_state;
  std::optional<std::int64_t> lock_limit;
  std::string lock_preset;
  std::string lock_lease;
  std::string lock_grace;
  bool lock_insecure = false;
};

serve::ClaimsOptions read_claims(const std::string& text) {
  serve::ClaimsOptions claims;
  if (text == "local") return claims;
  claims.local = false;
  if (text == "none") return claims;
  claims.nids = value_or_fail(NidList::parse(text), Exit::kUsage, "--claims");
  claims.local = true;
  return claims;
}

serve::NodemapOptions read_nodemap(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Failure{Exit::kUsage,
                  fmt::format("--nodemap: {} has no name; expected NAME=NIDS", quote(text))};
  }
  return {text.substr(0, equals),
          value_or_fail(NidList::parse(text.substr(equals + 1)), Exit::kUsage, "--nodemap")};
}

// The default service; adds it if necessary.
serve::ServiceOptions& default_service(serve::ServeOptions& options) {
  auto found = std::find_if(options.services.begin(), options.services.end(),
                            [](const auto& one) { return one.name == serve::kDefaultService; });
  if (found == options.services.end()) found = options.services.emplace(found);
  return *found;
}

void add_service(const ServeArguments& arguments, serve::ServiceOptions& service) {
  if (!arguments.policy.empty()) service.policy = arguments.policy;
  if (!arguments.adaptive.empty()) {
    service.adaptive =
        value_or_fail(serve::parse_adaptive(arguments.adaptive), Exit::kUsage, "--adaptive");
  }
  if (!arguments.capacity.empty()) {
    service.capacity =
        value_or_fail(serve::parse_capacity(arguments.capacity), Exit::kUsage, "--capacity");
  }
  if (arguments.slots) service.slots = *arguments.slots;
  if (arguments.classes) service.classes = *arguments.classes;
}

void add_limits(const ServeArguments& arguments, serve::ServeLimits& limits) {
  if (arguments.connections) limits.connections = *arguments.connections;
  if (!arguments.memory.empty()) {
    limits.memory = value_or_fail(parse_size(arguments.memory), Exit::kUsage, "--memory");
  }
  const auto read_time = [](const std::string& text, Nanoseconds& to, std::string_view option) {
    if (!text.empty()) to = value_or_fail(parse_duration(text), Exit::kUsage, option);
  };
  read_time(arguments.handshake_timeout, limits.handshake_timeout, "--handshake-timeout");
  read_time(arguments.drain_timeout, limits.drain_timeout, "--drain-timeout");
}

void add_tls(const ServeArguments& arguments, serve::TlsOptions& tls) {
  if (!arguments.tls.empty()) {
    const auto mode = value_or_fail(serve::parse_tls(arguments.tls), Exit::kUsage, "--tls");
    // On the command line, off turns off all TLS settings of the file.
    if (mode == serve::TlsOptions::Mode::kOff) tls = {};
    tls.mode = mode;
  }
  if (!arguments.tls_certificates.empty()) tls.directory = arguments.tls_certificates;
  if (arguments.tls_verify_peer) tls.verify_clients = true;
}

void add_slurm(const ServeArguments& arguments, serve::SlurmOptions& slurm) {
  if (arguments.slurm) slurm.is_on = true;
  if (!arguments.job_pattern.empty()) slurm.pattern = arguments.job_pattern;
  (void)value_or_fail(config::JobPattern::parse_known(slurm.pattern), Exit::kUsage,
                      "--job-pattern");
  if (!arguments.squeue.empty()) slurm.squeue = arguments.squeue;
  if (arguments.slurm_every.empty()) return;
  slurm.every = value_or_fail(parse_duration(arguments.slurm_every), Exit::kUsage, "--slurm-every");
  if (slurm.every < serve::SlurmOptions::kEveryMin ||
      slurm.every > serve::SlurmOptions::kEveryMax) {
    throw Failure{Exit::kUsage, "--slurm-every: expected from 1s to 1h"};
  }
}

void add_lock_options(const ServeArguments& arguments, serve::LockOptions& lock) {
  if (!arguments.lock.empty()) {
    lock.listen = value_or_fail(serve::parse_listen(arguments.lock, serve::LockOptions::kPort),
                                Exit::kUsage, "--lock");
  }
  if (!arguments.lock_state.empty()) lock.state_file = arguments.lock_state;
  if (arguments.lock_limit) lock.server.pool.limit = *arguments.lock_limit;
  if (!arguments.lock_preset.empty()) {
    const auto preset = lock::preset_by(arguments.lock_preset);
    if (!preset) {
      throw Failure{Exit::kUsage,
                    fmt::format("--lock-preset: {} is not valid; expected weir, dld or lustre",
                                quote(arguments.lock_preset))};
    }
    lock.server.pool.preset = *preset;
  }
  const auto read_time = [](const std::string& text, Nanoseconds& to, std::string_view option) {
    if (!text.empty()) to = value_or_fail(parse_duration(text), Exit::kUsage, option);
  };
  read_time(arguments.lock_lease, lock.server.lease, "--lock-lease");
  // A lease without a grace sets a matching grace.
  if (!arguments.lock_lease.empty()) lock.server.grace = lock.server.lease + lock.server.lease / 2;
  read_time(arguments.lock_grace, lock.server.grace, "--lock-grace");
  if (arguments.lock_insecure) lock.insecure = true;
}

// Adds the command line to the options of the file. Its rules are separate: they are started once
// and are not affected by a reload.
void add_arguments(const ServeArguments& arguments, serve::ServeOptions& options) {
  for (const std::string& text : arguments.listen) {
    options.listen.push_back(value_or_fail(serve::parse_entrance(text), Exit::kUsage, "--listen"));
  }
  for (const std::string& text : arguments.exports) {
    options.exports.push_back(value_or_fail(serve::parse_export(text), Exit::kUsage, "--export"));
  }
  add_lock_options(arguments, options.lock);
  const bool without_stores = options.lock.listen || !options.nfs.empty();
  const bool no_stores = options.exports.empty() && without_stores;
  if (options.listen.empty() && !no_stores) options.listen.emplace_back().host = "127.0.0.1";
  add_service(arguments, default_service(options));
  if (!arguments.claims.empty()) options.claims = read_claims(arguments.claims);
  for (const std::string& text : arguments.nodemaps) {
    options.nodemaps.push_back(read_nodemap(text));
  }
  add_limits(arguments, options.limits);
  add_tls(arguments, options.tls);
  if (!arguments.control_tcp.empty()) options.control.tcp = arguments.control_tcp;
  if (!arguments.control_token.empty()) options.control.token_file = arguments.control_token;
  if (!arguments.journal.empty()) options.control.journal = arguments.journal;
  if (!arguments.user.empty()) options.user = arguments.user;
  if (!arguments.jobs_file.empty()) options.jobs_file = arguments.jobs_file;
  add_slurm(arguments, options.slurm);
  if (!arguments.trace_file.empty()) options.trace_file = arguments.trace_file;
  if (!arguments.threads.empty()) {
    options.threads =
        value_or_fail(serve::parse_threads(arguments.threads), Exit::kUsage, "--threads");
  }
  if (!arguments.io.empty()) {
    options.io = value_or_fail(serve::parse_io(arguments.io), Exit::kUsage, "--io");
  }
}

// The gateway of the command line, in front of those of the file.
void add_nfs_arguments(const NfsArguments& arguments, serve::ServeOptions& options) {
  using serve::NfsOptions;
  if (arguments.server.empty()) {
    if (!arguments.listen.empty() || options.nfs.empty()) {
      throw Failure{Exit::kUsage, "--server: name the NFS server, such as nfs.example.org"};
    }
    return;
  }
  NfsOptions gateway;
  gateway.server = arguments.server;
  for (const std::string& text : arguments.listen) {
    gateway.listen.push_back(
        value_or_fail(serve::parse_listen(text, NfsOptions::kPort), Exit::kUsage, "--listen"));
  }
  if (gateway.listen.empty()) {
    throw Failure{Exit::kUsage, "--listen: name the address for clients, such as :2049"};
  }
  if (!arguments.max_wait.empty()) {
    gateway.max_wait =
        value_or_fail(parse_duration(arguments.max_wait), Exit::kUsage, "--max-wait");
    if (gateway.max_wait < NfsOptions::kMaxWaitMin || gateway.max_wait > NfsOptions::kMaxWaitMax) {
      throw Failure{Exit::kUsage, "--max-wait: expected from 100ms to 30s"};
    }
  }
  options.nfs.insert(options.nfs.begin(), std::move(gateway));
}

// Defaults that differ for a server that is a gateway and nothing else. A value of the file that is
// equal to the usual default counts as none.
void set_gateway_defaults(serve::ServeOptions& options) {
  const serve::ServeOptions usual;
  serve::ServiceOptions& service = default_service(options);
  if (service.policy == serve::ServiceOptions{}.policy) service.policy = "tbf";
  serve::ServeLimits& limits = options.limits;
  if (limits.connection_requests == usual.limits.connection_requests) {
    limits.connection_requests = serve::NfsOptions::kConnectionRequests;
  }
  if (limits.drain_timeout == usual.limits.drain_timeout) {
    limits.drain_timeout = serve::NfsOptions::kDrainTimeout;
  }
}

// Everything except the rules of the command line.
Result<serve::ServeOptions> read_options(const ServeArguments& arguments) {
  serve::ServeOptions options;
  if (!arguments.config.empty()) {
    auto loaded = config::load_serve_config(arguments.config);
    if (!loaded) return loaded;
    options = std::move(*loaded);
  }
  if (arguments.nfs) {
    add_nfs_arguments(*arguments.nfs, options);
    set_gateway_defaults(options);
  }
  add_arguments(arguments, options);
  add_gateways(options);
  return options;
}

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

// The token gives control of the server, so it must not appear in any message.
std::string read_token(const std::string& path) {
  std::string token = value_or_fail(host::read_file(path), Exit::kNoInput, "--control-token");
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) throw Failure{Exit::kUsage, "--control-token: the file is empty"};
  return token;
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
  if (!options.control.token_file.empty()) {
    wanted.http.token = read_token(options.control.token_file);
  }
  wanted.journal = options.control.journal;
  if (arguments.journal_repair) wanted.damage = control::Journal::Damage::kRepair;
  return wanted;
}

// A failure of the default socket, which was not requested explicitly, is not fatal.
std::unique_ptr<control::Control> open_control(const ServeArguments& arguments,
                                               serve::Server& server, cluster::LockService* locks) {
  control::ControlOptions wanted = control_options(arguments, server.options());
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
                                                     .trace_file = trace}),
                       Exit::kCantCreate, "");
}

void say_all(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) serve::EventLog::say(line);
}

// Components with certificates; nullptr for those that this server does not run.
struct CertificateUsers {
  serve::Server* server;
  cluster::Cluster* cluster;
  cluster::LockService* locks;
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
  for (const auto& added : {add(users.server), add(users.cluster), add(users.locks)}) {
    if (!added) return tl::unexpected(added.error());
  }
  return std::function<void()>([steps] {
    for (const auto& step : steps) step();
  });
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
      const auto lines = reload({&it, cluster.get(), locks.get()}, follower);
      if (control != nullptr) control->changed();
      say_all(lines);
    };
    control == nullptr ? follow() : control->change_elsewhere(follow);
  });
  host::Wake slurm_stop(value_or_fail(host::make_wake_fd(), Exit::kIoErr, ""));
  if (control != nullptr) {
    control->set_cluster(cluster.get());
    control->start();
  }
  if (cluster != nullptr) cluster->start();
  std::optional<SlurmFeed> slurm;
  if (server.options().slurm.is_on) {
    slurm.emplace(server.options().slurm, server, std::move(slurm_stop));
  }
  const bool drained = server.run([&] {
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
  return drained;
}

int run_server(const ServeArguments& arguments) {
  host::pin_heap_thresholds();
  const auto from_file = read_options(arguments);
  if (!from_file) throw Failure{Exit::kConfig, from_file.error().message()};
  check(register_gateways(*from_file), Exit::kUsage, "");
  serve::ServeOptions options = *from_file;
  default_service(options).more_rules = arguments.rules;
  if (arguments.check_config) {
    check_all(arguments, options);
    say_all(serve::plain_text_warnings(options));
    return static_cast<int>(Exit::kOk);
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

void add_limit_options(CLI::App& command, ServeArguments& arguments, const char* drain_help) {
  command
      .add_option("--connections", arguments.connections,
                  "Accept at most N connections at a time (default 4096)")
      ->type_name("N");
  command
      .add_option("--memory", arguments.memory,
                  "Limit the memory that all connections together hold (default: a quarter of the "
                  "machine's memory, 64MiB to 512MiB)")
      ->type_name("SIZE");
  command.add_option("--drain-timeout", arguments.drain_timeout, drain_help)->type_name("TIME");
  command
      .add_option("--user", arguments.user,
                  "Switch to this user after stores and sockets are open; requires root")
      ->type_name("NAME");
  command
      .add_option("--io", arguments.io,
                  "Do I/O with io_uring or epoll: auto, uring or epoll (default auto: io_uring if "
                  "the system allows it)")
      ->type_name("BACKEND");
  command
      .add_option("--trace", arguments.trace_file,
                  "Record every call to the scheduler in FILE, for weir sim --replay")
      ->type_name("FILE");
}

void add_control_options(CLI::App& command, ServeArguments& arguments) {
  command
      .add_option("--control", arguments.control,
                  "Create the control socket here, or none (default /run/weir.sock for root, "
                  "otherwise weir.sock in $XDG_RUNTIME_DIR)")
      ->type_name("PATH");
  command
      .add_option("--control-tcp", arguments.control_tcp,
                  "Serve the API on this loopback address as well; requires --control-token")
      ->type_name("ADDRESS:PORT");
  command
      .add_option("--control-token", arguments.control_token,
                  "Read the token that requests over TCP must send from FILE")
      ->type_name("FILE");
  command
      .add_option("--journal", arguments.journal,
                  "Keep changes that must survive a restart in FILE (default: no journal)")
      ->type_name("FILE");
  command.add_flag("--journal-repair", arguments.journal_repair,
                   "Recover the intact prefix of a damaged journal");
}

void add_tls_options(CLI::App& command, ServeArguments& arguments) {
  command
      .add_option("--tls", arguments.tls,
                  "Allow or require encryption: off, on or require (default off)")
      ->type_name("MODE");
  command
      .add_option("--tls-certificates", arguments.tls_certificates,
                  "Read ca-cert.pem, server-cert.pem and server-key.pem from DIRECTORY")
      ->type_name("DIRECTORY");
  command.add_flag("--tls-verify-peer", arguments.tls_verify_peer,
                   "Require client certificates signed by the authority in ca-cert.pem");
}

void add_slurm_options(CLI::App& command, ServeArguments& arguments) {
  command.add_flag("--slurm", arguments.slurm,
                   "Also read the number of nodes of jobs from squeue --json");
  command
      .add_option(
          "--job-pattern", arguments.job_pattern,
          "Job id that clients use for a Slurm job: %j job number, %u user number (default %j)")
      ->type_name("PATTERN");
  command
      .add_option("--slurm-every", arguments.slurm_every, "Query Slurm every TIME (default 10s)")
      ->type_name("TIME");
  command
      .add_option("--squeue", arguments.squeue, "Run this program to query Slurm (default squeue)")
      ->type_name("PATH");
}

void add_lock_options(CLI::App& command, ServeArguments& arguments) {
  command
      .add_option("--lock", arguments.lock,
                  "Serve locks on ADDRESS:PORT or unix:PATH, see weir-lock(1) (default: off)")
      ->type_name("ADDRESS");
  command
      .add_option("--lock-state", arguments.lock_state,
                  "Store the state of the lock service in FILE; required with --lock")
      ->type_name("FILE");
  command
      .add_option(
          "--lock-limit", arguments.lock_limit,
          "Aim for at most N locks in use or cached by clients (default: 100 per MiB of memory)")
      ->type_name("N")
      ->check(not_negative());
  command
      .add_option("--lock-preset", arguments.lock_preset,
                  "Control the lock caches of clients with: weir, dld or lustre (default weir)")
      ->type_name("NAME");
  command
      .add_option("--lock-lease", arguments.lock_lease,
                  "Revoke the locks of a client after TIME without a message from it (default 30s)")
      ->type_name("TIME");
  command
      .add_option("--lock-grace", arguments.lock_grace,
                  "Wait TIME after a restart before granting locks (default 1.5 leases)")
      ->type_name("TIME");
  command.add_flag("--lock-insecure", arguments.lock_insecure,
                   "Do not warn about serving locks to other machines without TLS");
}

using Repeatable = std::function<void(const char* name, std::vector<std::string>& to,
                                      const char* help, const char* type)>;

Repeatable repeatable_of(CLI::App& command) {
  return [&command](const char* name, std::vector<std::string>& to, const char* help,
                    const char* type) {
    command.add_option(name, to, help)->type_name(type)->allow_extra_args(false);
  };
}

void add_config_options(CLI::App& command, ServeArguments& arguments) {
  command
      .add_option(
          "--config", arguments.config,
          "Read this configuration file, see weir.conf(5); other options add to it or override it")
      ->type_name("FILE");
  command.add_flag("--check-config", arguments.check_config,
                   "Check the options and the configuration file, and exit");
}

// What the default service does; the defaults are those of the command.
void add_service_options(CLI::App& command, ServeArguments& arguments, const char* policy_help,
                         const char* slots_help) {
  command.add_option("--policy", arguments.policy, policy_help)->type_name("POLICY");
  repeatable_of(command)("--rule", arguments.rules,
                         "Run this rule command, see weir-rules(7); can be repeated", "RULE");
  command
      .add_option("--adaptive", arguments.adaptive,
                  "Share the capacity between jobs: on, off or paper (default on)")
      ->type_name("MODE");
  command
      .add_option("--capacity", arguments.capacity,
                  "Capacity of the device: auto, operations per second, or SIZE/s (default auto)")
      ->type_name("RATE");
  command.add_option("--slots", arguments.slots, slots_help)->type_name("N");
  command
      .add_option("--classes", arguments.classes,
                  "Track at most N classes and jobs; further ones share a class (default 8192)")
      ->type_name("N");
  command
      .add_option(
          "--jobs", arguments.jobs_file,
          "Read the number of nodes of jobs from FILE, lines 'JOB NODES'; read again on SIGHUP")
      ->type_name("FILE");
}

void add_nodemap_option(CLI::App& command, ServeArguments& arguments) {
  repeatable_of(command)("--nodemap", arguments.nodemaps,
                         "Name a set of clients, NAME=NIDS, for rules; can be repeated", "NODEMAP");
}

}  // namespace

void add_serve(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command = weir.add_subcommand("serve", kServeHelp);
  const auto repeatable = repeatable_of(*command);
  add_config_options(*command, *arguments);
  repeatable("--listen", arguments->listen,
             "Listen on ADDRESS:PORT or unix:PATH (default 127.0.0.1:10809); can be repeated",
             "ADDRESS");
  repeatable("--export", arguments->exports,
             "Export a store: NAME=STORE[,readonly][,description=TEXT]; can be repeated", "EXPORT");
  add_service_options(*command, *arguments,
                      "Use this policy: fifo, crrn or tbf [TYPE] (default tbf jobid)",
                      "Let stores work on at most N requests at a time (default 16)");
  add_slurm_options(*command, *arguments);
  command
      ->add_option(
          "--claims", arguments->claims,
          "Accept claimed job ids from: local, none, or local and these NIDs (default local)")
      ->type_name("WHO");
  add_nodemap_option(*command, *arguments);
  add_control_options(*command, *arguments);
  add_tls_options(*command, *arguments);
  add_lock_options(*command, *arguments);
  command
      ->add_option("--handshake-timeout", arguments->handshake_timeout,
                   "Disconnect clients whose handshake takes longer than TIME (default 10s)")
      ->type_name("TIME");
  add_limit_options(*command, *arguments, "Drain for at most TIME after SIGTERM (default 30s)");
  command
      ->add_option("--threads", arguments->threads,
                   "Serve connections with N threads; auto: one for each processor, at most 8 "
                   "(default 1)")
      ->type_name("N");
  command->footer(kServeFooter);
  command->callback([arguments, &status] { status = run_server(*arguments); });
}

void add_nfs(CLI::App& weir, int& status) {
  auto arguments = std::make_shared<ServeArguments>();
  NfsArguments& nfs = arguments->nfs.emplace();
  CLI::App* command = weir.add_subcommand("nfs", kNfsHelp);
  add_config_options(*command, *arguments);
  repeatable_of (*command)("--listen", nfs.listen,
                           "Accept NFS clients on ADDRESS:PORT (port 2049); can be repeated",
                           "ADDRESS");
  command->add_option("--server", nfs.server, "Forward to this NFS server: HOST[:PORT] (port 2049)")
      ->type_name("HOST");
  command
      ->add_option("--max-wait", nfs.max_wait,
                   "Answer calls of NFS 4.1 and later that would wait for longer than TIME with "
                   "NFS4ERR_DELAY (default 10s)")
      ->type_name("TIME");
  add_service_options(*command, *arguments,
                      "Use this policy: fifo, crrn or tbf [TYPE] (default tbf)",
                      "Let the server work on at most N calls at a time (default 256)");
  add_nodemap_option(*command, *arguments);
  add_control_options(*command, *arguments);
  add_limit_options(*command, *arguments, "Drain for at most TIME after SIGTERM (default 10s)");
  command->footer(kNfsFooter);
  command->callback([arguments, &status] { status = run_server(*arguments); });
}

}  // namespace weir::app
