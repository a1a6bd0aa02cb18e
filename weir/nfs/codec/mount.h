// SPDX-License-Identifier: Apache-2.0
//
// MNT of the MOUNT protocol, version 3 (RFC 1813, appendix I): how a client of NFS version 3 gets
// the file handle of an export's root. A gateway that relays MOUNT reads both directions and learns
// which export a file handle belongs to; the bytes pass unchanged.
//
//   call     path of the export                          mount_path(arguments)
//   reply    status, file handle, security flavors       read_mount_reply(results)
//
// Other procedures (DUMP, UMNT, UMNTALL, EXPORT) are not parsed. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/nfs/codec/rpc.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

inline constexpr std::uint32_t kMountVersion = 3;
inline constexpr std::uint32_t kMountProcedure = 1;   // MOUNTPROC3_MNT
inline constexpr std::uint32_t kMountPathMax = 1024;  // MNTPATHLEN
inline constexpr std::size_t kMountFlavorsMax = 16;   // kept; servers offer at most 5

bool is_mount(const CallHeader& header);

// None if it is longer than kMountPathMax, or if the arguments do not end after it.
std::optional<std::string_view> mount_path(XdrReader arguments);

struct MountReply {
  std::uint32_t status = 0;
  Bytes file_handle;  // of a status of 0
  std::uint32_t flavor_count = 0;
  std::array<std::uint32_t, kMountFlavorsMax> flavors{};
  XdrState end = XdrState::kGood;
};

MountReply read_mount_reply(XdrReader results);

}  // namespace weir::nfs
