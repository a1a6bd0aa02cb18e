// SPDX-License-Identifier: Apache-2.0
//
// Text from outside, made fit to be shown in a message: in single quotes, bytes that are not
// printable ASCII (and quotes and backslashes) as \xNN, cut after kQuoteMax bytes. So a name or
// value that a user, a client or a file supplies can neither break the line it is shown in nor
// send commands to the terminal that shows it.
//
//   quote("50\x1b[2J") == "'50\\x1b[2J'"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

inline constexpr std::size_t kQuoteMax = 60;

std::string quote(std::string_view text);

// A whole message, some of which may be from outside and was not quoted: bytes that are neither
// printable ASCII nor the end of a line as \xNN, nothing else changed.
std::string visible(std::string_view text);

}  // namespace weir
