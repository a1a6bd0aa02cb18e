// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/xdr.h"

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"

namespace weir::nfs {
namespace {

constexpr std::uint64_t padded(std::uint32_t bytes) { return (std::uint64_t{bytes} + 3) / 4 * 4; }

}  // namespace

XdrReader::XdrReader(const MessageView& message) : message_(message) {
  WEIR_ASSERT(message.length >= message.bytes.size(), message.length, message.bytes.size());
}

// Skips this many bytes and returns their position; nullptr if they are not all available.
const std::byte* XdrReader::take(std::uint64_t bytes) {
  if (!good()) return nullptr;
  if (bytes > left()) {
    state_ = XdrState::kShort;
    return nullptr;
  }
  if (bytes > message_.bytes.size() - position_) {
    state_ = XdrState::kMissing;
    return nullptr;
  }
  if (position_ + bytes > bound_) {
    state_ = XdrState::kBound;
    return nullptr;
  }
  const std::byte* place = message_.bytes.data() + position_;
  position_ += bytes;
  return place;
}

std::uint32_t XdrReader::u32() {
  const std::byte* place = take(4);
  return place == nullptr ? 0 : load_be<std::uint32_t>(place);
}

std::uint64_t XdrReader::u64() {
  const std::byte* place = take(8);
  return place == nullptr ? 0 : load_be<std::uint64_t>(place);
}

void XdrReader::skip(std::uint64_t bytes) { take(bytes); }

Bytes XdrReader::fixed(std::uint32_t bytes) {
  const std::byte* place = take(bytes);
  return place == nullptr ? Bytes{} : Bytes(place, bytes);
}

Bytes XdrReader::opaque(std::uint32_t max) {
  const std::uint32_t length = u32();
  if (good() && length > max) state_ = XdrState::kUnknown;
  const std::byte* place = take(padded(length));
  return place == nullptr ? Bytes{} : Bytes(place, length);
}

std::uint32_t XdrReader::payload() {
  const std::uint32_t length = u32();
  if (bound_ < std::numeric_limits<std::uint64_t>::max()) bound_ += padded(length);
  take(padded(length));
  return good() || state_ == XdrState::kMissing ? length : 0;
}

void XdrReader::fail(XdrState state) {
  WEIR_ASSERT(state != XdrState::kGood);
  if (good()) state_ = state;
}

}  // namespace weir::nfs
