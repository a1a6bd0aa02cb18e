// SPDX-License-Identifier: Apache-2.0
//
// What a server would say or take in plain text beyond this machine. Locks, the epochs of a cluster
// and etcd decide what clients may do, and anybody on the network can change what is not encrypted.
// An administrator whose network is closed says insecure = true in [lock] or [cluster].
//
//   listener or peer           plain text on loopback    elsewhere
//   locks, [lock]              silent                    a warning
//   other servers, [cluster]   silent                    a warning
//   etcd, [cluster]            silent                    a warning
//   control over TCP           needs a token             refused (weir/control/http.h)
//
// Exports are served in plain text unless [tls] says otherwise, as NBD servers do; certificates
// that would not be used are refused by check(ServeOptions). Values only, nothing is opened.
#pragma once

#include <string>
#include <vector>

#include "weir/serve/options.h"

namespace weir::serve {

// One line for each place, with the cure.
std::vector<std::string> plain_text_warnings(const ServeOptions& options);

}  // namespace weir::serve
