// SPDX-License-Identifier: Apache-2.0
//
// Settings for the heap of a long-running process (glibc; no effect elsewhere).
//
// A large block that is freed inside the heap leaves a hole that the next block seldom fits: for an
// aligned block, such as a vector of cache lines, the allocator searches for room to align it, so
// it does not even fit into a hole of its own size. The heap then grows without end by a copy of a
// table that is made once a second. glibc allocates blocks from 128 KiB on as separate mappings,
// but raises that threshold to the largest block freed so far, up to 32 MiB (mallopt(3)).
//
//   pin_heap_thresholds()   keeps it at 128 KiB: freed larger blocks are returned to the kernel
//   trim_heap()             returns free whole pages to the kernel
#pragma once

namespace weir::host {

// For the whole process; call it at the start, before there are threads.
void pin_heap_thresholds();

// For all threads. Visits all free memory and blocks other threads that allocate meanwhile: less
// than 1 ms if free blocks are adjacent, about 20 ms for 100 MiB of scattered small blocks.
void trim_heap();

}  // namespace weir::host
