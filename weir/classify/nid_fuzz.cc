// SPDX-License-Identifier: Apache-2.0
//
// No text may crash the parsers of NIDs and lists; a parsed NID prints as text that parses to the
// same NID, and this text is a list that matches it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/classify/nid.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace weir;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  if (const auto nid = parse_nid(text)) {
    WEIR_ASSERT(parse_nid(print_nid(*nid)).value() == *nid);
    WEIR_ASSERT(NidList::parse(text).value().matches(*nid));
  }
  if (const auto list = NidList::parse(text)) {
    WEIR_ASSERT(list->size() > 0);
    WEIR_ASSERT(!list->matches(Nid{}));
    for (const char* probe : {"0@lo", "10.0.0.1@tcp", "2001:db8::1@tcp", "17@gni2"}) {
      const Nid nid = parse_nid(probe).value();
      const NidList twice = NidList::parse(std::string(text) + " " + probe).value();
      WEIR_ASSERT(twice.matches(nid) && twice.size() == list->size() + 1);
      static_cast<void>(list->matches(nid));
    }
  }
  return 0;
}
