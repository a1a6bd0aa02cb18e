// SPDX-License-Identifier: Apache-2.0
#include "weir/base/assert.h"

#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>

namespace weir::detail {

void assertion_failed(const char* file, int line, const char* condition, const char* names,
                      const std::string& values) {
  const std::string detail = values.empty() ? "" : fmt::format("  [{} = {}]", names, values);
  fmt::print(stderr, "{}:{}: assertion failed: {}{}\n", file, line, condition, detail);
  std::abort();
}

}  // namespace weir::detail
