// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weir/base/job_id.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/serve_config.h"
#include "weir/config/slurm.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;

void read_listen(const TomlTable& table, ServeOptions& options) {
  for (const TomlTable::Item& item : table.texts("listen")) {
    const auto address = serve::parse_entrance(item.text);
    if (!address) {
      refuse_with(table, item.at, "listen", address.error());
    } else if (std::find(options.listen.begin(), options.listen.end(), *address) !=
               options.listen.end()) {
      table.mistakes().add(
          item.at, fmt::format("{}: listen contains {} twice", table.name(), quote(item.text)));
    } else {
      options.listen.push_back(*address);
    }
  }
  if (options.listen.size() > Bounds::kListenMax) {
    table.refuse("listen", fmt::format("contains more than {} addresses", Bounds::kListenMax));
  }
}

void read_threads(const TomlTable& table, ServeOptions& options) {
  const auto value = table.get("threads");
  if (!value) return;
  const auto* const number = value->as<std::int64_t>();
  const auto threads = serve::parse_threads(number != nullptr ? fmt::format("{}", *number)
                                                              : table.text("threads", "auto"));
  if (threads) {
    options.threads = *threads;
  } else {
    refuse_with(table, value->at(), "threads", threads.error());
  }
}

}  // namespace

void read_server(const TomlTable& table, ServeOptions& options) {
  read_listen(table, options);
  options.user = bounded_text(table, "user", Bounds::kNameMax);
  options.control_socket = bounded_text(table, "control_socket", Bounds::kSocketPathMax);
  options.trace_file = bounded_text(table, "trace", Bounds::kPathMax);
  using Io = host::IoChoice;
  constexpr std::array<Io, 3> kIo = {Io::kAuto, Io::kUring, Io::kEpoll};
  options.io = kIo.at(table.word("io", 0, {"auto", "uring", "epoll"}));
  read_threads(table, options);
  serve::ServeLimits& limits = options.limits;
  limits.connections = table.small("connections", limits.connections, 1, Bounds::kConnectionsMax);
  limits.memory = table.size("memory", limits.memory, Bounds::kMemoryMin, Bounds::kMemoryMax);
  limits.connection_memory = table.size("connection_memory", limits.connection_memory,
                                        Bounds::kMemoryMin, Bounds::kMemoryMax);
  limits.connection_requests = table.small("connection_requests", limits.connection_requests, 1,
                                           Bounds::kConnectionRequestsMax);
  limits.handshake_timeout = table.time("handshake_timeout", limits.handshake_timeout,
                                        Bounds::kHandshakeTimeoutMin, Bounds::kHandshakeTimeoutMax);
  limits.drain_timeout =
      table.time("drain_timeout", limits.drain_timeout, Nanoseconds{0}, Bounds::kDrainTimeoutMax);
  if (limits.connection_memory > limits.memory) {
    table.refuse("connection_memory",
                 fmt::format("exceeds memory, which is {}", print_size(limits.memory)));
  }
}

void read_control(const TomlTable& table, serve::ControlFiles& control) {
  control.tcp = bounded_text(table, "tcp", Bounds::kNameMax);
  control.token_file = bounded_text(table, "token", Bounds::kPathMax);
  control.tls = bounded_text(table, "tls", Bounds::kPathMax);
  control.journal = bounded_text(table, "journal", Bounds::kPathMax);
  if (!control.tcp.empty() && control.token_file.empty()) {
    table.refuse("tcp", "needs a token", "name a file that contains it");
  }
  if (control.tcp.empty() && !control.tls.empty()) {
    table.refuse("tls", "encrypts nothing", "name an address with tcp");
  }
}

void read_tls(const TomlTable& table, serve::TlsOptions& tls) {
  using Mode = serve::TlsOptions::Mode;
  constexpr std::array<Mode, 3> kModes = {Mode::kOff, Mode::kOn, Mode::kRequire};
  tls.mode = kModes.at(table.word("mode", 0, {"off", "on", "require"}));
  tls.directory = bounded_text(table, "directory", Bounds::kPathMax);
  tls.verify_clients = table.flag("verify_clients", false);
  if (tls.mode != Mode::kOff && tls.directory.empty()) {
    table.miss("directory", "name the directory of ca-cert.pem and the other files");
  }
}

void read_claims(const TomlTable& table, serve::ClaimsOptions& claims) {
  claims.local = table.flag("local", claims.local);
  claims.nids = read_nids(table, "allow");
}

namespace {

void read_job_nodes(const TomlTable& table, std::vector<serve::JobNodes>& jobs) {
  const auto value = table.get("nodes");
  if (!value) return;
  if (!value->is_table()) {
    table.refuse("nodes", "must be a table such as { 'ior.n1' = 4 }");
    return;
  }
  for (const TomlMember& member : value->members()) {
    const TomlKey& key = member.key;
    const auto* count = member.value.as<std::int64_t>();
    const auto refuse = [&](std::string_view what, std::string_view hint = {}) {
      table.mistakes().add(
          key.at, fmt::format("{}: nodes of {} {}", table.name(), quote(key.name), what), hint);
    };
    if (key.name.empty() || key.name.size() > JobId::kSizeMax) {
      refuse("have no valid job id", fmt::format("a job id has 1 to {} bytes", JobId::kSizeMax));
    } else if (member.value.is_table()) {
      refuse("must not be a table", "quote a job id that contains dots: 'ior.n1' = 4");
    } else if (count == nullptr || *count < 1 ||
               static_cast<std::uint64_t>(*count) > Bounds::kNodesMax) {
      refuse(fmt::format("must be a whole number from 1 to {}", Bounds::kNodesMax));
    } else {
      jobs.push_back({key.name, static_cast<std::uint64_t>(*count)});
    }
  }
}

void read_slurm(const TomlTable& table, serve::SlurmOptions& slurm) {
  slurm.is_on = table.flag("slurm", false);
  slurm.every = table.time("slurm_every", slurm.every, serve::SlurmOptions::kEveryMin,
                           serve::SlurmOptions::kEveryMax);
  if (table.has("squeue")) slurm.squeue = bounded_text(table, "squeue", Bounds::kPathMax);
  if (slurm.squeue.empty()) table.refuse("squeue", "is empty", "name the program");
  if (table.has("sshare")) slurm.sshare = bounded_text(table, "sshare", Bounds::kPathMax);
  if (slurm.sshare.empty()) table.refuse("sshare", "is empty", "name the program");
  if (!table.has("job_pattern")) return;
  slurm.pattern = bounded_text(table, "job_pattern", Bounds::kNameMax);
  if (const auto pattern = JobPattern::parse_known(slurm.pattern); !pattern) {
    table.refuse("job_pattern", pattern.error().what, pattern.error().hint);
  }
}

}  // namespace

void read_jobs(const TomlTable& table, ServeOptions& options) {
  options.jobs_file = bounded_text(table, "file", Bounds::kPathMax);
  read_job_nodes(table, options.jobs);
  options.unknown_jobs = table.word("unknown", 0, {"one", "clients"}) == 0
                             ? serve::UnknownJobs::kOne
                             : serve::UnknownJobs::kClients;
  read_slurm(table, options.slurm);
}

}  // namespace weir::config
