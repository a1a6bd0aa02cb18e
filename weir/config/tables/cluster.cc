// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"

namespace weir::config {
namespace {

using Bounds = ServeConfigBounds;

void read_etcd(const TomlTable& table, serve::ClusterOptions& cluster) {
  for (const TomlTable::Item& item : table.texts("etcd")) {
    if (is_reachable(item.text)) {
      cluster.etcd.push_back(item.text);
    } else {
      table.mistakes().add(
          item.at, fmt::format("{}: etcd: {} is not HOST:PORT", table.name(), quote(item.text)),
          "such as '10.0.0.1:2379', without http://");
    }
  }
  if (cluster.etcd.size() > Bounds::kEtcdMax) {
    table.refuse("etcd", fmt::format("contains more than {} addresses", Bounds::kEtcdMax));
  }
  if (!table.has("etcd")) table.miss("etcd", "such as ['10.0.0.1:2379']");
}

void read_cluster_addresses(const TomlTable& table, serve::ClusterOptions& cluster) {
  cluster.listen = bounded_text(table, "listen", Bounds::kNameMax);
  cluster.advertise = bounded_text(table, "advertise", Bounds::kNameMax);
  if (!table.has("listen")) {
    table.miss("listen", "such as '10.0.0.1:7420'");
  } else if (const auto address = serve::parse_listen(cluster.listen);
             !address || address->kind != serve::ListenAddress::Kind::kTcp) {
    table.refuse("listen", "is not ADDRESS:PORT", "such as '10.0.0.1:7420'");
  } else if (address->host.empty() && cluster.advertise.empty()) {
    table.miss("advertise", "other servers need an address to connect to when listen has none");
  }
  if (!cluster.advertise.empty() && !is_reachable(cluster.advertise)) {
    table.refuse("advertise", "is not HOST:PORT");
  }
}

void read_cluster_start(const TomlTable& table, serve::ClusterOptions& cluster) {
  using StartWithout = serve::ClusterOptions::StartWithout;
  cluster.state_file = bounded_text(table, "state", Bounds::kPathMax);
  if (cluster.state_file.empty()) {
    table.miss("state", "name a file that the server can write, such as '/var/lib/weir/cluster'");
  }
  const std::string without = table.text("start_without", "closed");
  if (without == "rate") {
    cluster.start_without = StartWithout::kRate;
    if (!table.has("start_rate")) {
      table.miss("start_rate", "operations per second, for start_without = 'rate'");
    }
  } else if (without != "closed") {
    table.refuse("start_without", "must be 'closed' or 'rate'");
  } else if (table.has("start_rate")) {
    table.refuse("start_rate", "requires start_without = 'rate'");
  }
  if (table.has("start_rate")) {
    cluster.start_rate = static_cast<std::uint32_t>(table.number("start_rate", 1, 1, UINT32_MAX));
  }
}

void read_partition(const TomlTable& table, serve::ClusterOptions& cluster) {
  const std::string partition = table.text("partition", "safe");
  if (partition == "last") {
    cluster.partition = serve::ClusterOptions::Partition::kLast;
  } else if (partition != "safe") {
    table.refuse("partition", "must be 'safe' or 'last'");
  }
}

}  // namespace

void read_cluster(const TomlTable& table, serve::ClusterOptions& cluster) {
  cluster.prefix = table.text("prefix", cluster.prefix);
  const bool is_prefix = cluster.prefix.size() > 1 && cluster.prefix.size() <= Bounds::kNameMax &&
                         cluster.prefix.starts_with('/') && !cluster.prefix.ends_with('/');
  if (!is_prefix)
    table.refuse("prefix", "is not a valid prefix", "such as '/weir', without a / at the end");
  cluster.epoch = table.time("epoch", cluster.epoch, Bounds::kEpochMin, Bounds::kEpochMax);
  cluster.timeout =
      table.time("timeout", cluster.timeout, Bounds::kEpochMin, Bounds::kEpochTimeoutMax);
  cluster.lease =
      table.time("lease", cluster.lease, Bounds::kLeaderLeaseMin, Bounds::kLeaderLeaseMax);
  if (cluster.timeout <= cluster.epoch) {
    table.refuse("timeout", fmt::format("must be longer than epoch, which is {}",
                                        print_duration(cluster.epoch)));
  }
  cluster.user = bounded_text(table, "user", Bounds::kNameMax);
  cluster.password_file = bounded_text(table, "password_file", Bounds::kPathMax);
  if (!cluster.user.empty() && cluster.password_file.empty()) {
    table.miss("password_file", "name a file that contains the user's password");
  }
  cluster.tls_directory = bounded_text(table, "tls_directory", Bounds::kPathMax);
  cluster.etcd_tls_directory = bounded_text(table, "etcd_tls_directory", Bounds::kPathMax);
  cluster.insecure = table.flag("insecure", false);
  if (!table.has("name") && !table.has("etcd") && !table.has("listen")) return;
  cluster.name = plain_name(table, "");
  read_etcd(table, cluster);
  read_cluster_addresses(table, cluster);
  read_cluster_start(table, cluster);
  read_partition(table, cluster);
  cluster.socket = bounded_text(table, "socket", Bounds::kPathMax);
}

}  // namespace weir::config
