// SPDX-License-Identifier: Apache-2.0
//
// Reads XDR (RFC 4506) from the start of a message. A message may be longer than the available
// bytes: the payload of a large write is forwarded while it arrives, and only the bytes before it
// are kept together. So a reader knows both the bytes and the length of the whole message, and
// distinguishes a field that is truncated by the end of the message from one that has not arrived.
//
//   XdrReader reader({bytes, length});
//   const std::uint32_t count = reader.u32();
//   const Bytes handle = reader.opaque(64);
//   if (!reader.good()) ...                     for everything read so far
//
// A bound on the bytes that are read keeps the time for a message short, however long it is. Errors
// are sticky: after the first one, every read returns zero or no bytes, and state() is that error.
// Nothing is copied; results point into the message. Not thread-safe, no allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "weir/base/big_endian.h"

namespace weir::nfs {

using Bytes = std::span<const std::byte>;

// The most bytes of arguments or results that are read of one message, not counting payloads.
inline constexpr std::uint32_t kWalkBytesMax = 64U << 10;

// The first bytes of a message, and its whole length. REQUIRES: length >= bytes.size().
struct MessageView {
  Bytes bytes;
  std::uint64_t length = 0;

  bool is_whole() const { return bytes.size() == length; }
};

// A complete message.
inline MessageView whole(Bytes bytes) { return {bytes, bytes.size()}; }

enum class XdrState : std::uint8_t {
  kGood,
  kShort,    // a field runs past the end of the message
  kMissing,  // a field lies in a part of the message that has not arrived
  kUnknown,  // a value that is not allowed in this place
  kBound,    // more bytes than set_bound() allows
};

class XdrReader {
 public:
  XdrReader() = default;
  explicit XdrReader(const MessageView& message);

  std::uint32_t u32() {
    const std::byte* place = take(4);
    return place == nullptr ? 0 : load_be<std::uint32_t>(place);
  }
  std::uint64_t u64() {
    const std::byte* place = take(8);
    return place == nullptr ? 0 : load_be<std::uint64_t>(place);
  }
  void skip(std::uint64_t bytes) { take(bytes); }
  Bytes fixed(std::uint32_t bytes) {
    const std::byte* place = take(bytes);
    return place == nullptr ? Bytes{} : Bytes(place, bytes);
  }
  // A length, that many bytes, and zeros up to a multiple of 4, which are not checked. Longer than
  // `max`: kUnknown.
  Bytes opaque(std::uint32_t max = std::numeric_limits<std::uint32_t>::max()) {
    const std::uint32_t length = u32();
    if (good() && length > max) state_ = XdrState::kUnknown;
    const std::byte* place = take(padded(length));
    return place == nullptr ? Bytes{} : Bytes(place, length);
  }
  // Skips an opaque and returns its length, which is valid even if the bytes have not arrived; the
  // state is then kMissing.
  std::uint32_t payload();
  // Reads at most this many bytes from here on; payloads are not counted.
  void set_bound(std::uint64_t bytes) {
    bound_ = position_ + bytes;
    end_ = std::min<std::uint64_t>(message_.bytes.size(), bound_);
  }
  // For callers that find a value they cannot accept. REQUIRES: state != kGood.
  void fail(XdrState state);

  bool good() const { return state_ == XdrState::kGood; }
  XdrState state() const { return state_; }
  std::size_t position() const { return position_; }
  // Bytes of the message after position().
  std::uint64_t left() const { return message_.length - position_; }
  // The message from position() on.
  MessageView rest() const { return {message_.bytes.subspan(position_), left()}; }
  // The bytes read since an earlier position().
  Bytes since(std::size_t position) const {
    return message_.bytes.subspan(position, position_ - position);
  }

 private:
  static constexpr std::uint64_t padded(std::uint32_t bytes) {
    return (std::uint64_t{bytes} + 3) / 4 * 4;
  }
  // Skips this many bytes and returns their position; nullptr if they are not all available.
  const std::byte* take(std::uint64_t bytes) {
    if (!good()) return nullptr;
    if (bytes > end_ - position_) [[unlikely]]
      return fail_to_take(bytes);
    const std::byte* place = message_.bytes.data() + position_;
    position_ += bytes;
    return place;
  }
  const std::byte* fail_to_take(std::uint64_t bytes);

  MessageView message_;
  std::size_t position_ = 0;
  std::uint64_t end_ = 0;  // of what has arrived and is within the bound
  std::uint64_t bound_ = std::numeric_limits<std::uint64_t>::max();
  XdrState state_ = XdrState::kGood;
};

}  // namespace weir::nfs
