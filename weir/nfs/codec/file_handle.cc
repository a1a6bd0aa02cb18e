// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/file_handle.h"

#include <algorithm>
#include <cstdint>

#include "weir/base/hash.h"

namespace weir::nfs {
namespace {

constexpr auto kLinuxVersion = std::byte{1};
constexpr std::size_t kLinuxFileIdType = 3;
constexpr std::size_t kLinuxHead = 4;
// Bytes of a file system id by its type: fs/nfsd/nfsfh.h of Linux.
constexpr std::array<std::size_t, 8> kLinuxIdBytes = {8, 4, 12, 8, 8, 8, 16, 24};

constexpr auto kGaneshaVersion = std::byte{0x43};
constexpr std::size_t kGaneshaHead = 4;

// 0: the handle is not one of Linux.
std::size_t linux_part_size(Bytes handle) {
  if (handle.size() < kLinuxHead || handle[0] != kLinuxVersion || handle[1] != std::byte{0}) {
    return 0;
  }
  const auto type = static_cast<std::size_t>(handle[2]);
  if (type >= kLinuxIdBytes.size()) return 0;
  const std::size_t size = kLinuxHead + kLinuxIdBytes[type];
  return handle.size() < size ? 0 : size;
}

bool is_of_ganesha(Bytes handle) {
  return handle.size() > kGaneshaHead && handle[0] == kGaneshaVersion;
}

}  // namespace

ExportPart::ExportPart(Bytes handle, std::size_t size) : size_(static_cast<std::uint8_t>(size)) {
  std::ranges::copy(handle.first(size), bytes_.begin());
}

std::optional<ExportPart> ExportPart::of(Bytes handle) {
  if (const std::size_t size = linux_part_size(handle); size > 0) {
    ExportPart part(handle, size);
    part.bytes_[kLinuxFileIdType] = std::byte{0};  // differs between the root and its files
    return part;
  }
  if (is_of_ganesha(handle)) return ExportPart(handle, kGaneshaHead);
  return std::nullopt;
}

std::uint64_t ExportPart::hash() const {
  std::uint64_t hash = size_;
  for (const std::byte byte : bytes()) hash = hash_words(hash, static_cast<std::uint64_t>(byte));
  return hash;
}

bool begins_with(Bytes handle, Bytes prefix) {
  if (handle.size() < prefix.size()) return false;
  const bool is_linux = linux_part_size(handle) > 0;
  for (std::size_t at = 0; at < prefix.size(); ++at) {
    const bool is_compared = !is_linux || at != kLinuxFileIdType;
    if (is_compared && handle[at] != prefix[at]) return false;
  }
  return true;
}

bool may_be_root(Bytes handle) {
  if (linux_part_size(handle) > 0) return handle[kLinuxFileIdType] == std::byte{0};
  return is_of_ganesha(handle);
}

}  // namespace weir::nfs
