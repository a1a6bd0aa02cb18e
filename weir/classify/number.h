// SPDX-License-Identifier: Apache-2.0
//
// Whole numbers in rules and NIDs. The prefix determines the base, as in C: 0x10 is sixteen, 010 is
// eight, and 10 is ten. Lustre parses addresses, strides and ids this way, and rates and counts as
// plain decimals.
//
// Digits only, except for read_count(): no sign, no space, no unit. A number above 64 bits is read
// as UINT64_MAX, so that every check against a bound rejects it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

// In the base given by the prefix.
std::optional<std::uint64_t> read_number(std::string_view text);
std::optional<std::uint64_t> read_decimal(std::string_view text);
// As Lustre parses rates and flags: decimal, with an optional leading + and an optional
// trailing newline.
std::optional<std::uint64_t> read_count(std::string_view text);

}  // namespace weir
