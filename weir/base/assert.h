// SPDX-License-Identifier: Apache-2.0
//
// WEIR_ASSERT(condition, values...) detects bugs in Weir. It is on in every build. A failed
// assertion prints place, condition and the numbers named after it, and aborts:
//
//   weir/pace/token_bucket.cc:41: assertion failed: depth > 0  [depth, count = 0, 5]
//
// Errors of peers, I/O and input are not assertions: see result.h.
#pragma once

#include <string>

namespace weir::detail {

[[noreturn]] void assertion_failed(const char* file, int line, const char* condition,
                                   const char* names, const std::string& values);

template <class... Numbers>
[[noreturn, gnu::cold, gnu::noinline]] void fail_assertion(const char* file, int line,
                                                           const char* condition, const char* names,
                                                           Numbers... numbers) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::to_string(numbers)), ...);
  assertion_failed(file, line, condition, names, text);
}

}  // namespace weir::detail

#define WEIR_ASSERT(condition, ...)                                               \
  do {                                                                            \
    if (!(condition)) [[unlikely]] {                                              \
      ::weir::detail::fail_assertion(__FILE__, __LINE__, #condition,              \
                                     "" #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                             \
  } while (false)
