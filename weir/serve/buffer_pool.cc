// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/buffer_pool.h"

#include <algorithm>
#include <bit>

#include <sanitizer/asan_interface.h>

#include "weir/base/assert.h"

namespace weir::serve {
namespace {

std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from - std::min(from, what); }

}  // namespace

Buffer::~Buffer() { WEIR_ASSERT(data_ == nullptr); }

BufferPool::~BufferPool() {
  WEIR_ASSERT(in_use() == 0 && lent_ == 0, reserved_, lent_, charged_);
  for (unsigned power = kPowerMin; power <= kPowerMax; ++power) {
    for (std::byte* const data : free_[power]) slabs_.give_back(data, power);
  }
}

bool BufferPool::reserve(std::uint64_t bytes) {
  const Guard guard(*this);
  const std::uint64_t most = limit_ - limit_ / 4;
  if (reserved_ + bytes > most || in_use() + bytes > limit_) return false;
  reserved_ += bytes;
  drop_kept(0);
  return true;
}

void BufferPool::unreserve(std::uint64_t bytes) {
  const Guard guard(*this);
  WEIR_ASSERT(reserved_ >= bytes, reserved_, bytes);
  reserved_ -= bytes;
}

bool BufferPool::fits(const MemoryAccount& account, std::uint64_t size) const {
  if (account.held + size <= kGuaranteed || lent_ == 0) return true;
  const std::uint64_t common = less(limit_, reserved_);
  const std::uint64_t free = less(common, shared_ + charged_);
  if (account.held == 0) return size <= free / 2;
  return account.held + size <= std::min(account_limit_, free / 4) && free >= size &&
         free - size >= common / 4;
}

Buffer BufferPool::take(MemoryAccount& account, std::size_t bytes) {
  WEIR_ASSERT(bytes > 0 && bytes <= std::size_t{1} << kPowerMax, bytes);
  const unsigned power = std::max(kPowerMin, static_cast<unsigned>(std::bit_width(bytes - 1)));
  const Guard guard(*this);
  if (!fits(account, std::uint64_t{1} << power)) {
    ++refused_;
    return {};
  }
  return make(account, static_cast<std::uint8_t>(power));
}

Buffer BufferPool::make(MemoryAccount& account, std::uint8_t power) {
  const std::size_t size = std::size_t{1} << power;
  std::byte* data = nullptr;
  if (auto& list = free_[power]; !list.empty()) {
    data = list.back();
    list.pop_back();
    kept_ -= size;
    ASAN_UNPOISON_MEMORY_REGION(data, size);
  } else {
    drop_kept(size);
    data = slabs_.take(power);
  }
  shared_ += less(account.held + size, std::max(account.held, kGuaranteed));
  lent_ += size;
  account.held += size;
  return {data, power};
}

void BufferPool::give_back(MemoryAccount& account, Buffer buffer) {
  if (!buffer) return;
  const Guard guard(*this);
  const std::size_t size = buffer.size();
  WEIR_ASSERT(account.held >= size && lent_ >= size, account.held, lent_, size);
  account.held -= size;
  lent_ -= size;
  shared_ -= less(account.held + size, std::max(account.held, kGuaranteed));
  std::byte* const data = std::exchange(buffer.data_, nullptr);
  if (kept_ + size > kKeptMax || in_use() + kept_ + size > limit_) {
    slabs_.give_back(data, buffer.power_);
    return;
  }
  kept_ += size;
  ASAN_POISON_MEMORY_REGION(data, size);
  free_[buffer.power_].push_back(data);
}

// Frees kept buffers so that the limit holds with the requested size.
void BufferPool::drop_kept(std::uint64_t size) {
  for (unsigned power = kPowerMax; power >= kPowerMin && in_use() + kept_ + size > limit_;
       --power) {
    auto& list = free_[power];
    while (!list.empty() && in_use() + kept_ + size > limit_) {
      slabs_.give_back(list.back(), power);
      list.pop_back();
      kept_ -= std::uint64_t{1} << power;
    }
  }
}

bool BufferPool::can_charge(const MemoryAccount& account, std::uint64_t bytes) const {
  const std::uint64_t common = less(limit_, reserved_);
  const std::uint64_t left = less(common / 4, charged_);
  return account.charged + bytes <= left && bytes <= less(common, shared_ + charged_);
}

bool BufferPool::has_room(const MemoryAccount& account, std::uint64_t bytes) const {
  const Guard guard(*this);
  return can_charge(account, bytes);
}

bool BufferPool::charge(MemoryAccount& account, std::uint64_t bytes) {
  const Guard guard(*this);
  if (!can_charge(account, bytes)) return false;
  account.charged += bytes;
  charged_ += bytes;
  drop_kept(0);
  return true;
}

void BufferPool::discharge(MemoryAccount& account, std::uint64_t bytes) {
  const Guard guard(*this);
  WEIR_ASSERT(account.charged >= bytes && charged_ >= bytes, account.charged, charged_, bytes);
  account.charged -= bytes;
  charged_ -= bytes;
}

}  // namespace weir::serve
