// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/allocation_map.h"

#include <algorithm>
#include <bit>

#include "weir/base/assert.h"

namespace weir::serve {

template <class Function>
void AllocationMap::each_word(std::uint64_t first, std::uint64_t stop, Function function) {
  while (first < stop) {
    const std::uint64_t from = first % kWordBits;
    const std::uint64_t bits = std::min(kWordBits - from, stop - first);
    const std::uint64_t ones = ~std::uint64_t{0} >> (kWordBits - bits);
    if (!function(first / kWordBits, ones << from)) return;
    first += bits;
  }
}

void AllocationMap::mark(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return;
  WEIR_ASSERT(offset < size_ && length <= size_ - offset, offset, length, size_);
  each_word(offset / kChunk, chunks_of(offset + length), [this](auto word, std::uint64_t mask) {
    words_[word].fetch_or(mask);
    return true;
  });
}

void AllocationMap::clear(std::uint64_t offset, std::uint64_t length) {
  WEIR_ASSERT(offset <= size_ && length <= size_ - offset, offset, length, size_);
  const std::uint64_t end = offset + length;
  // The last chunk may be truncated by the end of the store.
  const std::uint64_t stop = end == size_ ? chunks_of(size_) : end / kChunk;
  each_word(chunks_of(offset), stop, [this](auto word, std::uint64_t mask) {
    words_[word].fetch_and(~mask);
    return true;
  });
}

AllocationMap::Run AllocationMap::run(std::uint64_t offset, std::uint64_t length) const {
  WEIR_ASSERT(offset < size_ && length > 0 && length <= size_ - offset, offset, length, size_);
  const std::uint64_t first = offset / kChunk;
  const bool is_data = (words_[first / kWordBits] >> first % kWordBits & 1) != 0;
  const std::uint64_t end = offset + length;
  std::uint64_t same_until = end;
  each_word(first, chunks_of(end), [&](std::uint64_t word, std::uint64_t mask) {
    const std::uint64_t bits = words_[word].load();
    const std::uint64_t others = (is_data ? ~bits : bits) & mask;
    if (others == 0) return true;
    const auto bit = static_cast<std::uint64_t>(std::countr_zero(others));
    same_until = (word * kWordBits + bit) * kChunk;
    return false;
  });
  return {std::min(same_until, end) - offset, is_data};
}

}  // namespace weir::serve
