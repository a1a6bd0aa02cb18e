// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/byte_queue.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir::serve {

void ByteQueue::append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    if (chunks_.empty() || chunks_.back().size() == chunks_.back().capacity()) {
      // Twice as much as before: many small appends need few chunks, and an idle queue is small.
      const std::size_t last = chunks_.empty() ? kKept / 2 : chunks_.back().capacity();
      const std::size_t room = std::min(std::max(2 * last, bytes.size()), kChunk);
      chunks_.emplace_back().reserve(room);
    }
    std::vector<std::byte>& chunk = chunks_.back();
    const std::size_t part = std::min(chunk.capacity() - chunk.size(), bytes.size());
    chunk.insert(chunk.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
  }
}

void ByteQueue::append(ByteQueue&& other) {
  WEIR_ASSERT(other.first_ == 0);
  if (empty()) {
    clear();
    std::swap(*this, other);
    return;
  }
  if (other.size_ <= kKept) {
    for (const std::vector<std::byte>& chunk : other.chunks_) append(chunk);
  } else {
    size_ += other.size_;
    for (std::vector<std::byte>& chunk : other.chunks_) {
      if (!chunk.empty()) chunks_.push_back(std::move(chunk));
    }
  }
  other.clear();
}

std::size_t ByteQueue::parts(std::span<iovec> vectors) const {
  std::size_t used = 0;
  std::size_t skip = first_;
  for (const std::vector<std::byte>& chunk : chunks_) {
    if (used == vectors.size() || chunk.empty()) break;
    const std::span<const std::byte> rest = std::span(chunk).subspan(skip);
    skip = 0;
    if (rest.empty()) continue;
    vectors[used++] = {const_cast<std::byte*>(rest.data()), rest.size()};
  }
  return used;
}

void ByteQueue::drop(std::size_t bytes) {
  WEIR_ASSERT(bytes <= size_, bytes, size_);
  size_ -= bytes;
  bytes += first_;
  while (!chunks_.empty() && bytes >= chunks_.front().size()) {
    bytes -= chunks_.front().size();
    if (chunks_.size() == 1 && chunks_.front().capacity() <= kKept) {
      chunks_.front().clear();
      break;
    }
    chunks_.pop_front();
  }
  first_ = bytes;
}

void ByteQueue::clear() {
  chunks_.clear();
  first_ = 0;
  size_ = 0;
}

}  // namespace weir::serve
