// SPDX-License-Identifier: Apache-2.0
#include "weir/base/quote.h"

#include <iterator>

#include <fmt/format.h>

namespace weir {

std::string quote(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, kQuoteMax)) {
    const bool plain = c >= ' ' && c <= '~' && c != '\'' && c != '\\';
    if (plain) {
      shown += c;
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return shown + (text.size() > kQuoteMax ? "...'" : "'");
}

}  // namespace weir
