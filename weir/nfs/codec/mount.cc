// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/mount.h"

#include "weir/nfs/codec/v3.h"

namespace weir::nfs {

bool is_mount(const CallHeader& header) {
  return header.program == kMountProgram && header.version == kMountVersion &&
         header.procedure == kMountProcedure;
}

std::optional<std::string_view> mount_path(XdrReader arguments) {
  const Bytes path = arguments.opaque(kMountPathMax);
  if (!arguments.good() || arguments.left() > 0) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(path.data()), path.size());
}

MountReply read_mount_reply(XdrReader results) {
  MountReply reply;
  reply.status = results.u32();
  if (results.good() && reply.status == 0) {
    reply.file_handle = results.opaque(kFileHandle3Max);
    const std::uint32_t count = results.u32();
    if (results.good() && count > kMountFlavorsMax) results.fail(XdrState::kUnknown);
    for (std::uint32_t i = 0; i < count && results.good(); ++i) {
      reply.flavors[reply.flavor_count++] = results.u32();
    }
  }
  if (results.good() && results.left() > 0) results.fail(XdrState::kUnknown);
  reply.end = results.state();
  if (reply.end != XdrState::kGood) reply.file_handle = {};
  return reply;
}

}  // namespace weir::nfs
