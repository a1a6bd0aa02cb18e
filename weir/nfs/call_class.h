// SPDX-License-Identifier: Apache-2.0
//
// The attributes by which a call is classified. Rules see the client's address, the user and group
// of the credential, the export of the first file handle (exports.h; the name of the gateway if it
// is not known), the job, and an operation by the name of the closest Lustre RPC:
//
//   calls                                          opcode        kind
//   READ, READ_PLUS                                ost_read      read
//   WRITE                                          ost_write     write
//   COMMIT                                         ost_sync      flush
//   READDIR, READDIRPLUS                           mds_readpage  metadata read
//   FSSTAT, FSINFO, PATHCONF                       mds_statfs    metadata read
//   GETATTR, LOOKUP, ACCESS, READLINK, ...         mds_getattr   metadata read
//   OPEN, CREATE, REMOVE, RENAME, SETATTR, ...     mds_reint     metadata change
//   ALLOCATE, COPY, CLONE, WRITE_SAME              ost_fallocate zero
//   DEALLOCATE                                     ost_punch     discard
//   LOCK, LOCKT                                    ldlm_enqueue  lock
//   calls that cannot be parsed                    none          other
//
// AUTH_SYS: uid and gid are those of the credential, the job is uid.N. RPCSEC_GSS: the user is not
// visible; the context is one user on one client, so the job is gss.X with a hash of both, and
// there is no opcode: all calls of a context are in one queue, because a server drops calls that
// leave out of order by more than its window. Without a credential, or with one that breaks the
// protocol: the identity of the client alone. Pure.
#pragma once

#include <cstdint>

#include "weir/classify/attributes.h"
#include "weir/nfs/codec/call.h"

namespace weir::nfs {

// `client` is the identity of the connection.
Attributes attributes_of(const Attributes& client, const Call& call);

// The same in every run.
std::uint64_t hash_of(Bytes bytes);

// kUnknownId: none.
std::uint32_t opcode_of(const Call& call);

}  // namespace weir::nfs
