// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/xdr.h"

#include "weir/base/assert.h"

namespace weir::nfs {

XdrReader::XdrReader(const MessageView& message) : message_(message), end_(message.bytes.size()) {
  WEIR_ASSERT(message.length >= message.bytes.size(), message.length, message.bytes.size());
}

const std::byte* XdrReader::fail_to_take(std::uint64_t bytes) {
  if (bytes > left()) {
    state_ = XdrState::kShort;
  } else if (bytes > message_.bytes.size() - position_) {
    state_ = XdrState::kMissing;
  } else {
    state_ = XdrState::kBound;
  }
  return nullptr;
}

std::uint32_t XdrReader::payload() {
  const std::uint32_t length = u32();
  if (bound_ < std::numeric_limits<std::uint64_t>::max()) {
    bound_ += padded(length);
    end_ = std::min<std::uint64_t>(message_.bytes.size(), bound_);
  }
  take(padded(length));
  return good() || state_ == XdrState::kMissing ? length : 0;
}

void XdrReader::fail(XdrState state) {
  WEIR_ASSERT(state != XdrState::kGood);
  if (good()) state_ = state;
}

}  // namespace weir::nfs
