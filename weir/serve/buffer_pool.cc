// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "weir/base/assert.h"

namespace weir::serve {

Buffer::~Buffer() { WEIR_ASSERT(data_ == nullptr); }

BufferPool::~BufferPool() {
  WEIR_ASSERT(used_ == 0, used_);
  for (const auto& list : free_) {
    for (std::byte* const data : list) std::free(data);
  }
}

Buffer BufferPool::take(MemoryAccount& account, std::size_t bytes) {
  WEIR_ASSERT(bytes > 0 && bytes <= std::size_t{1} << kPowerMax, bytes);
  const unsigned power =
      std::max(kPowerMin, static_cast<unsigned>(std::bit_width(bytes - 1)));
  const std::uint64_t size = std::uint64_t{1} << power;
  const std::uint64_t free = limit_ - std::min(limit_, used_);
  const std::uint64_t most = std::min(account_limit_, free / 4);
  if (size > free || (account.held != 0 && account.held + size > most)) {
    ++refused_;
    return {};
  }
  return make(account, static_cast<std::uint8_t>(power));
}

Buffer BufferPool::take_small(MemoryAccount& account) { return make(account, kPowerMin); }

Buffer BufferPool::make(MemoryAccount& account, std::uint8_t power) {
  const std::size_t size = std::size_t{1} << power;
  std::byte* data = nullptr;
  if (auto& list = free_[power]; !list.empty()) {
    data = list.back();
    list.pop_back();
    kept_ -= size;
  } else {
    data = static_cast<std::byte*>(std::aligned_alloc(std::size_t{1} << kPowerMin, size));
    if (data == nullptr) throw std::bad_alloc();
  }
  used_ += size;
  account.held += size;
  return {data, power};
}

void BufferPool::give_back(MemoryAccount& account, Buffer buffer) {
  if (!buffer) return;
  const std::size_t size = buffer.size();
  WEIR_ASSERT(account.held >= size && used_ >= size, account.held, used_, size);
  account.held -= size;
  used_ -= size;
  std::byte* const data = std::exchange(buffer.data_, nullptr);
  if (kept_ + size > kKeptMax) {
    std::free(data);
    return;
  }
  kept_ += size;
  free_[buffer.power_].push_back(data);
}

}  // namespace weir::serve
