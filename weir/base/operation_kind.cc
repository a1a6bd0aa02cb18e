// SPDX-License-Identifier: Apache-2.0
#include "weir/base/operation_kind.h"

namespace weir {

std::string_view operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kRead:
      return "read";
    case OperationKind::kWrite:
      return "write";
    case OperationKind::kFlush:
      return "flush";
    case OperationKind::kDiscard:
      return "discard";
    case OperationKind::kZero:
      return "zero";
    case OperationKind::kMetadataRead:
      return "metadata read";
    case OperationKind::kMetadataChange:
      return "metadata change";
    case OperationKind::kLock:
      return "lock";
    case OperationKind::kOther:
      break;
  }
  return "other";
}

}  // namespace weir
