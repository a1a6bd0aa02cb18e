// SPDX-License-Identifier: Apache-2.0
//
// Checks whether text can be printed unchanged. Names and descriptions must be printable: others
// are rejected on input, and messages show them with quote.h.
//
//   has_control("scratch") == false     has_control("a\nb") == true
#pragma once

#include <string_view>

namespace weir {

// Whether the text contains bytes that a terminal would interpret or that end a line: control
// characters of ASCII, and those of Latin-1 in UTF-8.
bool has_control(std::string_view text);

}  // namespace weir
