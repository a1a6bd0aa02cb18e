// SPDX-License-Identifier: Apache-2.0
//
// A fuzzer that fails on purpose. ./dev check requires that it does: if it passed, the other
// fuzzers might pass only because the instrumentation does not work. The input cannot be found by
// chance (one in 2^32), but by a fuzzer that sees which branches it takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size >= 4 && bytes[0] == 'w' && bytes[1] == 'e' && bytes[2] == 'i' && bytes[3] == 'r') {
    std::abort();
  }
  return 0;
}
