// SPDX-License-Identifier: Apache-2.0
#include "weir/base/crc32c.h"

#include <array>

namespace weir {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view text) {
  std::uint32_t crc = ~0U;
  for (const char c : text) {
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return ~crc;
}

}  // namespace weir
