// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/serve_arguments.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "apps/weir/gateways.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/plain_rates.h"
#include "weir/config/serve_config.h"
#include "weir/config/slurm.h"

namespace weir::app {

serve::ServiceOptions& default_service(serve::ServeOptions& options) {
  auto found = std::find_if(options.services.begin(), options.services.end(),
                            [](const auto& one) { return one.name == serve::kDefaultService; });
  if (found == options.services.end()) found = options.services.emplace(found);
  return *found;
}

namespace {

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

void add_service(const ServeArguments& arguments, serve::ServiceOptions& service) {
  if (!arguments.policy.empty()) service.policy = arguments.policy;
  if (!arguments.tunables.empty()) service.tunables = arguments.tunables;
  if (!arguments.adaptive.empty()) {
    service.adaptive =
        value_or_fail(serve::parse_adaptive(arguments.adaptive), Exit::kUsage, "--adaptive");
  }
  if (!arguments.capacity.empty()) {
    service.capacity =
        value_or_fail(serve::parse_capacity(arguments.capacity), Exit::kUsage, "--capacity");
  }
  if (!arguments.slots.empty()) {
    service.slots = value_or_fail(serve::parse_slots(arguments.slots), Exit::kUsage, "--slots");
  }
  if (!arguments.latency_target.empty()) {
    service.latency_target =
        value_or_fail(parse_duration(arguments.latency_target), Exit::kUsage, "--latency-target");
  }
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
  if (!arguments.control_tls.empty()) options.control.tls = arguments.control_tls;
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

void add_relay_arguments(const NfsArguments& arguments, serve::NfsOptions& gateway) {
  const auto relay = [](const std::string& text, const char* option,
                        std::optional<serve::RelayPorts>& ports) {
    if (!text.empty()) ports = value_or_fail(serve::parse_relay(text), Exit::kUsage, option);
  };
  relay(arguments.mount_port, "--mount-port", gateway.mount);
  relay(arguments.lock_port, "--lock-port", gateway.lock);
  relay(arguments.status_port, "--status-port", gateway.status);
  relay(arguments.portmap_port, "--portmap-port", gateway.portmap);
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
  gateway.delays_v3 = arguments.delays_v3;
  gateway.delays_v40 = arguments.delays_v40;
  add_relay_arguments(arguments, gateway);
  gateway.passes_tls = arguments.rpc_tls == "pass";
  if (!arguments.source.empty()) {
    gateway.source = value_or_fail(serve::parse_source(arguments.source), Exit::kUsage, "--source");
  }
  gateway.sends_proxy = arguments.sends_proxy;
  if (!arguments.accepts_proxy.empty()) {
    gateway.accepts_proxy =
        value_or_fail(NidList::parse(arguments.accepts_proxy), Exit::kUsage, "--accept-proxy");
  }
  for (const std::string& text : arguments.export_handles) {
    gateway.export_handles.push_back(
        value_or_fail(serve::parse_export_handle(text), Exit::kUsage, "--export-handle"));
  }
  options.nfs.insert(options.nfs.begin(), std::move(gateway));
}

// Defaults that differ for a server that is only a gateway. A value of the file that is equal to
// the usual default counts as none.
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
                  "Serve the API on this address as well; requires --control-token, and beyond "
                  "loopback --control-tls")
      ->type_name("ADDRESS:PORT");
  command
      .add_option("--control-token", arguments.control_token,
                  "Read the tokens that requests over TCP must send from FILE, lines 'NAME ROLE "
                  "TOKEN'; read again on SIGHUP")
      ->type_name("FILE");
  command
      .add_option("--control-tls", arguments.control_tls,
                  "Encrypt the API over TCP with ca-cert.pem, server-cert.pem and server-key.pem "
                  "from DIRECTORY; read again on SIGHUP")
      ->type_name("DIRECTORY");
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

// Options of the default service, with the defaults of the command.
void add_service_options(CLI::App& command, ServeArguments& arguments, const char* policy_help,
                         const char* slots_help) {
  command.add_option("--policy", arguments.policy, policy_help)->type_name("POLICY");
  repeatable_of(command)("--tunable", arguments.tunables,
                         "Set a tunable of the policy, such as quantum=8; can be repeated",
                         "NAME=N");
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
  command.add_option("--slots", arguments.slots, slots_help)
      ->type_name("N")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const auto slots = serve::parse_slots(text);
            return slots ? std::string() : slots.error().message();
          },
          ""));
  command
      .add_option("--latency-target", arguments.latency_target,
                  "With --slots auto: use no more slots than this mean time in the store allows")
      ->type_name("TIME");
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

