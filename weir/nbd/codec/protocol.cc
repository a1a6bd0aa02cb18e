// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/protocol.h"

#include <array>
#include <cerrno>

namespace weir::nbd {

std::string_view cut_text(std::string_view text) {
  if (text.size() <= kTextMax) return text;
  std::size_t end = kTextMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

ErrorCode error_code(std::errc error) {
  switch (static_cast<int>(error)) {
    case 0:
      return ErrorCode::kNone;
    case EPERM:
    case EACCES:
    case EROFS:
      return ErrorCode::kPerm;
    case ENOMEM:
      return ErrorCode::kNoMem;
    case EINVAL:
    case EOPNOTSUPP:
      return ErrorCode::kInval;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::kNoSpc;
    case ESHUTDOWN:
      return ErrorCode::kShutdown;
    default:
      return ErrorCode::kIo;
  }
}

std::string_view describe(BreakReason reason) {
  constexpr std::array<std::string_view, kBreakReasons> kTexts = {
      "unknown client flags",
      "an option without the magic number",
      "an option from a client that did not agree to fixed newstyle",
      "too many options",
      "too many bytes of options",
      "an unavailable export, requested with NBD_OPT_EXPORT_NAME",
      "an export requested without TLS with NBD_OPT_EXPORT_NAME",
      "a request without the magic number",
      "a write larger than any server accepts",
  };
  return kTexts[static_cast<std::size_t>(reason)];
}

}  // namespace weir::nbd
