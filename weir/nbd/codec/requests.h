// SPDX-License-Identifier: Apache-2.0
//
// The transmission phase of NBD: requests in, reply headers out. The owner holds the socket and the
// payload; only headers pass through here.
//
//   RequestReader reader(session);
//   RequestEvent event = reader.next(in);       advances `in` past the bytes it has used
//     kNeedBytes    all of `in` is used; call again with more
//     kRequest      event.request is valid: serve it. The payload of a write follows:
//     kPayload      event.payload: a piece of it, inside `in`; the last if payload_left() == 0
//     kRefused      answer event.request.cookie with event.refusal; its payload was skipped
//     kDisconnect   NBD_CMD_DISC: answer requests in progress, then close
//     kBreak        close: the following bytes cannot be parsed
//
// A write is answered after its payload, not before: libnbd treats an earlier answer as an answer
// to a request that it has not sent. So a refused write is reported after its payload was skipped.
//
// Instead of passing payload through next(), an owner may receive payload_left() bytes directly
// into the request's buffer and report them with payload_received(). Any split of the bytes gives
// the same events, except for where pieces of payload are split.
//
// Only check() validates requests: no offset, length, command or flag passes that the export and
// the session do not allow, so the code that serves a request needs no further checks. Commands
// that are not offered, and flags that do not belong to a command, are refused with NBD_EINVAL;
// writing to a read-only export with NBD_EPERM; writing past the end with NBD_ENOSPC, anything else
// there with NBD_EINVAL; empty ranges, unaligned ranges and payloads above the maximum with
// NBD_EINVAL. The maximum applies only to payloads: a trim or a zero of 4 GiB takes no memory, and
// kernels send them. A write of more than kPayloadMax breaks the connection: its payload is not
// even skipped.
//
// Replies are written to small buffers of the caller; nothing allocates. The owner sends the
// payload of a read after the header.
//
// With extended headers (doc/proto.md of the branch extension-ext-header) a request has a length of
// 64 bits, and payload if it has the flag kPayloadLen: a write must have it, and the payload of
// other commands is skipped before they are refused. Every reply is a chunk that repeats the offset
// of its request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tl/expected.hpp>

#include "weir/nbd/codec/protocol.h"

namespace weir::nbd {

inline constexpr std::size_t kRequestBytes = 28;
inline constexpr std::size_t kExtendedRequestBytes = 32;

// As received, in the order of the protocol.
struct RawRequest {
  std::uint16_t flags = 0;
  std::uint16_t command = 0;
  std::uint64_t cookie = 0;  // "handle" in older texts; only returned to the client
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct Request {
  std::uint64_t cookie = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // at most kPayloadMax for reads and writes
  Command command = Command::kRead;
  std::uint16_t flags = 0;  // flags that are valid for the command

  bool has(std::uint16_t flag) const { return (flags & flag) != 0; }
  bool operator==(const Request&) const = default;
};
static_assert(sizeof(Request) == 32);

struct Refusal {
  ErrorCode error = ErrorCode::kNone;
  std::string_view why;  // a string constant, safe to send

  bool operator==(const Refusal&) const = default;
};

// The only function that validates requests. Not for NBD_CMD_DISC, which is always valid.
tl::expected<Request, Refusal> check(const RawRequest& raw, const Session& session);

struct RequestEvent {
  enum class Kind : std::uint8_t {
    kNeedBytes,
    kRequest,
    kPayload,
    kRefused,
    kDisconnect,
    kBreak,
  };

  Kind kind = Kind::kNeedBytes;
  BreakReason reason = BreakReason::kNotARequest;  // of kBreak
  Refusal refusal;                                 // of kRefused
  Request request;                                 // of kRequest; of kRefused cookie and offset
  std::span<const std::byte> payload;              // of kPayload
};

class RequestReader {
 public:
  using Input = std::span<const std::byte>;

  explicit RequestReader(const Session& session);

  // REQUIRES: neither kDisconnect nor kBreak was given.
  RequestEvent next(Input& in);

  // Bytes of the last write that have not been received yet.
  std::uint32_t payload_left() const { return state_ == State::kPayload ? left_ : 0; }
  // The owner received this many of them from the socket itself. REQUIRES: bytes <= payload_left().
  void payload_received(std::uint32_t bytes);

  const Session& session() const { return session_; }

 private:
  enum class State : std::uint8_t { kHead, kPayload, kSkip, kEnd };

  // Everything but a header that has arrived in one piece.
  RequestEvent next_part(Input& in);
  bool gather(Input& in);
  void pass(std::size_t bytes);
  std::size_t head_bytes() const {
    return session_.extended ? kExtendedRequestBytes : kRequestBytes;
  }
  RequestEvent judge(const std::byte* head, Input& in);
  static RequestEvent refused(std::uint64_t cookie, std::uint64_t offset, const Refusal& refusal);
  RequestEvent end(RequestEvent::Kind kind, BreakReason reason);

