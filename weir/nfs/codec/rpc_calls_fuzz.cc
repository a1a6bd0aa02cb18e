// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a client may crash the readers; any split of them gives the same calls; the cost and
// contents of a call stay within what its message can contain; and the codec can parse any answer
// created for it. The first byte selects the size of the pieces, the rest is the stream. A stream
// of messages without marks (the second byte is even) is also read, as one message.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/assert.h"
#include "weir/nfs/codec/answers.h"
#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/callback.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/codec/record.h"

namespace {

using namespace weir;
using namespace weir::nfs;

bool lies_within(Bytes part, Bytes message) {
  return part.empty() || (part.data() >= message.data() &&
                          part.data() + part.size() <= message.data() + message.size());
}

void check_answers(const MessageView& message, const Call& call) {
  std::array<std::byte, kAnswerMax> buffer;
  if (can_cut(call)) {
    const Bytes record = cut_call(buffer, message, call);
    const Call cut = read_call(whole(record.subspan(kRecordMarkBytes)));
    WEIR_ASSERT(cut.compound->end == WalkEnd::kEnd && cut.compound->operation_count == 1);
    WEIR_ASSERT(cut.header.xid == call.header.xid);
    WEIR_ASSERT(cut.compound->slot->sequence == call.compound->slot->sequence);
    WEIR_ASSERT(std::ranges::equal(cut.compound->tag, call.compound->tag));
  }
  if (can_delay(call)) {
    const Bytes record = delay_reply(buffer, call);
    const Reply reply = read_reply(whole(record.subspan(kRecordMarkBytes)), pending_of(call));
    WEIR_ASSERT(reply.compound->status == kDelay && reply.compound->end == WalkEnd::kEnd);
  }
  if (can_jukebox(call)) {
    const Bytes record = jukebox_reply(buffer, call);
    const Reply reply = read_reply(whole(record.subspan(kRecordMarkBytes)), pending_of(call));
    WEIR_ASSERT(reply.v3->status == kJukebox && reply.v3->end == XdrState::kGood);
  }
}

void check_compound(const MessageView& message, const CompoundCall& call) {
  WEIR_ASSERT(call.walked <= kOperationsMax && call.walked <= call.operation_count);
  WEIR_ASSERT(call.sent <= message.length);
  WEIR_ASSERT(lies_within(call.tag, message.bytes) && lies_within(call.file_handle, message.bytes));
  WEIR_ASSERT(call.asked <= std::uint64_t{kOperationsMax} * UINT32_MAX);
  if (call.urgency != Urgency::kQueued) {
    WEIR_ASSERT(call.end == WalkEnd::kEnd && call.asked == 0 && call.server_side == 0);
  }
  if (call.end == WalkEnd::kEnd) WEIR_ASSERT(call.walked == call.operation_count);
}

// One word for each decision about the call.
std::string judge(const MessageView& message) {
  const Call call = read_call(message);
  WEIR_ASSERT(call.urgency != Urgency::kFree || call.cost == Cost{});
  WEIR_ASSERT(lies_within(call.file_handle, message.bytes));
  if (call.v3) WEIR_ASSERT(call.v3->sent <= message.length);
  if (call.compound) check_compound(message, *call.compound);
  if (call.header.credential.sys) {
    const SysCredential& sys = *call.header.credential.sys;
    WEIR_ASSERT(sys.group_count() <= kGroupsMax && sys.machine.size() <= kMachineNameMax);
  }
  if (message.is_whole()) check_answers(message, call);
  if (is_callback(call.header)) {
    if (auto arguments = open_arguments(message, call.header)) {
      const CallbackCall callback = read_callback(*arguments);
      WEIR_ASSERT(callback.recalls <= callback.walked);
      for (const Bytes handle : callback.recalled) WEIR_ASSERT(lies_within(handle, message.bytes));
    }
  }
  if (is_mount(call.header)) {
    if (auto arguments = open_arguments(message, call.header)) mount_path(*arguments);
  }
  return std::to_string(call.header.xid) + ":" + std::to_string(call.cost.operations) + ":" +
         std::to_string(call.cost.bytes) + ":" + std::to_string(static_cast<int>(call.kind)) + ":" +
         std::to_string(static_cast<int>(call.urgency)) + " ";
}

// One direction of a connection: joins messages and classifies them.
class Listener {
 public:
  bool feed(Bytes in) {
    for (;;) {
      const RecordEvent event = reader_.next(in);
      if (event.kind == RecordEvent::Kind::kNeedBytes) {
        WEIR_ASSERT(in.empty());
        return true;
      }
      if (event.kind == RecordEvent::Kind::kBreak) {
        calls_ += describe(event.reason);
        return false;
      }
      WEIR_ASSERT(event.is_first == joined_.empty());
      joined_.insert(joined_.end(), event.bytes.begin(), event.bytes.end());
      if (!event.is_last) {
        if (!joined_.empty()) judge({joined_, reader_.message_length_max()});
        continue;
      }
      calls_ += judge(whole(joined_));
      joined_.clear();
    }
  }

  const std::string& calls() const { return calls_; }

 private:
  RecordReader reader_{1U << 20};
  std::vector<std::byte> joined_;
  std::string calls_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size < 2) return 0;
  Bytes stream = std::as_bytes(std::span(bytes + 2, size - 2));
  if (bytes[1] % 2 == 0) judge(whole(stream));

  Listener at_once;
  at_once.feed(stream);
  Listener pieces;
  const std::size_t piece = bytes[0] % 64 + std::size_t{1};
  while (!stream.empty()) {
    const Bytes first = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(first.size());
    if (!pieces.feed(first)) break;
  }
  WEIR_ASSERT(pieces.calls() == at_once.calls());
  return 0;
}
