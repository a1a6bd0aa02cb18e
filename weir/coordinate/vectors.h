// SPDX-License-Identifier: Apache-2.0
//
// Dense vectors of int64 as epoch data: the built-in reduction is their sum, place by place. The
// meaning of each place is defined elsewhere (slices.h, group_epochs.h). On the wire they are
// big-endian, so no byte order hook is needed.
//
// Numbers below 0 count as 0, and sums stop at the largest int64. Both keep the sum independent of
// order and grouping, and a peer that sends invalid numbers cannot reverse the sum of others.
//
//   sum_of({1, 2}, {3, -4}) = {4, 2}
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weir/coordinate/epoch.h"

namespace weir {

inline constexpr std::size_t kVectorMax = kEpochDataMax / sizeof(std::int64_t);

using EpochVector = std::vector<std::int64_t>;

EpochBytes pack_vector(std::span<const std::int64_t> values);
// Bytes after the last whole number are dropped.
EpochVector unpack_vector(EpochView bytes);
// The sum, as an EpochCombine. If one vector is shorter, the rest of the other is copied.
void add_vectors(std::span<std::byte> out, EpochView a, EpochView b);

}  // namespace weir
