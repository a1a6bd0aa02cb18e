// SPDX-License-Identifier: Apache-2.0
#include "weir/base/result.h"

namespace weir {

std::string Error::message() const {
  std::string text = where;
  if (!text.empty()) text += ": ";
  text += what;
  if (!hint.empty()) text += "; " + hint;
  return text;
}

tl::unexpected<Error> fail(std::errc code, std::string_view where, std::string_view what,
                           std::string_view hint) {
  return tl::unexpected(Error{code, std::string(where), std::string(what), std::string(hint)});
}

tl::unexpected<Error> fail_errno(int errno_value, std::string_view where, std::string_view hint) {
  const auto code = static_cast<std::errc>(errno_value);
  return fail(code, where, std::make_error_code(code).message(), hint);
}

}  // namespace weir
