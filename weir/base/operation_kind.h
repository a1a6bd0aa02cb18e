// SPDX-License-Identifier: Apache-2.0
//
// The kind of a request: what it does to a device. Sessions set it (weir/serve/session.h), and
// policies and accounts use it. Protocols and rules have other names for operations;
// weir/classify/opcode.h has the kind of each of Lustre's opcodes.
//
//   operation_name(OperationKind::kMetadataChange)      "metadata change"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir {

enum class OperationKind : std::uint8_t {
  kRead,
  kWrite,
  kFlush,
  kDiscard,
  kZero,
  kMetadataRead,
  kMetadataChange,
  kLock,
  kOther,
};
inline constexpr std::size_t kOperationKinds = 9;

// "read", "metadata change"
std::string_view operation_name(OperationKind kind);

}  // namespace weir
