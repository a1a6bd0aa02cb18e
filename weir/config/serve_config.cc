// SPDX-License-Identifier: Apache-2.0
#include "weir/config/serve_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/config/tables/tables.h"
#include "weir/config/toml_table.h"
#include "weir/host/files.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Words = std::vector<std::string_view>;

struct Part {
  std::string_view table;
  Words keys;
};

const std::array<Part, 14>& parts() {
  static const std::array<Part, 14> parts = {{
      {"server",
       {"listen", "user", "control_socket", "trace", "io", "threads", "connections", "memory",
        "connection_memory", "connection_requests", "handshake_timeout", "drain_timeout"}},
      {"control", {"tcp", "token", "tls", "journal"}},
      {"cluster",
       {"name", "etcd", "listen", "advertise", "prefix", "epoch", "timeout", "lease", "user",
        "password_file", "tls_directory", "etcd_tls_directory", "state", "start_without",
        "start_rate", "partition", "socket", "insecure"}},
      {"tls", {"mode", "directory", "verify_clients"}},
      {"lock",
       {"listen", "state", "limit", "preset", "lease", "grace", "policy", "rules", "insecure"}},
      {"claims", {"local", "allow"}},
      {"jobs",
       {"file", "job_pattern", "nodes", "slurm", "slurm_every", "squeue", "sshare", "unknown"}},
      {"nodemap", {"name", "nids"}},
      {"groups", {"length", "quiesce", "quiet_max"}},
      {"group", {"name", "nids", "length"}},
      {"service",
       {"name", "policy", "tunables", "rules", "adaptive", "capacity", "slots", "hp_slots",
        "latency_target", "period", "cost", "classes"}},
      {"shares", {"accounts", "names", "service", "tree", "weights"}},
      {"export",
       {"name", "store", "size", "direct", "force", "read_only", "description", "service",
        "block_min", "block_preferred", "block_max"}},
      {"nfs",
       {"name", "listen", "server", "service", "max_wait", "mount_port", "lock_port", "status_port",
        "portmap_port", "delay_v3", "delay_v40", "rpc_tls", "source", "send_proxy", "accept_proxy",
        "export_handles"}},
  }};
  return parts;
}

const Words& keys_of(std::string_view table) {
  return std::find_if(parts().begin(), parts().end(),
                      [&](const Part& part) { return part.table == table; })
      ->keys;
}

// "service 'fast'": the name of one of several tables in messages.
std::string called(std::string_view table, const TomlValue& value) {
  const auto given = value.find("name");
  const auto* name = given ? given->as<std::string>() : nullptr;
  return name != nullptr ? fmt::format("{} {}", table, quote(*name)) : std::string(table);
}

// Tables that others refer to are read first.
void read_document(const TomlValue& document, TomlMistakes& mistakes, ServeOptions& options) {
  Words tables;
  for (const Part& part : parts()) tables.push_back(part.table);
  const TomlTable root(document, "file", mistakes, tables);
  const auto once = [&](std::string_view name, auto read) {
    if (const auto value = root.get(name)) {
      read(TomlTable(*value, std::string(name), mistakes, keys_of(name)));
    }
  };
  const auto many = [&](std::string_view name, auto read) {
    root.each(name, [&](const TomlValue& value) {
      read(TomlTable(value, called(name, value), mistakes, keys_of(name)), options);
    });
  };
  once("server", [&](const TomlTable& table) { read_server(table, options); });
  once("control", [&](const TomlTable& table) { read_control(table, options.control); });
  once("cluster", [&](const TomlTable& table) { read_cluster(table, options.cluster); });
  once("tls", [&](const TomlTable& table) { read_tls(table, options.tls); });
  once("lock", [&](const TomlTable& table) { read_lock(table, options.lock); });
  once("claims", [&](const TomlTable& table) { read_claims(table, options.claims); });
  once("jobs", [&](const TomlTable& table) { read_jobs(table, options); });
  many("nodemap", read_nodemap);
  once("groups", [&](const TomlTable& table) { read_groups(table, options.groups); });
  many("group", read_group);
  many("service", read_service);
  many("shares", read_shares);
  many("export", read_export);
  many("nfs", read_nfs);
}

}  // namespace

std::vector<ServeConfigKey> serve_config_keys() {
  std::vector<ServeConfigKey> keys;
  for (const Part& part : parts()) {
    keys.reserve(keys.size() + part.keys.size());
    for (const std::string_view key : part.keys) keys.push_back({part.table, key});
  }
  return keys;
}

tl::expected<ServeOptions, std::vector<Error>> parse_serve_config(std::string_view text,
                                                                  const std::string& file) {
  const auto document = parse_toml(text, file);
  if (!document) return tl::unexpected(std::vector<Error>{document.error()});
  TomlMistakes mistakes(file);
  ServeOptions options;
  read_document(*document, mistakes, options);
  if (!mistakes.empty()) return tl::unexpected(mistakes.in_order());
  return options;
}

Result<ServeOptions> load_serve_config(const std::string& path) {
  const auto text = host::read_file(path);
  if (!text) return tl::unexpected(text.error());
  auto options = parse_serve_config(*text, path);
  if (options) return *std::move(options);
  Error all = options.error().front();
  all.what = all.message().substr(all.where.size() + 2);
  all.hint.clear();
  for (std::size_t i = 1; i < options.error().size(); ++i) {
    all.what += "\n" + options.error()[i].message();
  }
  return tl::unexpected(all);
}

}  // namespace weir::config
