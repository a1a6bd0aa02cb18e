// SPDX-License-Identifier: Apache-2.0
//
// The readers of the tables of the configuration file (serve_config.h), one for each, in the order
// in which they are called: a table is read after those that it refers to.
//
//   server.cc   [server] [control] [tls] [claims] [jobs]
//   cluster.cc  [cluster]
//   lock.cc     [lock]
//   clients.cc  [[nodemap]] [groups] [[group]]
//   service.cc  [[service]] and its rules
//   shares.cc   [[shares]]
//   export.cc   [[export]]
//   nfs.cc      [[nfs]]
//
// A reader writes what is right into the options and reports the rest to table.mistakes().
#pragma once

#include "weir/config/toml_table.h"
#include "weir/serve/options.h"

namespace weir::config {

// ---- tables that occur once ----

void read_server(const TomlTable& table, serve::ServeOptions& options);
void read_control(const TomlTable& table, serve::ControlFiles& control);
void read_cluster(const TomlTable& table, serve::ClusterOptions& cluster);
void read_tls(const TomlTable& table, serve::TlsOptions& tls);
void read_lock(const TomlTable& table, serve::LockOptions& lock);
void read_claims(const TomlTable& table, serve::ClaimsOptions& claims);
void read_jobs(const TomlTable& table, serve::ServeOptions& options);
void read_groups(const TomlTable& table, serve::GroupsOptions& groups);

// ---- tables that may occur several times; each appends to the options ----

void read_nodemap(const TomlTable& table, serve::ServeOptions& options);
void read_group(const TomlTable& table, serve::ServeOptions& options);
void read_service(const TomlTable& table, serve::ServeOptions& options);
void read_shares(const TomlTable& table, serve::ServeOptions& options);
void read_export(const TomlTable& table, serve::ServeOptions& options);
void read_nfs(const TomlTable& table, serve::ServeOptions& options);

}  // namespace weir::config
