// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a peer may crash the decoder, a leader or a member; a decoded message must encode to
// the same bytes; and its payload must be accepted or rejected.
#include <cstddef>
#include <cstdint>
#include <span>

#include "weir/base/assert.h"
#include "weir/coordinate/leader.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/slices.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir;
  const EpochView bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = decode(bytes);
  if (!message) return 0;
  const EpochBytes again = encode(*message);
  WEIR_ASSERT(again.size() == bytes.size());
  WEIR_ASSERT(std::equal(again.begin(), again.end(), bytes.begin()));

  const Instant now = instant_at(1'000'000'000);
  SliceLeader slices(
      {}, [](std::string_view) { return std::int64_t{1'000'000}; }, now);
  EpochLeader leader({.term = 1, .combine = add_vectors, .payload = &slices});
  leader.receive(1, *message, now);
  leader.receive(2, Ready{.serial = 1, .timeout = std::chrono::seconds{1}}, now);
  leader.tick(now + std::chrono::seconds{4000});
  SliceMember member({});
  if (const auto* const start = std::get_if<Start>(&*message)) {
    const bool taken = member.granted(start->grant, now);
    if (taken) (void)member.claim(now);
  }
  return 0;
}
