// SPDX-License-Identifier: Apache-2.0
//
// The heap of a process that runs for months (glibc; elsewhere nothing happens).
//
// A large block that is freed inside of the heap leaves a hole, which the next block seldom fits:
// an aligned one, such as a vector of cache lines, is looked for with room to align it, so it does
// not even fit the hole of its own size. The heap then grows by a copy of a table that is made once
// a second, without end. glibc puts blocks from 128 KiB on into mappings of their own, but raises
// that threshold to the largest block that was freed so far, up to 32 MiB (mallopt(3)).
//
//   pin_heap_thresholds()   it stays at 128 KiB: what is freed above it goes back to the kernel
//   trim_heap()             whole pages that are free go back to the kernel
#pragma once

namespace weir::host {

// For the whole process, from now on; at its start, before there are threads.
void pin_heap_thresholds();

// Of all threads. Walks over everything that is free and stops other threads that allocate
// meanwhile: less than 1 ms where free blocks lie together, about 20 ms for 100 MiB of small ones
// that lie scattered.
void trim_heap();

}  // namespace weir::host
