// SPDX-License-Identifier: Apache-2.0
//
// The part of a file handle that is the same for all files of an export. Handles are opaque to
// clients, but two servers form them in a known way:
//
//   Linux          01 | 00 | type of file system id | type of file id | file system id | file id
//   NFS-Ganesha    43 | flags | export id, 2 bytes | length | file
//
// On Linux the root of an export has file id type 0, so the folder inside an export that a client
// may mount instead is not mistaken for one. With NFS-Ganesha, such a handle looks like the root.
//
// Handles of other servers have no known form; nothing is guessed about them. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

// Equal for all files of an export, and different for those of other exports of the same server.
class ExportPart {
 public:
  static constexpr std::size_t kSizeMax = 28;  // of Linux, with the longest id

  // None if the form of the handle is not known.
  static std::optional<ExportPart> of(Bytes handle);

  Bytes bytes() const { return Bytes(bytes_).first(size_); }
  bool operator==(const ExportPart&) const = default;
  std::uint64_t hash() const;

 private:
  ExportPart(Bytes handle, std::size_t size);

  std::array<std::byte, kSizeMax> bytes_{};
  std::uint8_t size_ = 0;
};

// Whether a handle begins with these bytes. The type of the file id of a Linux handle, in the
// middle of what its export has in common, is not compared.
bool begins_with(Bytes handle, Bytes prefix);

// Whether it may be the root of an export, so that its path names the export.
bool may_be_root(Bytes handle);

}  // namespace weir::nfs
