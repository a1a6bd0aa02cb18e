// SPDX-License-Identifier: Apache-2.0
//
// Commands from other threads to a running server: to read a counter, start a rule, change a
// capacity. Nothing of a server may be used outside its loop, so the caller sends a function that
// the loop runs between two turns:
//
//   order(command)   returns at once; the command is called on the loop, exactly once: with the
//                    server, or with the reason why it is not available
//   ask(function)    the same, and waits for the result of the function; never call it on the loop
//   post(command)    as order(), for messages that may be lost: refused while many commands wait
//
//   Result<std::string> rules = server.ask([](Server& it) -> Result<std::string> {
//     Service* service = it.find_service("ost_io");
//     if (service == nullptr) return fail(...);
//     return read_nrs_tbf_rule(service->target);
//   });
//
// A command has the time of its turn, Server::now(), and must not block, because all clients would
// wait. While kCommandsMax commands are queued, post() fails with EAGAIN; order() and ask() never
// do, so that a flood of messages cannot lock out an administrator. Their senders bound themselves:
// a thread that waits, one command for each connection of the HTTP server. After SIGTERM, commands
// fail with ECANCELED, including queued ones.
#pragma once

#include <cstddef>
#include <functional>

#include "weir/base/result.h"

namespace weir::serve {

class Server;

// The pointer is never null.
using Command = std::function<void(const Result<Server*>& server)>;

inline constexpr std::size_t kCommandsMax = 1024;

}  // namespace weir::serve
