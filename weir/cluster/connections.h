// SPDX-License-Identifier: Apache-2.0
//
// Counts the servers of the cluster that have recently reached this one. A server that looks for
// a leader greets all registered servers (epoch_greetings_grpc.h), and each counts the greetings
// it receives:
//
//   connections.set_peers(registered);
//   connections.greeted("b", incarnation, now);
//   connections.count(now)                       this server and "b": 2
//
// A greeting that arrived proves a connection on which both ends have checked each other, in the
// direction that matters: members open their streams to the leader. It counts for kFresh, and only
// for a server that is registered with this incarnation. A greeting may arrive before its server is
// listed in etcd; a few of those are kept.
//
// Time is an argument. One owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weir/base/time.h"

namespace weir::cluster {

// A registered server.
struct Peer {
  std::string name;
  std::uint64_t incarnation = 0;
  std::string address;

  bool operator==(const Peer&) const = default;
};

class Connections {
 public:
  static constexpr Nanoseconds kFresh = std::chrono::seconds{2};
  static constexpr std::size_t kUnregisteredMax = 256;

  explicit Connections(std::string own_name) : own_name_(std::move(own_name)) {}

  void set_peers(const std::vector<Peer>& peers);
  void greeted(const std::string& name, std::uint64_t incarnation, Instant now);
  // The number of servers, by name, including this one.
  std::size_t count(Instant now) const;

 private:
  using Key = std::pair<std::string, std::uint64_t>;  // name and incarnation
  struct Seen {
    bool is_registered = false;
    Instant greeted{};
    bool is_fresh(Instant now) const { return greeted != Instant{} && now - greeted < kFresh; }
  };

  std::string own_name_;
  std::map<Key, Seen> seen_;
};

}  // namespace weir::cluster
