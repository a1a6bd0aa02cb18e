// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a claim (slices.h): what a member holds of each limit, sent with its Ready.
//
//   table (8)  members (4)  flags (1)  number of asks (4)
//   for each ask: name (4 + up to 255)  held (8)  demand (8)  under lease (1)
//   held (4 + 8 for each slot)
//
// A member asks by name for classes without a slot; classes with a slot are in the vector. Pure
// functions. docs/design/epochs.md describes the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/coordinate/epoch.h"
#include "weir/coordinate/vectors.h"

namespace weir {

inline constexpr std::size_t kSliceNameMax = 255;
// Maximum per claim; the others follow in the next one.
inline constexpr std::uint32_t kAsksMax = 256;

struct SliceClaim {
  // A class by name that a member holds or could use, without a known slot.
  struct Ask {
    std::string name;
    std::int64_t held;
    std::int64_t demand;
    bool is_leased;  // otherwise its cut-off amount
  };
  std::uint64_t table = 0;
  std::uint32_t members = 0;
  bool is_leased = false;   // the amounts in slots are under lease
  bool is_partial = false;  // it holds slices of more classes, for which it will ask later
  std::vector<Ask> asks;
  EpochVector held;  // by slot
};

EpochBytes pack_claim(const SliceClaim& claim);
// None: not valid.
std::optional<SliceClaim> read_claim(EpochView bytes);

inline std::string slice_name_from(EpochView view) {
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}
inline EpochView slice_name_bytes(std::string_view name) { return std::as_bytes(std::span(name)); }

}  // namespace weir
