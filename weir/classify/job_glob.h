// SPDX-License-Identifier: Apache-2.0
//
// Patterns for job ids: * matches any bytes, also none; everything else matches itself. The whole
// id must match. There is no ?, no character class and no escape.
//
//   dd.*  matches dd.0 and dd.      *.500  matches dd.500       a*b  matches ab, not a
//
// ** is the same as *, and a * in an id is matched only by a *; a Lustre server differs in both.
// Time is at most pattern x id steps: after a mismatch only the last * is tried again, one byte
// further, since a match that moves an earlier * could move the last one as well.
#pragma once

#include <string_view>

namespace weir {

bool job_glob_matches(std::string_view pattern, std::string_view id);

inline bool is_job_glob(std::string_view pattern) {
  return pattern.find('*') != std::string_view::npos;
}

}  // namespace weir
