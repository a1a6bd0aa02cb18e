// SPDX-License-Identifier: Apache-2.0
//
// The entry point of the codec: a message from a client becomes a Call, with everything that a
// gateway needs to queue, charge and forward it; the reply from the server becomes a Reply, which
// states how much the call actually moved.
//
//   Call call = read_call(message, model);          on arrival: kind, urgency, cost, credential
//   PendingCall pending = pending_of(call);         kept until the reply: 64 bytes, no spans
//   Reply reply = read_reply(message, pending, model);   reply.moved instead of pending.cost
//
// Every message is forwarded unchanged, whatever it contains. A call that cannot be parsed (an
// unknown program, a broken header, arguments that RPCSEC_GSS encrypts) is charged by the length of
// its records, in both directions, and has the kind kOther unless its procedure determines another.
//
// callback.h parses the messages of the other direction (callbacks and replies to them). Pure;
// spans point into the message; no allocation.
#pragma once

#include <cstdint>
#include <optional>

#include "weir/base/operation_kind.h"
#include "weir/nfs/codec/compound.h"
#include "weir/nfs/codec/cost.h"
#include "weir/nfs/codec/rpc.h"
#include "weir/nfs/codec/v3.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

// Which of the protocols on the NFS port a call belongs to.
enum class Protocol : std::uint8_t {
  kNfs3,   // NFS or NFSACL, version 3
  kNfs4,   // a COMPOUND
  kNull,   // procedure 0 of anything: a ping, the probe for TLS, the set-up of a GSS context
  kOther,  // any other program, version or procedure
};

struct Call {
  CallHeader header;
  Protocol protocol = Protocol::kOther;
  OperationKind kind = OperationKind::kOther;
  Urgency urgency = Urgency::kQueued;
  Cost cost;
  bool is_hidden = false;  // its arguments cannot be read: bytes are those of the record
  Bytes file_handle;       // the first one
  const Procedure3* procedure = nullptr;  // of kNfs3
  std::optional<Call3> v3;                // of kNfs3, unless hidden
  std::optional<CompoundCall> compound;   // of kNfs4, unless hidden

  bool is_tls_probe() const {
    return protocol == Protocol::kNull && header.credential.is(Flavor::kTls);
  }
};

Call read_call(const MessageView& message, const CostModel& model = {});

// What is needed to read the reply.
struct PendingCall {
  Cost cost;                      // as charged
  std::uint64_t sent = 0;         // of cost.bytes: moved whatever the reply says
  std::uint64_t server_side = 0;  // of cost.bytes: for data that only the server moves
  std::uint32_t xid = 0;
  std::uint32_t procedure = 0;
  std::uint32_t program = 0;
  std::uint32_t operation_count = 0;  // of a compound
  std::uint32_t second_operation = 0;
  Protocol protocol = Protocol::kOther;
  GssService service = GssService::kNone;
  bool is_hidden = false;
  bool has_slot = false;       // SEQUENCE is its first operation
  bool is_answerable = false;  // replies need no key to sign them: see answers.h
};
static_assert(sizeof(PendingCall) <= 64);

PendingCall pending_of(const Call& call);

struct Reply {
  ReplyHeader header;
  Cost moved;  // what the call should have been charged for
  std::optional<Reply3> v3;
  std::optional<CompoundReply> compound;
};

// REQUIRES: `message` is the reply to the call: its xid is pending.xid.
Reply read_reply(const MessageView& message, const PendingCall& pending,
                 const CostModel& model = {});

}  // namespace weir::nfs
