// SPDX-License-Identifier: Apache-2.0
//
// NBD as a protocol of the server (weir/serve/session.h): negotiation and transmission of one
// client over the codec. No socket: bytes in, requests out, replies back.
//
//   serve::add_protocol(nbd::protocol(), serve::Standard::kYes);
//
// A client opens one export, whose name may contain claims (weir/serve/claims.h), and all of its
// requests have the resulting identity. They are classified by the opcode of the closest Lustre
// RPC:
//
//   command         kind             opcode          bytes charged
//   read            read             ost_read        its length
//   write           write            ost_write       its length
//   flush           flush            ost_sync        kOperationBytes
//   trim            discard          ost_punch       kOperationBytes: a trim of 4 GiB is one
//                                                    operation, not 4 GiB of a bandwidth
//   cache           read             ost_ladvise     its length
//   write zeroes    zero             ost_fallocate   its length, unless it only punches
//   block status    metadata read    ost_seek        kOperationBytes
//
// The session itself answers block status, on the loop. With structured replies, a read of zeroes
// is answered with a hole chunk.
#pragma once

#include <cstdint>
#include <memory>

#include "weir/base/quantity.h"
#include "weir/classify/opcode.h"
#include "weir/nbd/codec/requests.h"
#include "weir/serve/protocol.h"
#include "weir/serve/session.h"

namespace weir::nbd {

serve::ProtocolKind protocol();
std::unique_ptr<serve::Session> begin_session(serve::SessionPort& port);
// The same with extended headers, which have 64-bit lengths and which clients may negotiate. A
// separate protocol, because few clients use them, and a server that does not offer them is better
// tested.
serve::ProtocolKind extended_protocol();
std::unique_ptr<serve::Session> begin_extended_session(serve::SessionPort& port);

// REQUIRES: not kDisc.
std::uint32_t opcode_of(Command command);
OperationKind kind_of(Command command);
// The bytes charged against limits and capacities in bytes: the length if the device may have to
// read or write it, otherwise kOperationBytes.
Bytes bytes_of(const Request& request);

}  // namespace weir::nbd
