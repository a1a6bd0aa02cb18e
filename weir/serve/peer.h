// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a connection, as far as the kernel knows: the address as a NID, and
// for Unix sockets the user who connected. From this and from what the client claims (claims.h)
// come the attributes that all requests of the connection are classified by:
//
//                       nid              uid, gid                  job, unless claimed
//   TCP                 10.1.2.3@tcp     unknown, unless claimed   the NID as text
//   Unix socket         0@lo             SO_PEERCRED               uid.N
//
// Claims count where ClaimsOptions say so; a claim that does not is refused, never ignored: a
// client that believes to run as a job must not find out from its bandwidth that it does not.
#pragma once

#include <cstdint>
#include <optional>

#include <sys/socket.h>

#include "weir/base/result.h"
#include "weir/classify/attributes.h"
#include "weir/classify/nid.h"
#include "weir/serve/claims.h"
#include "weir/serve/options.h"

namespace weir::serve {

struct Peer {
  Nid nid;
  bool is_local = false;  // on a Unix socket or from a loopback address
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
};

// The NID of an address; IPv4 in IPv6 (::ffff:10.1.2.3) is IPv4.
Nid nid_of(const sockaddr_storage& address);
Nid unix_nid();
bool is_loopback(const sockaddr_storage& address);

// Of a connected socket; an error when it is gone already.
Result<Peer> peer_of(int socket);

// Without the opcode. EACCES for claims that do not count.
Result<Attributes> attributes_of(const Peer& peer, const Claims& claims,
                                 const ClaimsOptions& policy,
                                 const std::vector<NodemapOptions>& nodemaps);

}  // namespace weir::serve
