// SPDX-License-Identifier: Apache-2.0
//
// Suggests the word that was probably meant: the known word with the fewest insertions, deletions
// and replacements. For messages about a key, a name or a command that does not exist. Words that
// differ in more than half of their letters are not suggested, because a wrong suggestion is worse
// than none.
//
//   nearest("capcity", {"capacity", "cost"}) == "capacity"
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace weir {

// The first of the nearest words.
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> known);

}  // namespace weir
