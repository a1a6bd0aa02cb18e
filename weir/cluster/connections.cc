// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/connections.h"

#include <algorithm>

namespace weir::cluster {

void Connections::set_peers(const std::vector<Peer>& peers) {
  for (auto& [key, seen] : seen_) seen.is_registered = false;
  for (const Peer& peer : peers) seen_[{peer.name, peer.incarnation}].is_registered = true;
  std::erase_if(seen_, [](const auto& one) {
    return !one.second.is_registered && one.second.greeted == Instant{};
  });
}

void Connections::greeted(const std::string& name, std::uint64_t incarnation, Instant now) {
  const auto found = seen_.find({name, incarnation});
  if (found != seen_.end()) {
    found->second.greeted = now;
    return;
  }
  std::erase_if(seen_, [&](const auto& one) {
    return !one.second.is_registered && !one.second.is_fresh(now);
  });
  const auto unregistered = std::count_if(
      seen_.begin(), seen_.end(), [](const auto& one) { return !one.second.is_registered; });
  if (static_cast<std::size_t>(unregistered) >= kUnregisteredMax) return;
  seen_[{name, incarnation}].greeted = now;
}

std::size_t Connections::count(Instant now) const {
  std::size_t count = 1;
  const std::string* last = nullptr;  // incarnations of a name are adjacent
  for (const auto& [key, seen] : seen_) {
    if (!seen.is_registered || !seen.is_fresh(now) || key.first == own_name_) continue;
    if (last == nullptr || *last != key.first) ++count;
    last = &key.first;
  }
  return count;
}

}  // namespace weir::cluster
