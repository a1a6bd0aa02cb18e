// SPDX-License-Identifier: Apache-2.0
//
// XDR (RFC 4506) read from the front of a message. A message may be longer than the bytes at hand:
// the payload of a large write is forwarded while it arrives, and only the bytes before it are ever
// looked at together. So a reader knows both the bytes and the length of the whole message, and
// tells a field that is cut off by the end of the message from one that has not arrived.
//
//   XdrReader reader({bytes, length});
//   const std::uint32_t count = reader.u32();
//   const Bytes handle = reader.opaque(64);
//   if (!reader.good()) ...                     of anything read so far
//
// A bound on the bytes that are looked at keeps the time for a message short, however long it is.
// Failure is kept: after the first one, every read gives zero or no bytes, and state() says what it
// was. Nothing is copied; what is given back lies in the message. Not thread-safe, no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace weir::nfs {

using Bytes = std::span<const std::byte>;

// Of one message, apart from payloads: what arguments and results are stepped over at most.
inline constexpr std::uint32_t kWalkBytesMax = 64U << 10;

// The first bytes of a message, and how long all of it is. REQUIRES: length >= bytes.size().
struct MessageView {
  Bytes bytes;
  std::uint64_t length = 0;

  bool is_whole() const { return bytes.size() == length; }
};

// A message that is all there.
inline MessageView whole(Bytes bytes) { return {bytes, bytes.size()}; }

enum class XdrState : std::uint8_t {
  kGood,
  kShort,    // a field runs past the end of the message
  kMissing,  // a field lies in a part of the message that has not arrived
  kUnknown,  // a value that is not allowed in this place
  kBound,    // more bytes than the caller wants to look at
};

class XdrReader {
 public:
  XdrReader() = default;
  explicit XdrReader(const MessageView& message);

  std::uint32_t u32();
  std::uint64_t u64();
  void skip(std::uint64_t bytes);
  Bytes fixed(std::uint32_t bytes);
  // A length, that many bytes, and zeros up to a multiple of 4, which are not looked at. Longer
  // than `max`: kUnknown.
  Bytes opaque(std::uint32_t max = std::numeric_limits<std::uint32_t>::max());
  // An opaque whose bytes nobody looks at: its length, which is valid also if the bytes have not
  // arrived; the reader is kMissing then.
  std::uint32_t payload();
  // Looks at no more than so many bytes from here on; payloads are not counted.
  void set_bound(std::uint64_t bytes) { bound_ = position_ + bytes; }
  // For callers that find a value they cannot accept. REQUIRES: state != kGood.
  void fail(XdrState state);

  bool good() const { return state_ == XdrState::kGood; }
  XdrState state() const { return state_; }
  std::size_t position() const { return position_; }
  // Bytes of the message behind position().
  std::uint64_t left() const { return message_.length - position_; }
  // The message from position() on.
  MessageView rest() const { return {message_.bytes.subspan(position_), left()}; }
  // What was read since an earlier position().
  Bytes since(std::size_t position) const {
    return message_.bytes.subspan(position, position_ - position);
  }

 private:
  const std::byte* take(std::uint64_t bytes);

  MessageView message_;
  std::size_t position_ = 0;
  std::uint64_t bound_ = std::numeric_limits<std::uint64_t>::max();
  XdrState state_ = XdrState::kGood;
};

}  // namespace weir::nfs
