// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/allocation_map.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir::serve {

void AllocationMap::mark(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return;
  WEIR_ASSERT(offset < size_ && length <= size_ - offset, offset, length, size_);
  for (std::uint64_t chunk = offset / kChunk; chunk <= (offset + length - 1) / kChunk; ++chunk) {
    bits_[chunk] = true;
  }
}

void AllocationMap::clear(std::uint64_t offset, std::uint64_t length) {
  WEIR_ASSERT(offset <= size_ && length <= size_ - offset, offset, length, size_);
  const std::uint64_t end = offset + length;
  // The last chunk may be cut off by the end of the store.
  const std::uint64_t stop = end == size_ ? bits_.size() : end / kChunk;
  for (std::uint64_t chunk = (offset + kChunk - 1) / kChunk; chunk < stop; ++chunk) {
    bits_[chunk] = false;
  }
}

AllocationMap::Run AllocationMap::run(std::uint64_t offset) const {
  WEIR_ASSERT(offset < size_, offset, size_);
  std::uint64_t chunk = offset / kChunk;
  const bool is_data = bits_[chunk];
  while (chunk < bits_.size() && bits_[chunk] == is_data) ++chunk;
  return {std::min(chunk * kChunk, size_) - offset, is_data};
}

}  // namespace weir::serve
