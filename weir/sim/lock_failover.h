// SPDX-License-Identifier: Apache-2.0
//
// Several lock servers, of which one is active, in virtual time: the election, the servers and the
// clients of weir/lock run as in the service; the store of the election, the network, the clocks,
// the applications and the faults are simulated.
//
//   application -- acquire, release -- LockClient --- streams --- LockServer | Candidate
//                                                                                |  asks
//                                                        store: one record, leases, notices
//
// Faults are drawn from the seed: servers crash and restart (with an empty or an old disk), servers
// and clients stand still, any two of {clients, servers, store} are cut from each other, messages
// are late, the store is away or renews all leases by itself (as a new leader of etcd does), and
// the active server leaves in order. Each machine has a clock of its own speed.
//
// A client that stands still does nothing, and when it continues it checks its lease first, as
// `weir lock run` does. The checker (lock_check.h) uses the reports of holders.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/time.h"

namespace weir::sim {

struct FailoverScenario {
  std::uint32_t servers = 3;
  std::uint32_t clients = 6;
  std::uint32_t locks = 3;
  Nanoseconds lease = std::chrono::seconds{8};  // see lock::client_lease()
  Nanoseconds length = std::chrono::seconds{90};
  Nanoseconds hold = std::chrono::seconds{2};         // of a lock, at most
  Nanoseconds fault_every = std::chrono::seconds{3};  // on average; 0: none
  // Faults at fixed times, of the server that is active then.
  std::vector<Nanoseconds> crashes{};
  std::vector<Nanoseconds> stops{};  // in order
  // Broken variants, which the checker must detect.
  bool acts_unproven = false;  // an active server acts until it is told that another one is
  bool has_no_grace = false;   // the next server grants at once
};

struct FailoverOutcome {
  std::uint64_t uses = 0;   // locks held
  std::uint64_t lost = 0;   // while they were in use
  std::uint64_t terms = 0;  // the last one
  std::uint64_t faults = 0;
  std::uint64_t findings = 0;
  std::vector<std::string> first_findings;
  // From the end of the active server to the next grant, in order.
  std::vector<Nanoseconds> gaps;
};

FailoverOutcome run_failover(const FailoverScenario& scenario, std::uint64_t seed);

}  // namespace weir::sim