  Session session_;
  State state_ = State::kHead;
  std::uint8_t head_size_ = 0;
  std::uint16_t usable_flags_;        // of commands
  std::uint32_t left_ = 0;            // of kPayload and kSkip
  std::uint64_t skipped_cookie_ = 0;  // of kSkip: the request that was refused
  std::uint64_t skipped_offset_ = 0;
  Refusal refusal_;                                      // and why
  std::array<std::byte, kExtendedRequestBytes> head_{};  // of a request that arrived in pieces
};
static_assert(sizeof(RequestReader) <= 128);

// ---- replies ----

inline constexpr std::size_t kSimpleReplyBytes = 16;
inline constexpr std::size_t kChunkBytes = 20;
inline constexpr std::size_t kExtendedChunkBytes = 32;
inline constexpr std::size_t kReplyHeadMax = kExtendedChunkBytes + 8 + 4;

using ReplyHead = std::span<std::byte, kReplyHeadMax>;
using Encoded = std::span<const std::byte>;  // the front of the caller's buffer

// What a reply repeats of its request.
struct Asked {
  std::uint64_t cookie = 0;
  std::uint64_t offset = 0;  // used with extended headers
};

// Whether more chunks of the same reply follow.
enum class Chunk : std::uint8_t { kMore, kLast };

// Success of any request without a payload in its reply: all except reads and block status.
Encoded done_reply(ReplyHead to, const Session& session, const Asked& asked);
// Success of a whole read; request.length bytes of payload follow. REQUIRES: they are available,
// since the reply can no longer become an error.
Encoded read_reply(ReplyHead to, const Session& session, const Request& request);
// The same for a read of zeroes, without payload. REQUIRES: structured replies.
Encoded hole_reply(ReplyHead to, const Session& session, const Request& request);
// Failure of any request; the returned text follows the header: as much of `text` as may be sent,
// and nothing without structured replies. REQUIRES: error != kNone.
struct ErrorReply {
  Encoded head;
  std::string_view text;
};
ErrorReply error_reply(ReplyHead to, const Session& session, const Asked& asked, ErrorCode error,
                       std::string_view text);

// A read in several chunks. REQUIRES: the session has structured replies; the chunks are within the
// request and do not overlap; length > 0; with kDf there is one chunk, for the whole request.
Encoded data_chunk(ReplyHead to, const Session& session, const Asked& asked, std::uint64_t offset,
                   std::uint32_t length, Chunk chunk);
Encoded hole_chunk(ReplyHead to, const Session& session, const Asked& asked, std::uint64_t offset,
                   std::uint32_t length, Chunk chunk);
// Ends a reply whose chunks so far were all kMore. REQUIRES: structured replies.
Encoded none_chunk(ReplyHead to, const Session& session, const Asked& asked);

// The reply to NBD_CMD_BLOCK_STATUS, written to the caller's buffer, whose size bounds the extents:
//
//   BlockStatusReply reply(buffer, session, request);
//   while (reply.add(length, state)) ...        the store's extents, from request.offset on
//   send(reply.finish());
//
// Adjacent extents of the same state are joined, the last extent is truncated at the end of the
// request, and with NBD_CMD_FLAG_REQ_ONE there is one extent. A client asks again for extents that
// were omitted. With extended headers extents have 64-bit lengths.
class BlockStatusReply {
 public:
  static constexpr std::size_t kHeadBytes = kChunkBytes + 4;
  static constexpr std::size_t kExtentBytes = 8;
  static constexpr std::size_t kExtendedHeadBytes = kExtendedChunkBytes + 8;
  static constexpr std::size_t kExtendedExtentBytes = 16;

  // REQUIRES: room for one extent.
  BlockStatusReply(std::span<std::byte> to, const Session& session, const Request& request);

  // Returns whether another extent can be added. REQUIRES: length > 0, a multiple of the minimum
  // block size unless it extends beyond the request; the previous call returned true.
  bool add(std::uint64_t length, std::uint32_t state);
  // REQUIRES: an extent was added.
  Encoded finish();

 private:
  std::size_t extent_bytes() const { return is_extended_ ? kExtendedExtentBytes : kExtentBytes; }
  void store_last();

  std::span<std::byte> to_;
  std::size_t size_;
  Asked asked_;
  std::uint64_t left_;        // of the request
  std::uint64_t length_ = 0;  // of the last extent; 0: there is none
  std::uint32_t state_ = 0;   // of the last extent
  std::uint32_t count_ = 0;   // of extents
  bool is_extended_;
  bool one_;
};

}  // namespace weir::nbd
