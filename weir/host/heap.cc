// SPDX-License-Identifier: Apache-2.0
#include "weir/host/heap.h"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace weir::host {

#if defined(__GLIBC__)

namespace {

constexpr int kMappedFrom = 128 << 10;
// Free memory kept at the end of the heap: less would be allocated and freed all the time.
constexpr int kTopMax = 1 << 20;

}  // namespace

void pin_heap_thresholds() {
  mallopt(M_MMAP_THRESHOLD, kMappedFrom);
  mallopt(M_TRIM_THRESHOLD, kTopMax);
}

void trim_heap() { malloc_trim(kTopMax); }

#else

void pin_heap_thresholds() {}
void trim_heap() {}

#endif

}  // namespace weir::host
