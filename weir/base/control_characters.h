// SPDX-License-Identifier: Apache-2.0
//
// Text that can be shown and listed as it is: names and descriptions must be such. What is not is
// refused where it comes in; messages show it by quote.h.
//
//   has_control("scratch") == false     has_control("a\nb") == true
#pragma once

#include <string_view>

namespace weir {

// Whether it has bytes that a terminal would obey or a line would end with: control characters of
// ASCII, and those of Latin-1 in UTF-8.
bool has_control(std::string_view text);

}  // namespace weir
