// SPDX-License-Identifier: Apache-2.0
//
// A fuzzer that fails on purpose. ./dev check demands that it does: were it ever to pass, the
// other fuzzers would be passing because nothing is looking. The input is out of reach of plain
// chance (one in 2^32) and within reach of a fuzzer that sees which branches it takes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size >= 4 && bytes[0] == 'w' && bytes[1] == 'e' && bytes[2] == 'i' && bytes[3] == 'r') {
    std::abort();
  }
  return 0;
}
