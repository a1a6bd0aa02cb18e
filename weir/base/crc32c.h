// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli), as used by iSCSI and ext4, to detect damaged files. It does not protect
// against deliberate changes.
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
