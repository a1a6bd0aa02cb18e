// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a server may crash the readers, and no reply is settled for more than its message can
// contain. The first byte selects the call that is answered, the second how much of the reply has
// arrived; the rest is the reply, or a callback, without its record mark.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"
#include "weir/nfs/codec/answers.h"
#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/callback.h"
#include "weir/nfs/codec/message_writer.h"
#include "weir/nfs/codec/mount.h"

namespace {

using namespace weir;
using namespace weir::nfs;

// A procedure of version 3, of NFSACL, or a compound; signed in one of three ways or not at all.
XdrWriter call_of(std::uint8_t choice, std::uint32_t xid) {
  const std::uint32_t service = choice >> 6;
  const std::uint32_t number = choice & 63U;
  const std::string credential =
      service == 0 ? sys_credential(1000)
                   : XdrWriter().u32(1).u32(0).u32(1).u32(service).opaque("context").text();
  const Flavor flavor = service == 0 ? Flavor::kSys : Flavor::kGss;
  if (number < kProcedures3) {
    return call_header(xid, kNfsProgram, kNfsVersion3, number, flavor, credential);
  }
  if (number < kProcedures3 + kAclProcedures) {
    return call_header(xid, kNfsAclProgram, kNfsVersion3, number - kProcedures3, flavor,
                       credential);
  }
  CompoundWriter compound(number % 3);
  compound.sequence(0, 1).put_handle("handle");
  if (number % 2 == 0) compound.op(Op::kRead).zeros(16).u64(0).u32(4096);
  if (number % 2 == 1) {
    compound.op(Op::kCopy).zeros(32).u64(0).u64(0).u64(1U << 20).u32(1).u32(1).u32(0);
  }
  XdrWriter call =
      call_header(xid, kNfsProgram, kNfsVersion4, kCompoundProcedure, flavor, credential);
  XdrWriter arguments = compound.arguments();
  if (service == 2) {
    call.opaque(XdrWriter().u32(1).raw(arguments.text()).text()).opaque("checksum");
  } else {
    call.raw(arguments.text());
  }
  return call;
}

void check_mended(const MessageView& message, const PendingCall& pending) {
  std::array<std::byte, kAnswerMax> buffer;
  const auto mended = mend_reply(buffer, message, pending);
  if (!mended) return;
  const Reply reply = read_reply(whole(mended->subspan(kRecordMarkBytes)), pending);
  WEIR_ASSERT(reply.compound->end == WalkEnd::kEnd && reply.compound->status == kDelay);
  WEIR_ASSERT(reply.compound->result_count == 2 && reply.compound->last_status == kDelay);
  WEIR_ASSERT(!mend_reply(buffer, whole(mended->subspan(kRecordMarkBytes)), pending));
}

void check_reply(const MessageView& message, const PendingCall& pending) {
  const Reply reply = read_reply(message, pending);
  const std::uint64_t most = saturating_add(pending.cost.bytes, message.length);
  const bool copies = reply.compound && reply.compound->copied;
  WEIR_ASSERT(reply.moved.bytes <= most || copies, reply.moved.bytes, most);
  if (reply.compound) {
    WEIR_ASSERT(reply.compound->walked <= kOperationsMax);
    WEIR_ASSERT(reply.compound->returned <= message.length);
  }
  if (reply.v3) WEIR_ASSERT(reply.v3->returned <= message.length);
  check_mended(message, pending);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 6) return 0;
  const Bytes all = std::as_bytes(std::span(bytes + 2, size - 2));
  const std::size_t arrived = bytes[1] == 255 ? all.size() : all.size() * bytes[1] / 255;
  const MessageView message = {all.first(arrived), all.size()};

  const XdrWriter call = call_of(bytes[0], load_be<std::uint32_t>(all.data()));
  PendingCall pending = pending_of(read_call(whole(call.bytes())));
  if (arrived < 4) pending.xid = 0;
  check_reply(message, pending);

  const ReplyHeader header = read_reply_header(message);
  starts_tls(header);
  if (const auto results = open_results(message, header, GssService::kNone)) {
    read_mount_reply(*results);
    read_callback_reply(*results);
  }
  return 0;
}
