// SPDX-License-Identifier: Apache-2.0
#include "weir/base/block_sizes.h"

#include <algorithm>
#include <bit>

namespace weir {

bool are_valid(const BlockSizes& blocks, std::uint64_t export_size) {
  constexpr std::uint32_t kMinimumMax = 1U << 16;
  constexpr std::uint32_t kPreferredMin = 1U << 9;
  const std::uint64_t needed = std::min<std::uint64_t>(blocks.preferred, export_size);
  return std::has_single_bit(blocks.minimum) && blocks.minimum <= kMinimumMax &&
         std::has_single_bit(blocks.preferred) &&
         blocks.preferred >= std::max(blocks.minimum, kPreferredMin) &&
         blocks.maximum % blocks.minimum == 0 && blocks.maximum >= needed && blocks.maximum > 0 &&
         blocks.maximum <= kPayloadMax && export_size % blocks.minimum == 0;
}

}  // namespace weir
