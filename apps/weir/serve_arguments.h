// SPDX-License-Identifier: Apache-2.0
//
// The command lines of weir serve and weir nfs: declares their options, and combines them with a
// configuration file.
//
//   add_serve_options(command, arguments);
//   Result<serve::ServeOptions> options = read_options(arguments);      after parsing
//
// serve.cc runs the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/weir/command.h"
#include "weir/base/result.h"
#include "weir/serve/options.h"

namespace weir::app {

// Additional options of weir nfs.
struct NfsArguments {
  std::vector<std::string> listen;
  std::string server;
  std::string max_wait;
  std::string mount_port;
  std::string lock_port;
  std::string status_port;
  std::string portmap_port;
  bool delays_v3 = false;
  bool delays_v40 = false;
  std::string rpc_tls;
  std::string source;
  bool sends_proxy = false;
  std::string accepts_proxy;
  std::vector<std::string> export_handles;
};

struct ServeArguments {
  std::optional<NfsArguments> nfs;  // of weir nfs
  std::string config;
  bool check_config = false;
  std::vector<std::string> listen;
  std::vector<std::string> exports;
  std::string policy;
  std::vector<std::string> tunables;
  std::vector<std::string> rules;
  std::string adaptive;
  std::string capacity;
  std::string slots;
  std::string latency_target;
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
  std::string control_tls;
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

void add_serve_options(CLI::App& command, ServeArguments& arguments);
// REQUIRES: arguments.nfs.
void add_nfs_options(CLI::App& command, ServeArguments& arguments);

// All options except the rules of the command line. Throws Failure for an invalid argument; errors
// of the configuration file are returned.
Result<serve::ServeOptions> read_options(const ServeArguments& arguments);
// The service that options of the command line change; added if there is none.
serve::ServiceOptions& default_service(serve::ServeOptions& options);

}  // namespace weir::app
