// SPDX-License-Identifier: Apache-2.0
//
// The queries of `weir lock list` and `weir lock stats`, as plain values. Each is one call with a
// deadline; a long list is read page by page, since the server answers between the requests of its
// clients and must not be delayed.
//
//   for (ListOptions options;; options.from = page->next) {
//     auto page = ask_list(to, options); ... }
#pragma once

#include "weir/base/result.h"
#include "weir/cluster/lock_client.h"
#include "weir/lock/view.h"

namespace weir::cluster {

// ETIMEDOUT, ECONNREFUSED: no server answers. EACCES: it answers only clients with a certificate or
// on a Unix socket.
Result<lock::LockList> ask_list(const lock::ConnectOptions& options,
                                const lock::ListOptions& wanted);
// The view contains only the number of clients (others.clients).
Result<lock::LockStats> ask_stats(const lock::ConnectOptions& options);

}  // namespace weir::cluster
