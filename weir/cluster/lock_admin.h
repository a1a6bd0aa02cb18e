// SPDX-License-Identifier: Apache-2.0
//
// What `weir lock list` and `weir lock stats` ask a lock server, as plain values. Each is one call
// with a deadline; a long list is read page by page, since the server answers between the requests
// of its clients and must not be delayed.
//
//   for (ListOptions options;; options.from = page->next) {
//     auto page = ask_list(to, options); ... }
#pragma once

#include "weir/base/result.h"
#include "weir/cluster/lock_client.h"
#include "weir/lock/view.h"

namespace weir::cluster {

// ETIMEDOUT, ECONNREFUSED: nobody answers. EACCES: it answers those with a certificate or on a Unix
// socket.
Result<lock::LockList> ask_list(const lock::ConnectOptions& options,
                                const lock::ListOptions& wanted);
// The view without clients, but for their number (others.clients).
Result<lock::LockStats> ask_stats(const lock::ConnectOptions& options);

}  // namespace weir::cluster
