// SPDX-License-Identifier: Apache-2.0
//
// Whole numbers as they are written in rules and NIDs. The base is in the number, as in C: 0x10 is
// sixteen, 010 is eight, and 10 is ten. Lustre reads addresses, strides and ids so, and rates and
// counts as plain decimals.
//
// Digits only, except for read_count(): no sign, no space, no unit. A number above 64 bits is read
// as UINT64_MAX, so that every check against a bound rejects it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

// In the base that its first digits tell.
std::optional<std::uint64_t> read_number(std::string_view text);
std::optional<std::uint64_t> read_decimal(std::string_view text);
// As Lustre reads rates and flags: decimal, perhaps with a + before it and a newline behind it.
std::optional<std::uint64_t> read_count(std::string_view text);

}  // namespace weir
