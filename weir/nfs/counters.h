// SPDX-License-Identifier: Apache-2.0
//
// What the sessions of a gateway count, and the metrics made from it.
//
//   ++gateway.counters().calls;
//   counts_of(gateway.counters(), "nfs")        for weir_nfs_*_total{gateway="nfs"}
//
// Each count is thread-safe; several that are read together need not belong to the same moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "weir/serve/protocol.h"

namespace weir::nfs {

struct Counters {
  using Count = std::atomic<std::uint64_t>;

  Count calls = 0;               // of clients, callbacks not included
  Count free = 0;                // of them, neither charged nor queued
  Count exempt = 0;              // charged, not queued
  Count delayed = 0;             // answered NFS4ERR_DELAY or NFS3ERR_JUKEBOX
  Count duplicates_dropped = 0;  // of a call that was parked
  Count duplicates_forwarded = 0;
  Count callbacks = 0;
  Count replies_unmatched = 0;
  Count slots_given_up = 0;  // of calls that hang in the server
  Count tls_refused = 0;
  Count tls_passed = 0;          // connections
  Count server_unreachable = 0;  // connections that ended for this reason
  Count server_closed = 0;
  Count recalls = 0;
  Count proxy_headers = 0;  // of clients behind a proxy
  Count layouts = 0;        // granted by the server: their data bypasses the gateway
  Count moved = 0;          // NFS4ERR_MOVED
  Count bypasses = 0;       // clients that mount the server directly too
  Count stalled_ns = 0;     // time in which connections were not read because memory was short
};

// `name`: of the gateway.
std::vector<serve::ProtocolCount> counts_of(const Counters& counters, const std::string& name);

}  // namespace weir::nfs
