// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/job_glob.h"

#include <cstddef>

namespace weir {

bool job_glob_matches(std::string_view pattern, std::string_view id) {
  // Check the end first: most ids and patterns differ there, as in *.500.
  while (!pattern.empty() && pattern.back() != '*') {
    if (id.empty() || id.back() != pattern.back()) return false;
    pattern.remove_suffix(1);
    id.remove_suffix(1);
  }
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t i = 0;
  std::size_t star = kNone;  // the last * found
  std::size_t taken_to = 0;  // how far into the id it reaches
  while (i < id.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken_to = i;
    } else if (p < pattern.size() && pattern[p] == id[i]) {
      ++p;
      ++i;
    } else if (star != kNone) {
      p = star + 1;
      i = ++taken_to;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace weir
