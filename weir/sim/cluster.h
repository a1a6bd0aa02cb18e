// SPDX-License-Identifier: Apache-2.0
//
// A cluster of servers in virtual time: each runs the epoch handler, slices and the participant of
// coordinate/, with its own clock, over a network that delays, loses, duplicates and reorders
// messages, while servers crash, restart, stop, slow down and are cut off. Leaders are elected by
// an etcd that is modelled as one node with leases; servers may be cut off from it too. It knows
// the members of the cluster, until a dead server is forgotten.
//
//   server: participant -> EpochMember --+            +--> EpochMember ...
//                          EpochRelay ---+-- network --+
//   one of them: EpochLeader + SliceLeader + EpochTree  etcd: who leads, in which term
//
// Every message is encoded and decoded, and takes its sender and its receiver MessageCost, one
// after the other. EpochCheckers check everything. The same options give the same result.
//
// A ServerLoad defines what servers do with their slices; without one, demand changes at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/epoch_tree.h"
#include "weir/coordinate/slices.h"

namespace weir::sim {

// Faults; times are means, 0 for never.
struct ClusterFaults {
  std::uint32_t loss_permille = 0;
  std::uint32_t double_permille = 0;
  std::uint32_t straggle_permille = 0;  // messages that take 20 times as long
  Nanoseconds crash_every{0};
  Nanoseconds partition_every{0};
  Nanoseconds stop_every{0};  // a server stops, as by SIGSTOP
  Nanoseconds slow_every{0};  // messages of a server are late by 20 ... 120 ms for a while
  // A server dies and is forgotten when its registration has expired. One of three is started again
  // later; the others stay dead. At least two servers are always left.
  Nanoseconds death_every{0};
  Nanoseconds relays_every{0};      // all relays crash, or are cut off, at the same time
  std::uint32_t drift_ppm = 0;      // clocks run fast or slow by up to this
  Nanoseconds clock_offset_max{0};  // and started at different times
};

// Processor time of a message; bench/epochs.py measures it.
struct MessageCost {
  Nanoseconds receive = std::chrono::microseconds{2};
  Nanoseconds send{0};
  Nanoseconds carried{0};  // for each message in a bundle, on either side
};

// What a server does with its slice. Times are of the server's own clock.
class ServerLoad {
 public:
  ServerLoad() = default;
  ServerLoad(const ServerLoad&) = delete;
  ServerLoad& operator=(const ServerLoad&) = delete;
  virtual ~ServerLoad() = default;

  // In kMilli, since the last call.
  virtual std::int64_t demand(Instant now) = 0;
  virtual void set_slice(std::int64_t slice, Instant now) = 0;
  // Performs due actions, and returns the time of the next call.
  virtual Instant run(Instant now) = 0;
  // Whether it has most of the load, or had it until just now.
  virtual bool is_busy(Instant /*now*/) const { return false; }
};

struct ClusterOptions {
  std::size_t servers = 5;
  std::uint64_t seed = 1;
  Nanoseconds length = std::chrono::seconds{3};
  // Faults end this long before the end; then every server must recover.
  Nanoseconds calm = std::chrono::seconds{1};
  Nanoseconds epoch = std::chrono::milliseconds{10};
  Nanoseconds timeout = std::chrono::milliseconds{100};
  Nanoseconds grace = std::chrono::milliseconds{50};
  SliceTerms terms = {};
  std::int64_t limit = 10'000 * kMilli;
  Nanoseconds delay_min = std::chrono::microseconds{50};
  Nanoseconds delay_max = std::chrono::microseconds{500};
  MessageCost cost = {};
  std::size_t fanout = EpochTree::kFanout;
  Nanoseconds leader_lease = std::chrono::milliseconds{400};
  ClusterFaults faults = {};
  std::function<std::unique_ptr<ServerLoad>(std::size_t server)> load = {};
  // If not 0, every server always has this slice, and there are no epochs.
  std::int64_t fixed_slice = 0;
  std::function<void()> at_end = {};  // called while the loads still exist
  // etcd does not answer from ... until; the leader dies as soon as it is not busy, and starts
  // again. 0: neither happens.
  Nanoseconds etcd_gone_from{0};
  Nanoseconds etcd_gone_until{0};
  Nanoseconds leader_dies_at{0};
  Nanoseconds leader_back_at{0};
  // The leader stops and continues, as by SIGSTOP and SIGCONT. 0: never.
  Nanoseconds leader_stops_at{0};
  Nanoseconds leader_goes_on_at{0};
  std::function<void(std::size_t server)> leader_died = {};
};

struct ClusterResult {
  std::uint64_t epochs = 0;  // callbacks with a number, of all servers
  std::uint64_t errors = 0;  // callbacks with an error
  std::uint64_t evictions = 0;
  std::uint64_t leaders = 0;
  std::uint64_t messages = 0;
  std::uint64_t crashes = 0;
  std::uint64_t partitions = 0;
  std::uint64_t stops = 0;
  std::uint64_t bundles = 0;         // that relays sent to the leader
  std::uint64_t rounds = 0;          // of all leaders
  std::uint64_t late_evictions = 0;  // after the first second
  std::uint64_t forgotten = 0;
  std::uint64_t alive = 0;    // servers at the end
  std::uint64_t counted = 0;  // members at the end, according to the last leader
  Nanoseconds round_max{0};   // from the first Ready at a leader to its Starts
  std::uint64_t findings = 0;
  std::vector<std::string> first_findings;
};

ClusterResult run_cluster(const ClusterOptions& options);

// Faults of all kinds, drawn from the seed: 3 ... 12 servers, and in one of 500 runs some hundred.
ClusterOptions rough_cluster(std::uint64_t seed, Partition partition = Partition::kSafe);

}  // namespace weir::sim
