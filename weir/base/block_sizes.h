// SPDX-License-Identifier: Apache-2.0
//
// What offsets, lengths and payloads of an export may be: the same for its store, for the protocol
// that offers it, and for the file that configures it.
#pragma once

#include <cstdint>

namespace weir {

struct BlockSizes {
  std::uint32_t minimum = 1;         // of what every offset and length is a multiple
  std::uint32_t preferred = 4096;    // of what goes fastest
  std::uint32_t maximum = 1U << 25;  // of the payload of one request

  bool operator==(const BlockSizes&) const = default;
};

// More than this in one request is an attack, whatever an export allows.
inline constexpr std::uint32_t kPayloadMax = 1U << 26;

// The constraints that the NBD protocol puts on them (section "Block size constraints"), which suit
// every store, and maximum <= kPayloadMax.
bool are_valid(const BlockSizes& blocks, std::uint64_t export_size);

}  // namespace weir
