// SPDX-License-Identifier: Apache-2.0
//
// Tracks which chunks of a memory store were ever written, one bit each. Block status reports the
// holes, so that a copy of a mostly empty export reads almost nothing.
//
//   map.mark(offset, length)       written: every chunk touched counts as data
//   map.clear(offset, length)      zeroed: chunks completely inside are holes again
//   map.run(offset, length)        how far the state at `offset` extends, within the length
//
// A hole is always zero; data may be zero too. Every call visits only the given range, 64 chunks at
// a time: 4 GiB are 1,024 words. Several loops may use one: bits change atomically. Mark what was
// written after it was written, and clear before it is zeroed: then a hole is zero even if both
// happen at the same time.
#pragma once

#include <atomic>
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
      : size_(size), words_((chunks_of(size) + kWordBits - 1) / kWordBits) {}

  // REQUIRES of all: within the size.
  void mark(std::uint64_t offset, std::uint64_t length);
  void clear(std::uint64_t offset, std::uint64_t length);
  // REQUIRES: length > 0. 0 < result.length <= length.
  Run run(std::uint64_t offset, std::uint64_t length) const;

 private:
  static constexpr std::uint64_t kWordBits = 64;
  static std::uint64_t chunks_of(std::uint64_t bytes) { return (bytes + kChunk - 1) / kChunk; }
  // Calls function(word index, mask) for the bits from `first` up to `stop`, word by word, as long
  // as it returns true.
  template <class Function>
  static void each_word(std::uint64_t first, std::uint64_t stop, Function function);

  std::uint64_t size_;
  std::vector<std::atomic<std::uint64_t>> words_;
};

}  // namespace weir::serve
