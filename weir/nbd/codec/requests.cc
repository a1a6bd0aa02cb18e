// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/requests.h"

#include <algorithm>
#include <cstring>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"

namespace weir::nbd {
namespace {

// The cookie is opaque: it is kept as received.
std::uint64_t load_cookie(const std::byte* from) {
  std::uint64_t cookie;
  std::memcpy(&cookie, from, sizeof cookie);
  return cookie;
}

std::byte* store_cookie(std::byte* to, std::uint64_t cookie) {
  std::memcpy(to, &cookie, sizeof cookie);
  return to + sizeof cookie;
}

// Properties of each command in the protocol.
struct CommandTraits {
  bool is_known = false;
  bool writes = false;
  bool has_range = true;     // otherwise offset and length must be zero
  bool has_payload = false;  // in the request or the reply: held to the maximum
  std::uint16_t needs = 0;   // the transmission flag that offers it; 0: always available
  std::uint16_t flags = 0;   // valid for the command; kFua may be set on all
  ErrorCode past_end = ErrorCode::kInval;
};

constexpr CommandTraits traits_of(Command command) {
  constexpr ErrorCode kNoSpc = ErrorCode::kNoSpc;
  switch (command) {
    case Command::kRead:
      return {.is_known = true, .has_payload = true, .flags = kDf};
    case Command::kWrite:
      return {
          .is_known = true, .writes = true, .has_payload = true, .flags = kFua, .past_end = kNoSpc};
    case Command::kFlush:
      return {.is_known = true, .has_range = false, .needs = kSendFlush};
    case Command::kTrim:
      return {.is_known = true, .writes = true, .needs = kSendTrim, .flags = kFua};
    case Command::kCache:
      return {.is_known = true, .needs = kSendCache};
    case Command::kWriteZeroes:
      return {.is_known = true,
              .writes = true,
              .needs = kSendWriteZeroes,
              .flags = kFua | kNoHole | kFastZero,
              .past_end = kNoSpc};
    case Command::kBlockStatus:
      return {.is_known = true, .flags = kReqOne};
    case Command::kDisc:
      break;
  }
  return {};
}

constexpr auto kCommands = [] {
  std::array<CommandTraits, 8> traits{};
  for (std::size_t i = 0; i < traits.size(); ++i) traits[i] = traits_of(static_cast<Command>(i));
  return traits;
}();

// The command flags of a session.
std::uint16_t usable_flags(const Session& session) {
  unsigned flags = kNoHole | kReqOne;
  if ((session.flags & kSendFua) != 0) flags |= kFua;
  if ((session.flags & kSendDf) != 0) flags |= kDf;
  if ((session.flags & kSendFastZero) != 0) flags |= kFastZero;
  return static_cast<std::uint16_t>(flags);
}

constexpr Refusal kUnknown = {ErrorCode::kInval, "unknown command"};
constexpr Refusal kIsReadOnly = {ErrorCode::kPerm, "the export is read-only"};
constexpr Refusal kWrongFlag = {ErrorCode::kInval, "a flag that is not valid for this command"};
constexpr Refusal kNotOffered = {ErrorCode::kInval, "the export does not offer this command"};
constexpr Refusal kNoPayloadFlag = {ErrorCode::kInval, "a write without the flag for its payload"};
constexpr Refusal kNoContext = {ErrorCode::kInval, "no metadata context was negotiated"};
constexpr Refusal kTakesNoRange = {ErrorCode::kInval, "this command takes no range"};
constexpr Refusal kEmptyRange = {ErrorCode::kInval, "an empty range"};
constexpr Refusal kUnaligned = {ErrorCode::kInval, "not aligned to the minimum block size"};
constexpr Refusal kPastEnd = {ErrorCode::kInval, "past the end of the export"};
constexpr Refusal kNoSpace = {ErrorCode::kNoSpc, "past the end of the export"};
constexpr Refusal kTooLong = {ErrorCode::kInval, "more than the maximum block size"};

const Refusal* find_range_refusal(const RawRequest& raw, const Session& session,
                                  const CommandTraits& traits) {
  if (!traits.has_range) return (raw.offset | raw.length) != 0 ? &kTakesNoRange : nullptr;
  if (raw.length == 0) [[unlikely]]
    return &kEmptyRange;
  // A trim is advice: the store rounds it inwards, as QEMU expects of its edges.
  if (((raw.offset | raw.length) & (session.blocks.minimum - 1)) != 0 &&
      static_cast<Command>(raw.command) != Command::kTrim) [[unlikely]] {
    return &kUnaligned;
  }
  if (raw.offset > session.size || raw.length > session.size - raw.offset) [[unlikely]]
    return traits.past_end == ErrorCode::kNoSpc ? &kNoSpace : &kPastEnd;
  if (traits.has_payload && raw.length > session.blocks.maximum) [[unlikely]]
    return &kTooLong;
  return nullptr;
}

// nullptr: it is valid. `usable` are the flags of the session.
inline const Refusal* find_refusal(const RawRequest& raw, const Session& session,
                                   std::uint16_t usable) {
  if (raw.command >= kCommands.size() || !kCommands[raw.command].is_known) [[unlikely]]
    return &kUnknown;
  const auto command = static_cast<Command>(raw.command);
  const CommandTraits& traits = kCommands[raw.command];
  if (traits.writes && (session.flags & kReadOnly) != 0) [[unlikely]]
    return &kIsReadOnly;
  const bool is_write = command == Command::kWrite;
  const unsigned payload = session.extended && is_write ? kPayloadLen : 0U;
  const unsigned allowed = ((traits.flags | unsigned{kFua}) & usable) | payload;
  if ((raw.flags & ~allowed) != 0) [[unlikely]]
    return &kWrongFlag;
  if ((traits.needs & ~unsigned{session.flags}) != 0) [[unlikely]]
    return &kNotOffered;
  if ((payload & ~unsigned{raw.flags}) != 0) [[unlikely]]
    return &kNoPayloadFlag;
  if (command == Command::kBlockStatus && !session.allocation) [[unlikely]]
    return &kNoContext;
  return find_range_refusal(raw, session, traits);
}

// REQUIRES: it is valid.
inline Request accepted(const RawRequest& raw) {
  return {.cookie = raw.cookie,
          .offset = raw.offset,
          .length = raw.length,
          .command = static_cast<Command>(raw.command),
          .flags = static_cast<std::uint16_t>(raw.flags & kCommands[raw.command].flags)};
}

}  // namespace

tl::expected<Request, Refusal> check(const RawRequest& raw, const Session& session) {
  if (const Refusal* const refusal = find_refusal(raw, session, usable_flags(session))) {
    return tl::unexpected(*refusal);
  }
  return accepted(raw);
}

// ---- reading ----

RequestReader::RequestReader(const Session& session)
    : session_(session), usable_flags_(usable_flags(session)) {}

RequestEvent RequestReader::next(Input& in) {
  if (state_ != State::kHead || head_size_ != 0 || in.size() < head_bytes()) [[unlikely]]
    return next_part(in);
  const std::byte* const head = in.data();
  in = in.subspan(head_bytes());
  return judge(head, in);
}

RequestEvent RequestReader::next_part(Input& in) {
  WEIR_ASSERT(state_ != State::kEnd);
  if (state_ == State::kPayload && !in.empty()) {
    RequestEvent event;
    event.kind = RequestEvent::Kind::kPayload;
    event.payload = in.first(std::min<std::size_t>(left_, in.size()));
    in = in.subspan(event.payload.size());
    pass(event.payload.size());
    return event;
  }
  if (state_ == State::kSkip) {
    const std::size_t skipped = std::min<std::size_t>(left_, in.size());
    in = in.subspan(skipped);
    pass(skipped);
    if (state_ == State::kHead) return refused(skipped_cookie_, skipped_offset_, refusal_);
  }
  if (state_ != State::kHead) return {};

  if (!gather(in)) return {};
  head_size_ = 0;
  return judge(head_.data(), in);
}

bool RequestReader::gather(Input& in) {
  const std::size_t taken = std::min(head_bytes() - head_size_, in.size());
  std::copy_n(in.begin(), taken, head_.begin() + head_size_);
  head_size_ = static_cast<std::uint8_t>(head_size_ + taken);
  in = in.subspan(taken);
  return head_size_ == head_bytes();
}

// This many bytes of a payload have been received.
void RequestReader::pass(std::size_t bytes) {
  left_ -= static_cast<std::uint32_t>(bytes);
  if (left_ == 0) state_ = State::kHead;
}

void RequestReader::payload_received(std::uint32_t bytes) {
  WEIR_ASSERT(bytes <= payload_left(), bytes, payload_left());
  if (bytes > 0) pass(bytes);
}

RequestEvent RequestReader::judge(const std::byte* head, Input& in) {
  const bool is_extended = session_.extended;
  if (load_be<std::uint32_t>(head) != (is_extended ? kExtendedRequestMagic : kRequestMagic))
      [[unlikely]] {
    return end(RequestEvent::Kind::kBreak, BreakReason::kNotARequest);
  }
  const RawRequest raw = {.flags = load_be<std::uint16_t>(head + 4),
                          .command = load_be<std::uint16_t>(head + 6),
                          .cookie = load_cookie(head + 8),
                          .offset = load_be<std::uint64_t>(head + 16),
                          .length = is_extended ? load_be<std::uint64_t>(head + 24)
                                                : load_be<std::uint32_t>(head + 24)};
  if (raw.command == static_cast<std::uint16_t>(Command::kDisc)) [[unlikely]] {
    return end(RequestEvent::Kind::kDisconnect, {});
  }
  const bool has_payload = is_extended ? (raw.flags & kPayloadLen) != 0
                                       : raw.command == static_cast<std::uint16_t>(Command::kWrite);
  if (has_payload && raw.length > kPayloadMax) [[unlikely]] {
    return end(RequestEvent::Kind::kBreak, BreakReason::kPayload);
  }
  const std::uint32_t payload = has_payload ? static_cast<std::uint32_t>(raw.length) : 0;
  if (const Refusal* const refusal = find_refusal(raw, session_, usable_flags_)) [[unlikely]] {
    if (payload == 0) return refused(raw.cookie, raw.offset, *refusal);
    state_ = State::kSkip;
    left_ = payload;
    skipped_cookie_ = raw.cookie;
    skipped_offset_ = raw.offset;
    refusal_ = *refusal;
    return next_part(in);
  }
  if (payload > 0) {
    state_ = State::kPayload;
    left_ = payload;
  }
  RequestEvent event;
  event.kind = RequestEvent::Kind::kRequest;
  event.request = accepted(raw);
  return event;
}

RequestEvent RequestReader::refused(std::uint64_t cookie, std::uint64_t offset,
                                    const Refusal& refusal) {
  RequestEvent event;
  event.kind = RequestEvent::Kind::kRefused;
  event.refusal = refusal;
  event.request.cookie = cookie;
  event.request.offset = offset;
  return event;
}

RequestEvent RequestReader::end(RequestEvent::Kind kind, BreakReason reason) {
  state_ = State::kEnd;
  RequestEvent event;
  event.kind = kind;
  event.reason = reason;
  return event;
}

// ---- replies ----

namespace {

std::byte* store_simple(std::byte* to, ErrorCode error, std::uint64_t cookie) {
  to = store_be(to, kSimpleReplyMagic);
  to = store_be(to, static_cast<std::uint32_t>(error));
  return store_cookie(to, cookie);
}

std::byte* store_chunk(std::byte* to, bool is_extended, const Asked& asked, Chunk chunk,
                       ReplyType type, std::uint32_t bytes) {
  to = store_be(to, is_extended ? kExtendedReplyMagic : kStructuredReplyMagic);
  to = store_be<std::uint16_t>(to, chunk == Chunk::kLast ? kReplyDone : 0);
  to = store_be(to, static_cast<std::uint16_t>(type));
  to = store_cookie(to, asked.cookie);
  if (!is_extended) return store_be(to, bytes);
  return store_be(store_be(to, asked.offset), std::uint64_t{bytes});
}

Encoded up_to(std::span<const std::byte> buffer, const std::byte* end) {
  return buffer.first(static_cast<std::size_t>(end - buffer.data()));
}

}  // namespace

Encoded done_reply(ReplyHead to, const Session& session, const Asked& asked) {
  if (session.extended) return none_chunk(to, session, asked);
  return up_to(to, store_simple(to.data(), ErrorCode::kNone, asked.cookie));
}

Encoded read_reply(ReplyHead to, const Session& session, const Request& request) {
  const Asked asked = {request.cookie, request.offset};
  if (!session.structured) return done_reply(to, session, asked);
  return data_chunk(to, session, asked, request.offset, static_cast<std::uint32_t>(request.length),
                    Chunk::kLast);
}

Encoded hole_reply(ReplyHead to, const Session& session, const Request& request) {
  return hole_chunk(to, session, {request.cookie, request.offset}, request.offset,
                    static_cast<std::uint32_t>(request.length), Chunk::kLast);
}

ErrorReply error_reply(ReplyHead to, const Session& session, const Asked& asked, ErrorCode error,
                       std::string_view text) {
  WEIR_ASSERT(error != ErrorCode::kNone);
  if (!session.structured) return {up_to(to, store_simple(to.data(), error, asked.cookie)), {}};
  const std::string_view fitting = cut_text(text);
  std::byte* end = store_chunk(to.data(), session.extended, asked, Chunk::kLast, ReplyType::kError,
                               static_cast<std::uint32_t>(4 + 2 + fitting.size()));
  end = store_be(end, static_cast<std::uint32_t>(error));
  return {up_to(to, store_be(end, static_cast<std::uint16_t>(fitting.size()))), fitting};
}

Encoded data_chunk(ReplyHead to, const Session& session, const Asked& asked, std::uint64_t offset,
                   std::uint32_t length, Chunk chunk) {
  WEIR_ASSERT(length > 0 && length <= kPayloadMax, length);
  std::byte* end =
      store_chunk(to.data(), session.extended, asked, chunk, ReplyType::kOffsetData, 8 + length);
  return up_to(to, store_be(end, offset));
}

Encoded hole_chunk(ReplyHead to, const Session& session, const Asked& asked, std::uint64_t offset,
                   std::uint32_t length, Chunk chunk) {
  WEIR_ASSERT(length > 0 && session.structured);
  std::byte* end =
      store_chunk(to.data(), session.extended, asked, chunk, ReplyType::kOffsetHole, 8 + 4);
  end = store_be(end, offset);
  return up_to(to, store_be(end, length));
}

Encoded none_chunk(ReplyHead to, const Session& session, const Asked& asked) {
  return up_to(to,
               store_chunk(to.data(), session.extended, asked, Chunk::kLast, ReplyType::kNone, 0));
}

BlockStatusReply::BlockStatusReply(std::span<std::byte> to, const Session& session,
                                   const Request& request)
    : to_(to),
      size_(session.extended ? kExtendedHeadBytes : kHeadBytes),
      asked_{request.cookie, request.offset},
      left_(request.length),
      is_extended_(session.extended),
      one_(request.has(kReqOne)) {
  WEIR_ASSERT(to.size() >= size_ + extent_bytes(), to.size());
  WEIR_ASSERT(request.command == Command::kBlockStatus);
}

bool BlockStatusReply::add(std::uint64_t length, std::uint32_t state) {
  WEIR_ASSERT(length > 0 && left_ > 0, length, left_);
  const std::uint64_t fitting = std::min(length, left_);
  if (length_ > 0 && state == state_) {
    length_ += fitting;
    size_ -= extent_bytes();
  } else {
    if (length_ > 0 && (one_ || to_.size() - size_ < extent_bytes())) {
      left_ = 0;  // no room for another one
      return false;
    }
    length_ = fitting;
    state_ = state;
    ++count_;
  }
  left_ -= fitting;
  store_last();
  return left_ > 0;
}

void BlockStatusReply::store_last() {
  std::byte* const to = to_.data() + size_;
  if (is_extended_) {
    store_be(store_be(to, length_), std::uint64_t{state_});  // padding of 32 bits, then the state
  } else {
    store_be(store_be(to, static_cast<std::uint32_t>(length_)), state_);
  }
  size_ += extent_bytes();
}

Encoded BlockStatusReply::finish() {
  WEIR_ASSERT(length_ > 0);
  const std::size_t chunk = is_extended_ ? kExtendedChunkBytes : kChunkBytes;
  std::byte* to = store_chunk(to_.data(), is_extended_, asked_, Chunk::kLast,
                              is_extended_ ? ReplyType::kBlockStatusExt : ReplyType::kBlockStatus,
                              static_cast<std::uint32_t>(size_ - chunk));
  to = store_be(to, kAllocationContextId);
  if (is_extended_) store_be(to, count_);
  return to_.first(size_);
}

}  // namespace weir::nbd
