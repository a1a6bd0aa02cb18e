// SPDX-License-Identifier: Apache-2.0
//
// What other threads ask of a running server: to read a counter, to start a rule, to change a
// capacity. Nothing of a server may be touched from outside its loop, so the asker sends a function
// that the loop runs between two turns:
//
//   order(command)   returns at once; the command is called on the loop, exactly once: with the
//                    server, or with the reason why it cannot be had
//   ask(function)    the same, and waits for what the function returns; never call it on the loop
//   post(command)    as order(), for messages that may be lost: refused while many commands wait
//
//   Result<std::string> rules = server.ask([](Server& it) -> Result<std::string> {
//     Service* service = it.find_service("ost_io");
//     if (service == nullptr) return fail(...);
//     return read_nrs_tbf_rule(service->target);
//   });
//
// A command has the time of its turn, Server::now(), and must not wait for anything: all clients
// would wait with it. While kCommandsMax commands wait, post() is refused with EAGAIN; order() and
// ask() never are, so that no flood of messages keeps an administrator from the server. Their
// senders bound themselves: a thread that waits, one command for each connection of the HTTP
// server. From SIGTERM on commands are refused with ECANCELED, and those that had not yet run are
// told the same.
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
