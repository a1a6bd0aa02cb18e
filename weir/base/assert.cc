// SPDX-License-Identifier: Apache-2.0
#include "weir/base/assert.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>

#include "weir/base/assert_writer.h"

namespace weir::detail {
namespace {

std::atomic<void (*)(std::string_view)> writer{nullptr};

}  // namespace

void set_assertion_writer(void (*write)(std::string_view text)) { writer = write; }

void assertion_failed(const char* file, int line, const char* condition, const char* names,
                      const std::string& values) {
  const std::string detail = values.empty() ? "" : fmt::format("  [{} = {}]", names, values);
  const std::string text =
      fmt::format("{}:{}: assertion failed: {}{}\n", file, line, condition, detail);
  if (const auto write = writer.load()) {
    write(text);
  } else {
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  std::abort();
}

}  // namespace weir::detail
