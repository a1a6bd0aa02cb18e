// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <unistd.h>

#include "weir/base/allocations_bench.h"

namespace {

std::atomic<std::uint64_t> count{0};

}  // namespace

// Not inlined: otherwise the compiler would see malloc and free and warn about mismatched new and
// delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

std::uint64_t weir::allocations() { return count.load(std::memory_order_relaxed); }

std::uint64_t weir::resident_bytes() {
  unsigned long total = 0;
  unsigned long resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2) std::abort();
  std::fclose(file);
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}
