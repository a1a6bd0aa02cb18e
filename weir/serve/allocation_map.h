// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a store in memory were ever written: a bit for each chunk. It lets block status
// tell holes, so that a copy of a mostly empty export reads next to nothing.
//
//   map.mark(offset, length)       written: every chunk touched counts as data
//   map.clear(offset, length)      zeroed: chunks that lie wholly inside are holes again
//   map.run(offset)                how far the state at `offset` goes on
//
// A hole is certain to be zero; data may be zero too. Pure: bits only.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::serve {

class AllocationMap {
 public:
  static constexpr std::uint64_t kChunk = 65536;  // bytes

  struct Run {
    std::uint64_t length = 0;
    bool is_data = false;

    bool operator==(const Run&) const = default;
  };

  explicit AllocationMap(std::uint64_t size)
      : size_(size), bits_((size + kChunk - 1) / kChunk, false) {}

  // REQUIRES of all: within the size.
  void mark(std::uint64_t offset, std::uint64_t length);
  void clear(std::uint64_t offset, std::uint64_t length);
  // REQUIRES: offset < size. Length > 0, up to the end at most.
  Run run(std::uint64_t offset) const;

 private:
  std::uint64_t size_;
  std::vector<bool> bits_;
};

}  // namespace weir::serve
