// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/source_ports.h"

#include <algorithm>

#include "weir/base/hash.h"
#include "weir/serve/client_identity.h"
#include "weir/serve/proxy_header.h"

namespace weir::serve {

SourcePorts::SourcePorts() {
  for (std::uint16_t port = kLast; port >= kFirst; --port) free_.push_back(port);
}

std::uint16_t SourcePorts::last_of(std::uint64_t client) const {
  const host::MutexLock lock(mutex_);
  const auto found = last_.find(client);
  return found == last_.end() ? 0 : found->second;
}

void SourcePorts::used(std::uint64_t client, std::uint16_t port) {
  const host::MutexLock lock(mutex_);
  if (!last_.insert_or_assign(client, port).second) return;
  order_.push_back(client);
  if (order_.size() <= kKept) return;
  last_.erase(order_.front());
  order_.pop_front();
}

std::uint16_t SourcePorts::take(std::uint64_t client) {
  const std::uint16_t last = last_of(client);
  const host::MutexLock lock(mutex_);
  if (free_.empty()) return 0;
  auto found = std::find(free_.begin(), free_.end(), last);
  if (found == free_.end()) found = free_.begin();
  const std::uint16_t port = *found;
  free_.erase(found);
  return port;
}

void SourcePorts::give_back(std::uint16_t port) {
  const host::MutexLock lock(mutex_);
  free_.push_back(port);
}

std::uint64_t source_key(const sockaddr_storage& client) {
  return hash_words(nid_of(client).hash(), port_of(client));
}

}  // namespace weir::serve