void add_serve_options(CLI::App& command, ServeArguments& arguments) {
  const auto repeatable = repeatable_of(command);
  add_config_options(command, arguments);
  repeatable("--listen", arguments.listen,
             "Listen on ADDRESS:PORT or unix:PATH (default 127.0.0.1:10809); can be repeated",
             "ADDRESS");
  repeatable("--export", arguments.exports,
             "Export a store: NAME=STORE[,readonly][,description=TEXT]; can be repeated", "EXPORT");
  add_service_options(command, arguments,
                      "Use this policy: fifo, crrn or tbf [TYPE] (default tbf jobid)",
                      "Let stores work on at most N requests at a time, or auto (default 16)");
  add_slurm_options(command, arguments);
  command
      .add_option(
          "--claims", arguments.claims,
          "Accept claimed job ids from: local, none, or local and these NIDs (default local)")
      ->type_name("WHO");
  add_nodemap_option(command, arguments);
  add_control_options(command, arguments);
  add_tls_options(command, arguments);
  add_lock_options(command, arguments);
  command
      .add_option("--handshake-timeout", arguments.handshake_timeout,
                  "Disconnect clients whose handshake takes longer than TIME (default 10s)")
      ->type_name("TIME");
  add_limit_options(command, arguments, "Drain for at most TIME after SIGTERM (default 30s)");
  command
      .add_option("--threads", arguments.threads,
                  "Serve connections with N threads; auto: one for each processor, at most 8 "
                  "(default auto)")
      ->type_name("N");
}

void add_relay_options(CLI::App& command, NfsArguments& nfs) {
  const auto relay = [&](const char* name, std::string& value, const char* help) {
    command.add_option(name, value, help)->type_name("PORT");
  };
  relay("--mount-port", nfs.mount_port,
        "Also forward MOUNT, on this port; PORT:SERVER_PORT if the server uses another one");
  relay("--lock-port", nfs.lock_port, "Also forward NLM (locks of NFS 3)");
  relay("--status-port", nfs.status_port, "Also forward NSM");
  relay("--portmap-port", nfs.portmap_port, "Also forward portmap (port 111)");
}

void add_nfs_options(CLI::App& command, ServeArguments& arguments) {
  NfsArguments& nfs = *arguments.nfs;
  add_config_options(command, arguments);
  repeatable_of(command)("--listen", nfs.listen,
                         "Accept NFS clients on ADDRESS:PORT (port 2049); can be repeated",
                         "ADDRESS");
  command.add_option("--server", nfs.server, "Forward to this NFS server: HOST[:PORT] (port 2049)")
      ->type_name("HOST");
  command
      .add_option("--max-wait", nfs.max_wait,
                  "Answer calls of NFS 4.1 and later that would wait for longer than TIME with "
                  "NFS4ERR_DELAY (default 10s)")
      ->type_name("TIME");
  command.add_flag("--delay-v3", nfs.delays_v3,
                   "Answer such calls of NFS 3 too, with NFS3ERR_JUKEBOX");
  command.add_flag("--delay-v40", nfs.delays_v40, "Answer such calls of NFS 4.0 too");
  add_relay_options(command, nfs);
  add_slurm_options(command, arguments);
  command
      .add_option("--rpc-tls", nfs.rpc_tls,
                  "What happens to clients that ask for TLS: refuse, or pass to the server; then "
                  "their users are not visible (default refuse)")
      ->type_name("refuse|pass")
      ->check(CLI::IsMember({"refuse", "pass"}));
  command
      .add_option("--source", nfs.source,
                  "What the server sees: any port, a reserved port, or the address of the client "
                  "(default any)")
      ->type_name("any|reserved|client");
  command.add_flag("--send-proxy", nfs.sends_proxy,
                   "Send a PROXY header (version 2) with the client's address to the server");
  command
      .add_option("--accept-proxy", nfs.accepts_proxy,
                  "Expect a PROXY header (version 2) from these addresses, and from no others")
      ->type_name("NIDS");
  repeatable_of(command)("--export-handle", nfs.export_handles,
                         "Files whose handles begin with PREFIX belong to the export NAME, for "
                         "rules; can be repeated",
                         "NAME=PREFIX");
  add_service_options(command, arguments, "Use this policy: fifo, crrn or tbf [TYPE] (default tbf)",
                      "Let the server work on at most N calls at a time (default 256)");
  add_nodemap_option(command, arguments);
  add_control_options(command, arguments);
  add_limit_options(command, arguments, "Drain for at most TIME after SIGTERM (default 10s)");
}

}  // namespace weir::app
