// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "weir/config/serve_config.h"
#include "weir/config/tables/tables.h"
#include "weir/config/tables/values.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;

void read_relay(const TomlTable& table, std::string_view key,
                std::optional<serve::RelayPorts>& relay) {
  if (!table.has(key)) return;
  const auto ports = serve::parse_relay(table.text(key, ""));
  if (ports) relay = *ports;
  if (!ports) refuse_with(table, table.place_of(key), key, ports.error());
}

void read_relays(const TomlTable& table, serve::NfsOptions& gateway) {
  read_relay(table, "mount_port", gateway.mount);
  read_relay(table, "lock_port", gateway.lock);
  read_relay(table, "status_port", gateway.status);
  read_relay(table, "portmap_port", gateway.portmap);
}

void read_export_handles(const TomlTable& table, serve::NfsOptions& gateway) {
  for (const TomlTable::Item& item : table.texts("export_handles")) {
    const auto handle = serve::parse_export_handle(item.text);
    if (handle) gateway.export_handles.push_back(*handle);
    if (!handle) refuse_with(table, item.at, "export_handles", handle.error());
  }
}

}  // namespace

void read_nfs(const TomlTable& table, ServeOptions& options) {
  using serve::NfsOptions;
  if (!has_room(table, options.nfs, Bounds::kGatewaysMax)) return;
  NfsOptions gateway;
  gateway.name = plain_name(table, gateway.name);
  if (is_named_before(options.nfs, gateway.name) ||
      is_named_before(options.exports, gateway.name)) {
    table.refuse("name", "is used twice");
  }
  for (const TomlTable::Item& item : table.texts("listen")) {
    const auto address = serve::parse_listen(item.text, NfsOptions::kPort);
    if (address) {
      gateway.listen.push_back(*address);
    } else {
      refuse_with(table, item.at, "listen", address.error());
    }
  }
  if (!table.has("listen")) table.miss("listen", "such as [':2049']");
  gateway.server = bounded_text(table, "server", Bounds::kNameMax);
  if (gateway.server.empty()) table.miss("server", "HOST[:PORT] of the NFS server");
  gateway.service = service_name(table, options);
  gateway.max_wait =
      table.time("max_wait", gateway.max_wait, NfsOptions::kMaxWaitMin, NfsOptions::kMaxWaitMax);
  gateway.delays_v3 = table.flag("delay_v3", false);
  gateway.delays_v40 = table.flag("delay_v40", false);
  read_relays(table, gateway);
  const std::string tls = table.text("rpc_tls", "refuse");
  gateway.passes_tls = tls == "pass";
  if (tls != "pass" && tls != "refuse") {
    table.refuse("rpc_tls", "is not valid", "expected 'refuse' or 'pass'");
  }
  const auto source = serve::parse_source(table.text("source", "any"));
  if (source) gateway.source = *source;
  if (!source) refuse_with(table, table.place_of("source"), "source", source.error());
  gateway.sends_proxy = table.flag("send_proxy", false);
  gateway.accepts_proxy = read_nids(table, "accept_proxy");
  read_export_handles(table, gateway);
  options.nfs.push_back(std::move(gateway));
}

}  // namespace weir::config
