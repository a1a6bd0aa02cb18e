// SPDX-License-Identifier: Apache-2.0
//
// Warnings about plain text on the network. Locks, the epochs of a cluster and etcd decide what
// clients may do, and anyone on the network can change plain text. An administrator whose network
// is trusted sets insecure = true in [lock] or [cluster].
//
//   address or peer            plain text on loopback    elsewhere
//   locks, [lock]              silent                    a warning
//   other servers, [cluster]   silent                    a warning
//   etcd, [cluster]            silent                    a warning
//   control over TCP           needs a token             rejected (weir/control/http.h)
//
// Exports are served in plain text unless [tls] is set, as usual for NBD servers;
// check(ServeOptions) rejects certificates that would not be used. Values only, nothing is opened.
#pragma once

#include <string>
#include <vector>

#include "weir/serve/options.h"

namespace weir::serve {

// One line for each, with the remedy.
std::vector<std::string> plain_text_warnings(const ServeOptions& options);

}  // namespace weir::serve
