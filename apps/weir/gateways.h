// SPDX-License-Identifier: Apache-2.0
//
// The gateways of a server: turns the NFS gateways of its options into protocols, exports and
// addresses to listen on, which is all that a server needs.
//
//   add_gateways(options)          values only; may be repeated on a reload
//   register_gateways(options)     asks the resolver for their servers and adds their protocols;
//                                  those that exist already are left alone
//
// A gateway lives until the process ends. Called by the main thread and by the server's loop, one
// after the other.
#pragma once

#include "apps/weir/slurm_feed.h"
#include "weir/base/result.h"
#include "weir/serve/options.h"

namespace weir::app {

// A service that only gateways use gets NfsOptions::kSlots slots unless a number is configured.
void add_gateways(serve::ServeOptions& options);
Result<void> register_gateways(const serve::ServeOptions& options);

// Reports the jobs of hosts to all gateways: for SlurmFeed, whose thread calls it. Empty if there
// is no gateway.
SlurmFeed::OnHosts host_jobs_of(serve::Server& server);

}  // namespace weir::app
