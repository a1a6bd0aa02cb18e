// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli), as iSCSI and ext4 use it: tells a damaged file from a whole one. It does
// not protect from anybody who means harm.
//
//   crc32c("123456789") = e3069283
//
// A function of its argument; O(size).
#pragma once

#include <cstdint>
#include <string_view>

namespace weir {

std::uint32_t crc32c(std::string_view text);

}  // namespace weir
