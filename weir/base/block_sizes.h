// SPDX-License-Identifier: Apache-2.0
//
// The constraints on offsets, lengths and payloads of an export, shared by its store, the protocol
// that offers it and the file that configures it.
//
//   minimum       every offset and length is a multiple of it, as O_DIRECT requires
//   preferred     the size that the device handles best
//   maximum       the largest payload of one request: memory is reserved for it
#pragma once

#include <cstdint>

namespace weir {

struct BlockSizes {
  std::uint32_t minimum = 1;
  std::uint32_t preferred = 4096;
  std::uint32_t maximum = 1U << 25;

  bool operator==(const BlockSizes&) const = default;
};

// A larger payload in one request is treated as an attack, whatever an export allows.
inline constexpr std::uint32_t kPayloadMax = 1U << 26;

// Whether they meet the constraints of the NBD protocol (section "Block size constraints"), which
// suit every store, and maximum <= kPayloadMax.
bool are_valid(const BlockSizes& blocks, std::uint64_t export_size);

}  // namespace weir
