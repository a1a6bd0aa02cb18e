// SPDX-License-Identifier: Apache-2.0
//
// The word that was probably meant: of a list of known words the one with the fewest insertions,
// deletions and replacements. For messages about a key, a name or a command that does not exist.
// Words that differ in more than half of their letters are not offered: a wrong guess is worse than
// none.
//
//   nearest("capcity", {"capacity", "cost"}) == "capacity"
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace weir {

// The first of the nearest ones.
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> known);

}  // namespace weir
