// SPDX-License-Identifier: Apache-2.0
//
// Patterns for job ids: * stands for any bytes, also none; everything else for itself. The whole id
// must fit. There is no ?, no class and no escape.
//
//   dd.*  fits dd.0 and dd.          *.500  fits dd.500          a*b  fits ab, not a
//
// ** is the same as *, and a * in an id is only met by a *; on a Lustre server both have surprises.
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
