// SPDX-License-Identifier: Apache-2.0
//
// What a request does to a device, in Weir's own words: a session says it (weir/serve/session.h),
// and policies and accounts need nothing else. What protocols and rules call an operation is
// another matter; weir/classify/opcode.h has the kind of each of Lustre's opcodes.
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
