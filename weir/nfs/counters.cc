// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/counters.h"

namespace weir::nfs {

std::vector<serve::ProtocolCount> counts_of(const Counters& counters, const std::string& name) {
  return {
      {"weir_nfs_calls_total", "Calls of clients.", name, counters.calls},
      {"weir_nfs_free_calls_total", "Calls that are neither charged nor queued.", name,
       counters.free},
      {"weir_nfs_exempt_calls_total", "Calls that are charged and not queued.", name,
       counters.exempt},
      {"weir_nfs_delayed_calls_total", "Calls answered with NFS4ERR_DELAY or NFS3ERR_JUKEBOX.",
       name, counters.delayed},
      {"weir_nfs_duplicates_dropped_total", "Retransmissions of a call that was waiting.", name,
       counters.duplicates_dropped},
      {"weir_nfs_duplicates_forwarded_total", "Retransmissions of a call that was forwarded.", name,
       counters.duplicates_forwarded},
      {"weir_nfs_callbacks_total", "Calls of the server to clients.", name, counters.callbacks},
      {"weir_nfs_recalls_total", "Delegations that the server asked for.", name, counters.recalls},
      {"weir_nfs_replies_unmatched_total", "Replies to no known call.", name,
       counters.replies_unmatched},
      {"weir_nfs_slots_given_up_total", "Calls that hang in the server.", name,
       counters.slots_given_up},
      {"weir_nfs_tls_refused_total", "Probes for TLS that were refused.", name,
       counters.tls_refused},
      {"weir_nfs_tls_connections_total", "Connections whose calls are not visible.", name,
       counters.tls_passed},
      {"weir_nfs_layouts_total", "pNFS layouts that the server granted.", name, counters.layouts},
      {"weir_nfs_referrals_total", "Replies that refer a client to another server.", name,
       counters.moved},
      {"weir_nfs_bypasses_total", "Clients that left after EXCHANGE_ID without a session.", name,
       counters.bypasses},
      {"weir_nfs_server_unreachable_total", "Connections that could not be forwarded.", name,
       counters.server_unreachable},
      {"weir_nfs_server_closed_total", "Connections that the server closed.", name,
       counters.server_closed},
      {"weir_nfs_proxy_headers_total", "Connections of clients behind a proxy.", name,
       counters.proxy_headers},
      {"weir_nfs_stalled_seconds_total", "Time in which clients were not read from to save memory.",
       name, counters.stalled_ns, true},
  };
}

}  // namespace weir::nfs
