// SPDX-License-Identifier: Apache-2.0
//
// One limit on many servers, with real schedulers: a job with a cluster-wide limit has nearly all
// of its work on one server, and this server changes every two seconds. Every server runs a Gate
// with the rule, and its slice is set as in a real server.
//
//   slices   the limit is divided in every epoch, by demand
//   fixed    every server always has limit / servers: capacity that a hot spot cannot use is lost
//   each     every server has the whole limit, as rates without a cluster: they multiply
//
// The result is an Outcome like that of any scenario, and how far the sum over all servers deviates
// from the limit in windows of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "weir/base/time.h"
#include "weir/sim/cluster.h"
#include "weir/sim/contender.h"
#include "weir/sim/outcome.h"

namespace weir::sim {

struct ClusterSpec {
  std::size_t servers = 10;
  std::uint32_t limit = 10'000;  // requests per second, of all servers
  Nanoseconds move_every = std::chrono::seconds{2};
  std::uint32_t window = 128;  // requests outstanding at the hot spot
  // On other servers one request at a time, with this pause after each.
  Nanoseconds trickle = std::chrono::milliseconds{20};
  Nanoseconds epoch = std::chrono::milliseconds{10};
  Nanoseconds length = std::chrono::seconds{30};
  Partition partition = Partition::kSafe;
  MessageCost cost = {};
  // The server that leads dies, at a time when it is not the hot spot, and starts again; or etcd
  // does not answer.
  enum class Outage : std::uint8_t { kNone, kLeader, kEtcd };
  static constexpr Nanoseconds kOutageAt = std::chrono::seconds{5};
  Outage outage = Outage::kNone;
  Nanoseconds outage_length() const {
    return std::chrono::seconds{outage == Outage::kNone ? 0 : outage == Outage::kLeader ? 5 : 60};
  }
};

// Requests served in windows of a given length, as fractions of the limit, without the first
// second, in which servers elect a leader and join.
struct WindowFigures {
  double least = 0;
  double most = 0;
};

struct ClusterLimitOutcome {
  Outcome outcome;
  WindowFigures short_windows;  // 500 ms
  WindowFigures long_windows;   // 5 s
  std::vector<double> rolling;  // part of the limit in the 500 ms before the end of each 100 ms
  std::vector<std::vector<std::uint64_t>> servers;  // requests of each server in each 100 ms
  double utilisation = 0;                           // without the first second
  std::optional<double> through_outage;             // the same during the outage
  ClusterResult cluster;
};

// REQUIRES: is_cluster_contender(contender).
ClusterLimitOutcome run_cluster_limit(const ClusterSpec& spec, Contender contender,
                                      std::uint64_t seed);

}  // namespace weir::sim
