// SPDX-License-Identifier: Apache-2.0
//
// No bytes of a scheduler, and none of a relay, may crash their readers; a bundle that was read
// packs to the same bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/local_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  LocalReader reader;
  reader.add(text.substr(0, size / 2));
  for (auto next = reader.next(); next && *next; next = reader.next()) {
  }
  reader.add(text.substr(size / 2));
  for (auto next = reader.next(); next && *next; next = reader.next()) {
  }
  const EpochView bytes(reinterpret_cast<const std::byte*>(data), size);
  if (const auto bundle = read_bundle(bytes)) {
    const EpochBytes again = pack_bundle(*bundle);
    WEIR_ASSERT(again.size() == bytes.size());
    WEIR_ASSERT(std::equal(again.begin(), again.end(), bytes.begin()));
  }
  return 0;
}
