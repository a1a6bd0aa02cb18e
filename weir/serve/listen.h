// SPDX-License-Identifier: Apache-2.0
//
// What a server needs from the system once, at its start: listening sockets, limits for its
// descriptors and memory, and a change to an unprivileged user. Each error says what to do.
//
// A socket file on which no process listens, left by a killed server, is replaced; an active one is
// not.
#pragma once

#include <cstdint>
#include <string>

#include "weir/base/result.h"
#include "weir/host/fd.h"
#include "weir/serve/options.h"

namespace weir::serve {

// Non-blocking, close-on-exec. `address` gets the port the kernel chose. An address in use is tried
// for a second: the server that has it may just have been killed.
Result<host::Fd> listen_on(ListenAddress& address);

// How many connections the limit of open files leaves room for, up to `wanted`; raises the soft
// limit for it. EMFILE when there is room for none.
Result<std::uint32_t> room_for_connections(std::uint32_t wanted, std::uint32_t others);
// ENOMEM when payload could take more than half of the machine's memory.
Result<void> check_memory(Bytes payload);

// Gives root up for good. EPERM when not started as root.
Result<void> become_user(const std::string& user);

}  // namespace weir::serve
