// SPDX-License-Identifier: Apache-2.0
#include "weir/base/quote.h"

#include <iterator>

#include <fmt/format.h>

namespace weir {

namespace {

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

void append_escaped(std::string& shown, char c) {
  fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace

std::string quote(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, kQuoteMax)) {
    if (is_printable(c) && c != '\'' && c != '\\') {
      shown += c;
    } else {
      append_escaped(shown, c);
    }
  }
  return shown + (text.size() > kQuoteMax ? "...'" : "'");
}

std::string visible(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (const char c : text) {
    if (is_printable(c) || c == '\n') {
      shown += c;
    } else {
      append_escaped(shown, c);
    }
  }
  return shown;
}

}  // namespace weir
