// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/call.h"

#include "weir/base/assert.h"

namespace weir::nfs {
namespace {

constexpr std::uint32_t kNullProcedure = 0;

Protocol protocol_of(const CallHeader& header, const Procedure3* procedure) {
  if (header.procedure == kNullProcedure) return Protocol::kNull;
  if (procedure != nullptr) return Protocol::kNfs3;
  const bool is_compound = header.program == kNfsProgram && header.version == kNfsVersion4 &&
                           header.procedure == kCompoundProcedure;
  return is_compound ? Protocol::kNfs4 : Protocol::kOther;
}

bool is_nfs(const CallHeader& header) {
  return header.program == kNfsProgram || header.program == kNfsAclProgram;
}

// Whether the header was parsed up to the procedure.
bool has_procedure(const CallHeader& header) {
  return header.defect != Defect::kShortHeader && header.defect != Defect::kMissingHeader &&
         header.defect != Defect::kMessageType && header.defect != Defect::kRpcVersion;
}

void read_body(XdrReader arguments, const CostModel& model, Call& call) {
  if (call.protocol == Protocol::kNfs3) {
    call.v3 = read_call3(*call.procedure, arguments);
    call.cost = call.v3->cost;
    call.file_handle = call.v3->file_handle;
    return;
  }
  call.compound = read_compound(arguments, model);
  call.cost = call.compound->cost;
  call.kind = call.compound->kind;
  call.urgency = call.compound->urgency;
  call.file_handle = call.compound->file_handle;
}

// Whether a reply to the call can be created without the key of a GSS context.
bool is_answerable(const CallHeader& header) {
  const Credential& credential = header.credential;
  return header.defect == Defect::kNone &&
         (credential.is(Flavor::kNone) || credential.is(Flavor::kSys));
}

// The part of the server-side bytes that the server has actually moved.
std::uint64_t server_side_moved(const PendingCall& pending, const CompoundReply& reply,
                                const CostModel& model) {
  if (reply.copied) return *reply.copied == 0 ? 0 : model.server_side(*reply.copied);
  const bool has_moved = reply.has(Op::kCopy) || reply.has(Op::kClone) ||
                         reply.has(Op::kAllocate) || reply.has(Op::kDeallocate) ||
                         reply.has(Op::kWriteSame);
  return has_moved ? pending.server_side : 0;
}

void settle3(const PendingCall& pending, Reply& reply) {
  reply.moved.bytes = saturating_add(pending.sent, reply.v3->returned);
  const bool lists = pending.program == kNfsProgram &&
                     pending.procedure == static_cast<std::uint32_t>(Proc3::kReadDirPlus);
  if (lists) reply.moved.operations = 1 + reply.v3->returned / kDirectoryBytesPerOperation;
}

}  // namespace

Call read_call(const MessageView& message, const CostModel& model) {
  Call call;
  call.header = read_call_header(message);
  call.cost = {1, message.length};
  if (!has_procedure(call.header)) return call;
  const bool is_version3 = is_nfs(call.header) && call.header.version == kNfsVersion3;
  if (is_version3) {
    call.procedure = find_procedure3(call.header.program, call.header.procedure);
  }
  call.protocol = protocol_of(call.header, call.procedure);
  if (call.protocol == Protocol::kNull || !is_nfs(call.header)) {
    call.urgency = Urgency::kFree;
    call.cost = {};
    return call;
  }
  if (call.protocol == Protocol::kOther) return call;
  if (call.procedure != nullptr) call.kind = call.procedure->kind;
  const auto arguments = open_arguments(message, call.header);
  call.is_hidden = !arguments;
  if (arguments) read_body(*arguments, model, call);
  return call;
}

PendingCall pending_of(const Call& call) {
  PendingCall pending;
  pending.cost = call.cost;
  pending.xid = call.header.xid;
  pending.procedure = call.header.procedure;
  pending.program = call.header.program;
  pending.protocol = call.protocol;
  pending.is_hidden = call.is_hidden;
  pending.sent = call.cost.bytes;
  pending.is_answerable = is_answerable(call.header);
  if (call.header.credential.gss) pending.service = call.header.credential.gss->service;
  if (call.v3) pending.sent = call.v3->sent;
  if (call.compound) {
    pending.sent = call.compound->sent;
    pending.server_side = call.compound->server_side;
    pending.operation_count = call.compound->operation_count;
    pending.second_operation = call.compound->second_operation;
    pending.has_slot = call.compound->slot.has_value();
  }
  return pending;
}

Reply read_reply(const MessageView& message, const PendingCall& pending, const CostModel& model) {
  Reply reply;
  reply.header = read_reply_header(message);
  WEIR_ASSERT(reply.header.xid == pending.xid, reply.header.xid, pending.xid);
  reply.moved = {pending.cost.operations, pending.sent};
  const auto results = open_results(message, reply.header, pending.service);
  if (!reply.header.succeeded()) {
    if (reply.header.defect != Defect::kNone) reply.moved = pending.cost;
  } else if (!results || pending.is_hidden || pending.protocol == Protocol::kOther) {
    reply.moved.bytes += message.length - reply.header.results_at;
  } else if (pending.protocol == Protocol::kNfs3) {
    reply.v3 = read_reply3(*find_procedure3(pending.program, pending.procedure), *results);
    settle3(pending, reply);
  } else if (pending.protocol == Protocol::kNfs4) {
    reply.compound = read_compound_reply(*results);
    const std::uint64_t there = server_side_moved(pending, *reply.compound, model);
    reply.moved.bytes =
        saturating_add(pending.sent, saturating_add(there, reply.compound->returned));
  }
  if (pending.cost.operations == 0) reply.moved = {};  // it was free, and stays so
  return reply;
}

}  // namespace weir::nfs
