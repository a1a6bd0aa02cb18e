// SPDX-License-Identifier: Apache-2.0
//
// Record marking of ONC RPC on TCP (RFC 5531, section 11): a stream of bytes in, messages out. A
// record is one message in one or more fragments, each after a mark of 4 bytes: bit 31 for the last
// fragment of the record, bits 0 to 30 for its length.
//
//   RecordReader reader;
//   RecordEvent event = reader.next(in);        advances `in` past the bytes it has used
//     kNeedBytes    all of `in` is used; call again with more
//     kPiece        event.bytes: the next bytes of the message, without marks, inside `in`.
//                   is_first and is_last mark the start and the end of a message; the last piece of
//                   a message may be empty
//     kBreak        close: the following bytes cannot be parsed
//
// A message that arrived in one fragment and in one read is one piece: the usual case needs no
// copy. Otherwise the owner joins pieces, as far as it needs the bytes (MessageView in xdr.h). Any
// split of the bytes gives the same messages; only the boundaries of pieces differ.
//
// A peer that exceeds a bound breaks the connection: a message longer than record_max, or more than
// kFragmentsMax fragments, including empty ones. In a stream that is not RPC the first mark would
// be a length of hundreds of megabytes, so the error names the protocol instead.
//
// One reader for each direction of a connection. Not thread-safe; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace weir::nfs {

// pynfs sends a WRITE of 64 MiB, the most that NFS-Ganesha offers; 1 MiB is left for its header.
inline constexpr std::uint32_t kRecordMaxDefault = 65U << 20;
// The maximum of record_max: less than any mark that is_foreign() recognizes.
inline constexpr std::uint32_t kRecordMaxLimit = 128U << 20;
inline constexpr std::uint32_t kFragmentsMax = 65'536;
inline constexpr std::size_t kRecordMarkBytes = 4;

// Why the rest of a stream cannot be parsed.
enum class BreakReason : std::uint8_t {
  kRecordTooLong,     // longer than record_max
  kTooManyFragments,  // more than kFragmentsMax
  kTls,               // a TLS handshake without the probe of RFC 9289
  kProxyHeader,       // PROXY protocol, version 2
  kText,              // HTTP, SSH, PROXY protocol version 1
};
inline constexpr std::size_t kBreakReasons = 5;

// For logs: "a record longer than the maximum".
std::string_view describe(BreakReason reason);

struct RecordEvent {
  enum class Kind : std::uint8_t { kNeedBytes, kPiece, kBreak };

  Kind kind = Kind::kNeedBytes;
  bool is_first = false;
  bool is_last = false;
  BreakReason reason = BreakReason::kRecordTooLong;  // of kBreak
  std::span<const std::byte> bytes;                  // of kPiece
};

class RecordReader {
 public:
  using Input = std::span<const std::byte>;

  // REQUIRES: record_max <= kRecordMaxLimit.
  explicit RecordReader(std::uint32_t record_max = kRecordMaxDefault);

  // REQUIRES: no kBreak was given.
  RecordEvent next(Input& in);

  // The length of the current message, once the mark of its last fragment has arrived; also
  // directly after its last piece.
  std::optional<std::uint32_t> message_length() const;
  // The maximum length of the current message: its length if known, otherwise record_max.
  std::uint32_t message_length_max() const { return message_length().value_or(record_max_); }
  // How many of the next bytes belong to the current fragment.
  std::uint32_t fragment_left() const { return left_; }
  // Whether a message has started and not ended.
  bool is_inside() const { return mark_size_ > 0 || fragments_ > 0; }

 private:
  std::optional<std::uint32_t> take_mark(Input& in);
  std::optional<BreakReason> begin_fragment(std::uint32_t mark);
  RecordEvent piece(Input& in);

  std::uint32_t record_max_;
  std::uint32_t message_ = 0;    // bytes of the message in fragments that have begun
  std::uint32_t left_ = 0;       // of the fragment
  std::uint32_t fragments_ = 0;  // of the message
  std::array<std::byte, kRecordMarkBytes> mark_{};
  std::uint8_t mark_size_ = 0;
  bool in_fragment_ = false;
  bool is_last_fragment_ = false;
  bool is_first_piece_ = true;
  bool is_first_mark_ = true;  // of the stream
  bool is_broken_ = false;
};

// The mark of a record that is one fragment. REQUIRES: bytes < 2^31.
std::array<std::byte, kRecordMarkBytes> record_mark(std::uint32_t bytes);

}  // namespace weir::nfs
