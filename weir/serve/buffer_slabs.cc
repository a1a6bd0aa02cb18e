// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/buffer_slabs.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include "weir/base/assert.h"

namespace weir::serve {
namespace {

std::size_t slab_size(unsigned power) {
  return std::size_t{1} << std::max(power, BufferSlabs::kSlabPower);
}

std::size_t buffers_in_slab(unsigned power) { return slab_size(power) >> power; }

}  // namespace

BufferSlabs::~BufferSlabs() {
  WEIR_ASSERT(taken_ == 0, taken_);
  for (unsigned power = kPowerMin; power <= kPowerMax; ++power) {
    for (const auto& slab : sizes_[power].slabs) remove_slab(slab.first, power);
  }
}

std::byte* BufferSlabs::take(unsigned power) {
  WEIR_ASSERT(kPowerMin <= power && power <= kPowerMax, power);
  Size& size = sizes_[power];
  if (size.with_room.empty()) add_slab(size, power);
  std::byte* const slab = *size.with_room.begin();
  std::vector<std::uint16_t>& free = size.slabs.find(slab)->second;
  std::byte* const data = slab + (std::size_t{free.back()} << power);
  free.pop_back();
  if (free.empty()) size.with_room.erase(slab);
  ++taken_;
  ASAN_UNPOISON_MEMORY_REGION(data, std::size_t{1} << power);
  return data;
}

void BufferSlabs::give_back(std::byte* data, unsigned power) {
  Size& size = sizes_[power];
  const auto found = std::prev(size.slabs.upper_bound(data));
  auto& [slab, free] = *found;
  WEIR_ASSERT(taken_ > 0 && free.size() < buffers_in_slab(power), taken_, free.size());
  --taken_;
  if (free.size() + 1 == buffers_in_slab(power) && remove_slab(slab, power)) {
    size.with_room.erase(slab);
    size.slabs.erase(found);
    return;
  }
  // Freed private pages read as zeroes.
  madvise(data, std::size_t{1} << power, MADV_DONTNEED);
  ASAN_POISON_MEMORY_REGION(data, std::size_t{1} << power);
  free.push_back(static_cast<std::uint16_t>((data - slab) >> power));
  size.with_room.insert(slab);
}

void BufferSlabs::add_slab(Size& size, unsigned power) {
  void* const memory =
      mmap(nullptr, slab_size(power), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // A huge page would make free buffers resident. Kernels without huge pages return EINVAL.
  if (power < kSlabPower) madvise(memory, slab_size(power), MADV_NOHUGEPAGE);
  ASAN_POISON_MEMORY_REGION(memory, slab_size(power));
  mapped_ += slab_size(power);
  std::vector<std::uint16_t> free(buffers_in_slab(power));
  for (std::size_t i = 0; i < free.size(); ++i) {
    free[i] = static_cast<std::uint16_t>(free.size() - 1 - i);
  }
  auto* const slab = static_cast<std::byte*>(memory);
  size.slabs.emplace(slab, std::move(free));
  size.with_room.insert(slab);
}

// False: removing it would split a mapping in two, and the limit of mappings is reached. Then it
// stays, without pages.
bool BufferSlabs::remove_slab(std::byte* slab, unsigned power) {
  ASAN_UNPOISON_MEMORY_REGION(slab, slab_size(power));  // the addresses may be reused
  if (munmap(slab, slab_size(power)) != 0) return false;
  mapped_ -= slab_size(power);
  return true;
}

}  // namespace weir::serve
