// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/gateways.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "weir/nfs/session.h"
#include "weir/serve/protocol.h"

namespace weir::app {
namespace {

// nfs, nfs2, nfs3: names of protocols consist of letters and digits only.
std::string protocol_name(std::size_t index) {
  return index == 0 ? "nfs" : "nfs" + std::to_string(index + 1);
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
      options.listen.push_back(std::move(address));
    }
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
  static std::vector<std::unique_ptr<nfs::Gateway>> gateways;
  for (std::size_t index = gateways.size(); index < options.nfs.size(); ++index) {
    auto server = nfs::find_server(options.nfs[index].server);
    if (!server) return tl::unexpected(server.error());
    auto gateway = std::make_unique<nfs::Gateway>(options.nfs[index], std::move(*server));
    auto added = serve::add_protocol(nfs::protocol(protocol_name(index), *gateway));
    if (!added) return added;
    gateways.push_back(std::move(gateway));
  }
  return {};
}

}  // namespace weir::app
