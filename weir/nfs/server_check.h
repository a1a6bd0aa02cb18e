// SPDX-License-Identifier: Apache-2.0
//
// Checks an NFS server before clients mount it through the gateway: whether it answers, which
// versions it serves, whether its exports admit the gateway, and whether clients can bypass the
// gateway.
//
//   for (const Finding& one : check_server(ask))       `weir nfs check SERVER`
//
// It makes a dozen calls, none of which changes a file: NULL and GETATTR of version 3, compounds
// that only look at the root, EXCHANGE_ID (which leaves a client id that the server drops after a
// lease), GETPORT of portmap, EXPORT and MNT of MOUNT. A call that is not answered is reported as a
// finding, not as an error.
//
// The gateway cannot see which other machines reach the server. It can see what lets clients bypass
// it: exports without restrictions, and pNFS.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/serve/upstream.h"

namespace weir::nfs {

struct Finding {
  enum class Level : std::uint8_t {
    kGood,
    kWarning,  // clients can bypass the gateway, or something that some clients need is missing
    kProblem,  // clients of the gateway cannot work
  };

  Level level = Level::kGood;
  std::string text;  // one line
};

inline constexpr std::size_t kExportsMax = 64;  // that are checked; more are only counted

// Sends one call, without its record mark, to a port of the server and returns the message that
// answers it. Port 0: that of NFS.
using AskServer = std::function<Result<std::string>(std::uint16_t port, const std::string& call)>;

std::vector<Finding> check_server(const AskServer& ask);

// Asks over TCP, with a connection for each port. REQUIRES: `server` outlives it.
AskServer ask_over_tcp(const serve::ServerAddress& server, Nanoseconds timeout);

}  // namespace weir::nfs
