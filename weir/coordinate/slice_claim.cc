// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/slice_claim.h"

#include <utility>

#include "weir/coordinate/bytes.h"

namespace weir {
namespace {

constexpr std::uint8_t kLeasedFlag = 1;
constexpr std::uint8_t kPartialFlag = 2;

}  // namespace

EpochBytes pack_claim(const SliceClaim& claim) {
  ByteWriter out;
  out.put(claim.table);
  out.put(claim.members);
  out.put(static_cast<std::uint8_t>((claim.is_leased ? kLeasedFlag : 0) |
                                    (claim.is_partial ? kPartialFlag : 0)));
  out.put(static_cast<std::uint32_t>(claim.asks.size()));
  for (const SliceClaim::Ask& ask : claim.asks) {
    out.stretch(slice_name_bytes(ask.name));
    out.put(ask.held);
    out.put(ask.demand);
    out.put(static_cast<std::uint8_t>(ask.is_leased));
  }
  out.stretch(pack_vector(claim.held));
  return out.take();
}

std::optional<SliceClaim> read_claim(EpochView bytes) {
  ByteReader in(bytes);
  SliceClaim claim;
  claim.table = in.get<std::uint64_t>();
  claim.members = in.get<std::uint32_t>();
  const auto flags = in.get<std::uint8_t>();
  claim.is_leased = (flags & kLeasedFlag) != 0;
  claim.is_partial = (flags & kPartialFlag) != 0;
  const auto asks = in.get<std::uint32_t>();
  if (asks > kAsksMax || claim.members > kEpochMembersMax) in.fail();
  for (std::uint32_t i = 0; i < asks && in.room_for(1) > 0; ++i) {
    std::string name = slice_name_from(in.stretch(kSliceNameMax));
    const auto held = in.get<std::int64_t>();
    const auto demand = in.get<std::int64_t>();
    const bool is_leased = in.get<std::uint8_t>() != 0;
    claim.asks.push_back({std::move(name), held, demand, is_leased});
  }
  if (claim.asks.size() != asks) in.fail();
  claim.held = unpack_vector(in.stretch(kEpochDataMax));
  if (!in.is_done()) return std::nullopt;
  return claim;
}

}  // namespace weir
