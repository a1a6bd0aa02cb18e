// SPDX-License-Identifier: Apache-2.0
//
// Which server of a cluster should lead. etcd lets one server at a time write the key of the
// leader, so two leaders are impossible; but etcd does not know whether the others can reach that
// server. A server with a wrong certificate, or behind a cut network, is registered like any other,
// and as a leader it would leave all others cut off.
//
// Two servers are connected when a call from one has reached the other; with TLS each has then
// checked the certificate of the other. A server counts its connections, including itself, before
// it leads:
//
//   it is alone in etcd                                leads at once
//   connected with more than half of the registered    leads at once
//   fewer, but it is or was connected with another     waits for the better connected first
//   never connected with another server                does not lead
//
// A leader stays while no other server would be better. Servers that do not reach the leader count
// their connections with each other and challenge it: a leader that has fewer connections than a
// challenger yields. A tie leaves the leader in place, so two halves, or two servers that do not
// reach each other, keep the leader they have.
//
// Pure functions. Time is an argument.
#pragma once

#include <cstddef>
#include <optional>

#include "weir/base/time.h"

namespace weir::cluster {

struct Connectivity {
  std::size_t registered = 1;  // servers in etcd, this one included
  std::size_t connected = 1;   // with this one, itself included
  bool was_connected = false;  // with another server, at any time since it started
};

// How long a server waits for better connected ones, from when it learns that there is no leader.
// Registrations of dead servers end meanwhile. None: it does not lead.
inline std::optional<Nanoseconds> wait_to_lead(const Connectivity& connectivity,
                                               Nanoseconds lease) {
  const auto [registered, connected, was_connected] = connectivity;
  if (registered <= 1 || 2 * connected > registered) return Nanoseconds{0};
  if (connected < 2 && !was_connected) return std::nullopt;
  return lease * static_cast<Nanoseconds::rep>(registered - connected) /
         static_cast<Nanoseconds::rep>(registered);
}

// How long a server tries to join a leader before it looks for a better one.
inline Nanoseconds patience(Nanoseconds lease) { return lease / 2; }

// Whether a server that does not reach the leader challenges it.
inline bool should_challenge(const Connectivity& connectivity) {
  return connectivity.connected >= 2;
}

// Whether a leader yields to a challenger with this many connections.
inline bool should_yield(const Connectivity& connectivity, std::size_t challenger) {
  return challenger > connectivity.connected;
}

}  // namespace weir::cluster
