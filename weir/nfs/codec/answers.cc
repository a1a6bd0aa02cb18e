// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/answers.h"

#include <algorithm>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"

namespace weir::nfs {
namespace {

// Whether the contents of the call allow an answer that tells the client to try again.
bool may_come_again(const Call& call) {
  const PendingCall pending = pending_of(call);
  return pending.is_answerable && call.urgency == Urgency::kQueued;
}

bool may_come_again(const Call& call, const CompoundCall& compound) {
  // Only the start of a large write is available.
  const bool is_walked = compound.end == WalkEnd::kEnd ||
                         (compound.end == WalkEnd::kMissing && compound.has(Op::kWrite));
  if (!may_come_again(call) || !is_walked || compound.releases) return false;
  if (compound.tag.size() > kTagMax) return false;
  for (std::uint32_t number = 0; number < kOperationsEnd; ++number) {
    if (!compound.holds.test(number) || is(number, Op::kSequence)) continue;
    if (find_operation(number)->turn == Turn::kState) return false;
  }
  return true;
}

// The buffer up to `end` as a record.
Bytes finish(AnswerBuffer to, const std::byte* end) {
  const auto size = static_cast<std::size_t>(end - to.data());
  WEIR_ASSERT(size >= kRecordMarkBytes && size <= to.size(), size);
  std::ranges::copy(record_mark(static_cast<std::uint32_t>(size - kRecordMarkBytes)), to.begin());
  return to.first(size);
}

std::byte* message_of(AnswerBuffer to) { return to.data() + kRecordMarkBytes; }

}  // namespace

bool can_cut(const Call& call) {
  return call.compound && call.compound->minor_version > 0 && call.compound->slot &&
         call.compound->operation_count > 1 && may_come_again(call, *call.compound);
}

Bytes cut_call(AnswerBuffer to, const MessageView& message, const Call& call) {
  WEIR_ASSERT(can_cut(call));
  const std::size_t arguments = *call.header.arguments_at;
  const Bytes kept = message.bytes.first(arguments + call.compound->sequence_end);
  std::byte* end = std::ranges::copy(kept, message_of(to)).out;
  store_be(message_of(to) + arguments + call.compound->count_at, std::uint32_t{1});
  return finish(to, end);
}

std::optional<Bytes> mend_reply(AnswerBuffer to, const MessageView& message,
                                const PendingCall& pending) {
  if (!pending.has_slot || !pending.is_answerable || pending.operation_count < 2) {
    return std::nullopt;
  }
  constexpr std::size_t kAdded = kRecordMarkBytes + 8;
  if (!message.is_whole() || message.length > kAnswerMax - kAdded) return std::nullopt;
  const Reply reply = read_reply(message, pending);
  if (!reply.compound || reply.compound->end != WalkEnd::kEnd) return std::nullopt;
  const CompoundReply& compound = *reply.compound;
  if (compound.status != 0 || compound.result_count != 1 || !compound.slot) return std::nullopt;

  std::byte* end = std::ranges::copy(message.bytes, message_of(to)).out;
  std::byte* results = message_of(to) + reply.header.results_at;
  store_be(results, kDelay);
  store_be(results + compound.count_at, std::uint32_t{2});
  end = store_be(end, pending.second_operation);
  return finish(to, store_be(end, kDelay));
}

bool can_delay(const Call& call) {
  if (!call.compound || call.compound->minor_version != 0) return false;
  const std::uint32_t first = call.compound->first_operation;
  const bool takes_handle =
      is(first, Op::kPutFh) || is(first, Op::kPutRootFh) || is(first, Op::kPutPubFh);
  return takes_handle && may_come_again(call, *call.compound);
}

Bytes delay_reply(AnswerBuffer to, const Call& call) {
  WEIR_ASSERT(can_delay(call));
  const Bytes tag = call.compound->tag;
  std::byte* end = store_reply_header(message_of(to), call.header.xid);
  end = store_be(end, kDelay);
  end = store_be(end, static_cast<std::uint32_t>(tag.size()));
  end = std::ranges::copy(tag, end).out;
  end = std::fill_n(end, (4 - tag.size() % 4) % 4, std::byte{0});
  end = store_be(end, std::uint32_t{1});
  end = store_be(end, call.compound->first_operation);
  return finish(to, store_be(end, kDelay));
}

bool can_jukebox(const Call& call) {
  return call.protocol == Protocol::kNfs3 && may_come_again(call);
}

Bytes jukebox_reply(AnswerBuffer to, const Call& call) {
  WEIR_ASSERT(can_jukebox(call));
  std::byte* end = store_reply_header(message_of(to), call.header.xid);
  end = store_be(end, kJukebox);
  return finish(to, std::fill_n(end, std::size_t{4} * call.procedure->failure_words, std::byte{0}));
}

}  // namespace weir::nfs
