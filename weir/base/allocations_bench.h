// SPDX-License-Identifier: Apache-2.0
//
// For micro benchmarks: how often the program has allocated since it started, to show that a path
// does not, and how much memory it uses. bench/allocations.cc, which every benchmark is linked
// with, replaces operator new to count. Not part of the library.
//
//   const std::uint64_t before = allocations();
//   for (auto _ : state) ...
//   state.counters["allocations"] = static_cast<double>(allocations() - before);
#pragma once

#include <cstdint>

namespace weir {

std::uint64_t allocations();
// Resident memory of the process.
std::uint64_t resident_bytes();

}  // namespace weir
