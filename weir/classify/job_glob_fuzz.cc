// SPDX-License-Identifier: Apache-2.0
//
// Pattern and id, separated by the first newline, compared with a naive matcher that takes
// exponential time: hence only short inputs. Matching longer ones must only terminate.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/classify/job_glob.h"

namespace {

bool naive(std::string_view pattern, std::string_view id) {
  if (pattern.empty()) return id.empty();
  if (pattern[0] == '*') {
    return naive(pattern.substr(1), id) || (!id.empty() && naive(pattern, id.substr(1)));
  }
  return !id.empty() && pattern[0] == id[0] && naive(pattern.substr(1), id.substr(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view pattern = text.substr(0, end);
  const std::string_view id = text.substr(std::min(end + 1, text.size()));
  const bool fits = weir::job_glob_matches(pattern, id);
  constexpr std::size_t kNaiveMax = 12;
  if (pattern.size() <= kNaiveMax && id.size() <= kNaiveMax) {
    WEIR_ASSERT(fits == naive(pattern, id));
  }
  return 0;
}
