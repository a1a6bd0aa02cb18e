// SPDX-License-Identifier: Apache-2.0
//
// The identity of the client of a connection, as far as the kernel knows it: the address as a NID,
// and for Unix sockets the user who connected. From this and from the claims of the client
// (claims.h) follow the attributes by which all requests of the connection are classified:
//
//                       nid              uid, gid                  job, unless claimed
//   TCP                 10.1.2.3@tcp     unknown, unless claimed   the NID as text
//   Unix socket         0@lo             SO_PEERCRED               uid.N
//
// Claims are accepted if ClaimsOptions allow them; other claims are rejected, never ignored, so
// that a client does not have to infer from its bandwidth that its job name was not accepted.
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

struct ClientIdentity {
  Nid nid = {};
  bool is_local = false;  // on a Unix socket or from a loopback address
  std::optional<std::uint32_t> uid = std::nullopt;
  std::optional<std::uint32_t> gid = std::nullopt;
};

// The NID of an address; IPv4 in IPv6 (::ffff:10.1.2.3) is IPv4.
Nid nid_of(const sockaddr_storage& address);
Nid unix_nid();
bool is_loopback(const sockaddr_storage& address);

// Of a connected socket; an error if it is already closed.
Result<ClientIdentity> identity_of(int socket);

// Without the opcode. EACCES for claims that are not allowed.
Result<Attributes> attributes_of(const ClientIdentity& identity, const Claims& claims,
                                 const ClaimsOptions& policy,
                                 const std::vector<NodemapOptions>& nodemaps);

}  // namespace weir::serve
