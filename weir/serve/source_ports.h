// SPDX-License-Identifier: Apache-2.0
//
// The source ports of a gateway's connections to its server. A server recognizes a call that is
// sent again after a reconnect by its client's address and port, so a connection uses the port of
// its predecessor, the last connection of the same client address and port.
//
//   last_of(client)        the port of its predecessor; 0: none
//   used(client, port)
//   take(client)           a reserved port (512 to 1023) that no connection of this gateway uses:
//                          that of the predecessor, otherwise the one unused for longest; 0: none
//   give_back(port)
//
// `client` is a hash of address and port. Bound: kKept clients; the oldest are forgotten.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include <sys/socket.h>

#include "weir/host/mutex.h"

namespace weir::serve {

class SourcePorts {
 public:
  static constexpr std::uint16_t kFirst = 512;
  static constexpr std::uint16_t kLast = 1023;
  static constexpr std::size_t kKept = 16'384;

  SourcePorts();

  std::uint16_t last_of(std::uint64_t client) const;
  void used(std::uint64_t client, std::uint16_t port);
  std::uint16_t take(std::uint64_t client);
  // REQUIRES: it was taken.
  void give_back(std::uint16_t port);

 private:
  mutable host::Mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint16_t> last_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> order_ ABSL_GUARDED_BY(mutex_);  // of last_, the oldest first
  std::deque<std::uint16_t> free_ ABSL_GUARDED_BY(mutex_);   // the one unused for longest first
};

// The client for SourcePorts.
std::uint64_t source_key(const sockaddr_storage& client);

}  // namespace weir::serve
