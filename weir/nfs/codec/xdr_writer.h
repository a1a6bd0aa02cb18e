// SPDX-License-Identifier: Apache-2.0
//
// Writes XDR (RFC 4506) field by field, for programs that create messages: tests, benchmarks, load
// generators. The gateway itself only forwards messages of others.
//
//   XdrWriter call;
//   call.u32(xid).u32(0).u32(2).u32(100003).u32(3).u32(6);     CALL, RPC version 2, NFS 3, READ
//   call.opaque(handle).u64(offset).u32(count);
//   send(call.record());                                       after its record mark
//
// Thread-compatible; allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weir/nfs/codec/record.h"

namespace weir::nfs {

class XdrWriter {
 public:
  XdrWriter& u32(std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) text_ += static_cast<char>(value >> shift);
    return *this;
  }
  XdrWriter& u64(std::uint64_t value) {
    return u32(static_cast<std::uint32_t>(value >> 32)).u32(static_cast<std::uint32_t>(value));
  }
  XdrWriter& opaque(std::string_view bytes) {
    u32(static_cast<std::uint32_t>(bytes.size()));
    text_ += bytes;
    text_.append((4 - bytes.size() % 4) % 4, '\0');
    return *this;
  }
  // Unchanged.
  XdrWriter& raw(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  XdrWriter& zeros(std::size_t bytes) {
    text_.append(bytes, '\0');
    return *this;
  }

  const std::string& text() const { return text_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(text_)); }
  // As one fragment.
  std::string record() const {
    const auto mark = record_mark(static_cast<std::uint32_t>(text_.size()));
    return std::string(reinterpret_cast<const char*>(mark.data()), mark.size()) + text_;
  }

 private:
  std::string text_;
};

}  // namespace weir::nfs
