// SPDX-License-Identifier: Apache-2.0
//
// Quotes untrusted text for messages: in single quotes, bytes that are not printable ASCII (and
// quotes and backslashes) as \xNN, truncated after kQuoteMax bytes. So a name or value from a
// user, a client or a file can neither break the line in which it is shown nor send commands to
// the terminal.
//
//   quote("50\x1b[2J") == "'50\\x1b[2J'"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

inline constexpr std::size_t kQuoteMax = 60;

std::string quote(std::string_view text);

// Escapes a whole message that may contain untrusted text: bytes that are neither printable ASCII
// nor a newline as \xNN; everything else is unchanged.
std::string visible(std::string_view text);

}  // namespace weir
