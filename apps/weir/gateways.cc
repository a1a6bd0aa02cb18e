// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/gateways.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/host/clock.h"
#include "weir/nfs/host_jobs.h"
#include "weir/nfs/session.h"
#include "weir/serve/event_log.h"
#include "weir/serve/protocol.h"

namespace weir::app {
namespace {

// nfs, nfs2, nfs3: names of protocols consist of letters and digits only.
std::string protocol_name(std::size_t index) {
  return index == 0 ? "nfs" : "nfs" + std::to_string(index + 1);
}

std::vector<std::unique_ptr<nfs::Gateway>>& all_gateways() {
  static std::vector<std::unique_ptr<nfs::Gateway>> gateways;
  return gateways;
}

struct Relay {
  const char* suffix;  // of the name of its protocol
  std::optional<serve::RelayPorts> serve::NfsOptions::*ports;
};
constexpr Relay kRelays[] = {{"mount", &serve::NfsOptions::mount},
                             {"lock", &serve::NfsOptions::lock},
                             {"status", &serve::NfsOptions::status},
                             {"portmap", &serve::NfsOptions::portmap}};

// Beside each address for NFS.
void add_relays(const serve::NfsOptions& gateway, std::size_t index,
                std::vector<serve::ListenAddress>& listen) {
  for (const Relay& relay : kRelays) {
    const auto& ports = gateway.*relay.ports;
    if (!ports) continue;
    for (serve::ListenAddress address : gateway.listen) {
      if (address.kind != serve::ListenAddress::Kind::kTcp) continue;
      address.port = ports->listen;
      address.protocol = protocol_name(index) + relay.suffix;
      address.is_transparent = gateway.source == serve::SourceMode::kClient;
      listen.push_back(std::move(address));
    }
  }
}

Result<void> register_relays(const serve::NfsOptions& options, std::size_t index,
                             nfs::Gateway& gateway) {
  for (const Relay& relay : kRelays) {
    const auto& ports = options.*relay.ports;
    if (!ports) continue;
    const auto kind =
        relay.ports == &serve::NfsOptions::portmap || relay.ports == &serve::NfsOptions::status
            ? nfs::RelayKind::kPlain
            : nfs::RelayKind::kOfServer;
    auto added = serve::add_protocol(
        nfs::relay(protocol_name(index) + relay.suffix, gateway, ports->server, kind));
    if (!added) return added;
  }
  return {};
}

}  // namespace

void add_gateways(serve::ServeOptions& options) {
  for (std::size_t index = 0; index < options.nfs.size(); ++index) {
    const serve::NfsOptions& gateway = options.nfs[index];
    serve::ExportOptions forwarded;
    forwarded.name = gateway.name;
    forwarded.store.kind = serve::StoreOptions::Kind::kRemote;
    forwarded.description = "NFS server " + gateway.server;
    forwarded.service = gateway.service;
    options.exports.push_back(std::move(forwarded));
    for (serve::ListenAddress address : gateway.listen) {
      address.protocol = protocol_name(index);
      address.is_transparent = gateway.source == serve::SourceMode::kClient;
      options.listen.push_back(std::move(address));
    }
    add_relays(gateway, index, options.listen);
  }
  for (serve::ServiceOptions& service : options.services) {
    const auto uses = [&](const serve::ExportOptions& one) { return one.service == service.name; };
    const auto stores = [&](const serve::ExportOptions& one) {
      return uses(one) && !one.store.is_remote();
    };
    const bool is_used = std::any_of(options.exports.begin(), options.exports.end(), uses);
    const bool has_store = std::any_of(options.exports.begin(), options.exports.end(), stores);
    if (is_used && !has_store && !service.slots) {
      service.slots = serve::NfsOptions::kSlots;
    }
  }
}

Result<void> register_gateways(const serve::ServeOptions& options) {
  auto& gateways = all_gateways();
  for (std::size_t index = gateways.size(); index < options.nfs.size(); ++index) {
    auto server = nfs::find_server(options.nfs[index].server);
    if (!server) return tl::unexpected(server.error());
    auto gateway = std::make_unique<nfs::Gateway>(options.nfs[index], std::move(*server));
    auto added = serve::add_protocol(nfs::protocol(protocol_name(index), *gateway));
    if (!added) return added;
    gateways.push_back(std::move(gateway));  // its protocol refers to it
    auto relays = register_relays(options.nfs[index], index, *gateways.back());
    if (!relays) return relays;
  }
  return {};
}

SlurmFeed::OnHosts host_jobs_of(serve::Server& server) {
  if (server.options().nfs.empty()) return {};
  return [&server, resolver = std::make_shared<nfs::HostResolver>(),
          told = std::size_t{0}](const std::vector<config::SlurmJobs::HostJob>& hosts) mutable {
    std::vector<std::pair<std::string, std::string>> names;
    names.reserve(hosts.size());
    for (const auto& [host, job] : hosts) names.emplace_back(host, job);
    std::size_t unknown = 0;
    nfs::HostJobs jobs = resolver->addresses(names, host::now(), unknown);
    if (unknown > std::exchange(told, unknown)) {
      serve::EventLog::say(
          fmt::format("slurm: {} of {} hosts have no address here, and their calls belong to their "
                      "users; add them to DNS or /etc/hosts",
                      unknown, names.size()));
    }
    // Fails only when the server ends.
    (void)server.order([jobs = std::move(jobs)](const Result<serve::Server*>& it) {
      if (!it) return;
      for (const auto& gateway : all_gateways()) gateway->set_jobs(jobs);
    });
  };
}

}  // namespace weir::app
