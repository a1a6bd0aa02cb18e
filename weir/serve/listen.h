// SPDX-License-Identifier: Apache-2.0
//
// What a server needs from the system at its start: listening sockets, limits for descriptors and
// memory, and a change to an unprivileged user. Each error states the remedy.
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

// Non-blocking, close-on-exec. Sets the port in `address` that the kernel chose. If the address is
// in use, tries again for a second: the server that has it may just have been killed.
Result<host::Fd> listen_on(ListenAddress& address);

// Lets a socket of this family use addresses of other machines. False, and errno is set: it needs
// CAP_NET_ADMIN.
bool set_transparent(int socket, int family);
// EACCES or EPERM if this process may not use such sources.
Result<void> check_source(SourceMode mode);

// The number of connections that the limit of open files allows beside `others`, up to `wanted`;
// raises the soft limit as far as possible. EMFILE if it allows none.
Result<std::uint32_t> room_for_connections(std::uint32_t wanted, std::uint32_t others);
// ENOMEM if payload could take more than half of the machine's memory.
Result<void> check_memory(Bytes payload);

// Gives up root permanently. EPERM if not started as root.
Result<void> become_user(const std::string& user);

}  // namespace weir::serve
