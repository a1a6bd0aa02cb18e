// SPDX-License-Identifier: Apache-2.0
//
// No text may crash a parser, and every accepted value must be the same after printing and parsing
// it again.
#include <cstddef>
#include <cstdint>

#include "weir/base/assert.h"
#include "weir/base/units.h"

namespace {

using namespace weir;

template <class Parse, class Print>
void round_trip(std::string_view text, Parse parse, Print print) {
  const auto value = parse(text);
  if (value) WEIR_ASSERT(parse(print(*value)).value() == *value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  round_trip(text, parse_count, print_count);
  round_trip(text, parse_size, print_size);
  round_trip(text, parse_duration, print_duration);
  round_trip(text, parse_rate, print_rate);
  round_trip(text, parse_bandwidth, print_bandwidth);
  return 0;
}
