// SPDX-License-Identifier: Apache-2.0
//
// Memory for buffers, directly from the kernel: pages that are given back are no longer resident,
// whatever is next to them.
//
// The heap cannot guarantee that. The hole that an aligned block leaves is too small for the next
// one of its size, because the allocator searches for room to align it, and a small block after a
// hole keeps the heap from shrinking. 128 MiB of buffers of mixed sizes took 1.5 GiB of heap.
//
// Buffers of one size below 1 MiB share slabs of 1 MiB; each larger buffer has its own slab. The
// lowest slab with room is used first, so that the others become empty and are unmapped:
//
//   slab of 256 KiB buffers   [ lent | free | lent | lent ]     free: address space without pages
//   slab of a 4 MiB buffer    [            lent           ]
//
// A slab uses one mapping of the kernel, which allows 65,530 per process by default; its buffers
// need no further mapping. A buffer that is taken and given back costs two system calls, and the
// kernel zeroes its pages: callers keep some buffers for reuse. With AddressSanitizer, a buffer
// that is not lent cannot be accessed. One owner, no locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace weir::serve {

class BufferSlabs {
 public:
  static constexpr unsigned kPowerMin = 12;  // a page
  static constexpr unsigned kPowerMax = 26;
  static constexpr unsigned kSlabPower = 20;

  BufferSlabs() = default;
  BufferSlabs(const BufferSlabs&) = delete;
  BufferSlabs& operator=(const BufferSlabs&) = delete;
  // REQUIRES: all buffers were given back.
  ~BufferSlabs();

  // 2^power bytes, zeroed, aligned to a page. REQUIRES: kPowerMin <= power <= kPowerMax.
  std::byte* take(unsigned power);
  void give_back(std::byte* data, unsigned power);

  // Address space, in bytes.
  std::uint64_t mapped() const { return mapped_; }

 private:
  struct Size {
    std::map<std::byte*, std::vector<std::uint16_t>> slabs;  // each with its free buffers
    std::set<std::byte*> with_room;
  };

  void add_slab(Size& size, unsigned power);
  bool remove_slab(std::byte* slab, unsigned power);

  std::array<Size, kPowerMax + 1> sizes_;
  std::uint64_t mapped_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace weir::serve
