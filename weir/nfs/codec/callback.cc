// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/callback.h"

#include "weir/nfs/codec/form.h"
#include "weir/nfs/codec/operations.h"

namespace weir::nfs {
namespace {

SlotUse read_slot(XdrReader& reader) {
  return {.session_id = reader.fixed(kSessionIdBytes),
          .sequence = reader.u32(),
          .slot = reader.u32(),
          .highest_slot = reader.u32(),
          .is_cached = reader.u32() != 0};
}

void note_recall(XdrReader arguments, CallbackCall& call) {
  arguments.skip(16 + 4);
  const Bytes handle = arguments.opaque(kFileHandle4Max);
  if (!arguments.good()) return;
  if (call.recalls < kRecallsMax) call.recalled[call.recalls] = handle;
  ++call.recalls;
}

// Returns false if the walk stops here.
bool step(XdrReader& reader, CallbackCall& call) {
  if (call.walked == kOperationsMax) {
    call.end = WalkEnd::kTooManyOperations;
    return false;
  }
  const std::uint32_t number = reader.u32();
  if (!reader.good()) return false;
  const Operation* operation = find_callback_operation(number);
  if (operation == nullptr || number == kIllegalOperation) {
    call.end = WalkEnd::kUnknownOperation;
    return false;
  }
  XdrReader fields = reader;
  walk(reader, operation->arguments);
  if (!reader.good()) return false;
  if (is(number, CallbackOp::kSequence) && call.walked == 0) call.slot = read_slot(fields);
  if (is(number, CallbackOp::kRecall)) note_recall(fields, call);
  if (is(number, CallbackOp::kLayoutRecall)) call.recalls_layouts = true;
  ++call.walked;
  return true;
}

bool step(XdrReader& reader, CallbackReply& reply) {
  if (reply.walked == kOperationsMax) {
    reply.end = WalkEnd::kTooManyOperations;
    return false;
  }
  const std::uint32_t number = reader.u32();
  const std::uint32_t status = reader.u32();
  if (!reader.good()) return false;
  const Operation* operation = find_callback_operation(number);
  if (operation == nullptr) {
    reply.end = WalkEnd::kUnknownOperation;
    return false;
  }
  if (status == 0) walk(reader, operation->results);
  ++reply.walked;
  return reader.good();
}

}  // namespace

bool is_callback(const CallHeader& header) {
  return header.program >= kTransientProgram && header.program < kTransientProgramEnd &&
         header.version == kCallbackVersion && header.procedure == kCallbackCompound;
}

CallbackCall read_callback(XdrReader arguments) {
  CallbackCall call;
  arguments.set_bound(kWalkBytesMax);
  arguments.opaque();  // the tag
  call.minor_version = arguments.u32();
  arguments.u32();  // the identifier of SETCLIENTID, unused since minor version 1
  call.operation_count = arguments.u32();
  bool goes_on = arguments.good();
  while (goes_on && call.walked < call.operation_count) goes_on = step(arguments, call);
  if (goes_on || !arguments.good()) call.end = walk_end(arguments);
  return call;
}

CallbackReply read_callback_reply(XdrReader results) {
  CallbackReply reply;
  results.set_bound(kWalkBytesMax);
  reply.status = results.u32();
  results.opaque();  // the tag
  reply.result_count = results.u32();
  bool goes_on = results.good();
  while (goes_on && reply.walked < reply.result_count) goes_on = step(results, reply);
  if (goes_on || !results.good()) reply.end = walk_end(results);
  return reply;
}

}  // namespace weir::nfs
