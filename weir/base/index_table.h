// SPDX-License-Identifier: Apache-2.0
//
// A hash table for objects that are stored elsewhere: an open table of (hash, index) pairs, eight
// bytes each, for owners that keep their objects in an array. Space for the expected number of
// entries is allocated at the start, so that no insert up to that number has to move the table. A
// table that grows would stop its owner for milliseconds at a hundred thousand entries. Beyond the
// bound it doubles.
//
//   table.insert(hash, 17);
//   table.find(hash, [&](std::uint32_t index) { return things[index].key == key; })   // 17
//
// Linear probing; erase moves the following entries back, so there are no tombstones, and a table
// that is filled and emptied for years stays as fast as a new one. Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "weir/base/assert.h"

namespace weir {

class IndexTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  explicit IndexTable(std::size_t entries_max)
      : slots_(slots_for(entries_max), kEmpty),
        mask_(slots_.size() - 1),
        entries_max_(entries_max) {}

  std::size_t size() const { return size_; }

  // The index of the object for which `is_it` returns true, or kNone. `is_it` is called only for
  // equal hashes.
  template <class IsIt>
  std::uint32_t find(std::uint64_t hash, IsIt is_it) const {
    const std::uint32_t tag = tag_of(hash);
    for (std::size_t at = tag & mask_; slots_[at] != kEmpty; at = (at + 1) & mask_) {
      if (tag_in(slots_[at]) == tag && is_it(index_in(slots_[at]))) return index_in(slots_[at]);
    }
    return kNone;
  }

  // REQUIRES: not in the table.
  void insert(std::uint64_t hash, std::uint32_t index) {
    WEIR_ASSERT(index != kNone);
    if (size_ == entries_max_) grow();
    ++size_;
    place(std::uint64_t{tag_of(hash)} << 32 | index);
  }

  // REQUIRES: in the table.
  void erase(std::uint64_t hash, std::uint32_t index) {
    const std::uint64_t entry = std::uint64_t{tag_of(hash)} << 32 | index;
    std::size_t hole = tag_of(hash) & mask_;
    while (slots_[hole] != entry) {
      WEIR_ASSERT(slots_[hole] != kEmpty, index);
      hole = (hole + 1) & mask_;
    }
    --size_;
    // Entries after the hole move into it, unless they would then be before their own start.
    for (std::size_t at = (hole + 1) & mask_; slots_[at] != kEmpty; at = (at + 1) & mask_) {
      const std::size_t home = tag_in(slots_[at]) & mask_;
      if (((at - home) & mask_) < ((at - hole) & mask_)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = kEmpty;
  }

 private:
  static constexpr std::uint64_t kEmpty = UINT64_MAX;

  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }
  static std::uint32_t tag_in(std::uint64_t slot) { return static_cast<std::uint32_t>(slot >> 32); }
  static std::uint32_t index_in(std::uint64_t slot) { return static_cast<std::uint32_t>(slot); }

  // At most four of five slots are used.
  static std::size_t slots_for(std::size_t entries) {
    return std::bit_ceil(entries + entries / 4 + 1);
  }

  void grow() {
    entries_max_ = 2 * entries_max_ + 1;
    const std::vector<std::uint64_t> before =
        std::exchange(slots_, std::vector<std::uint64_t>(slots_for(entries_max_), kEmpty));
    mask_ = slots_.size() - 1;
    for (const std::uint64_t entry : before) {
      if (entry != kEmpty) place(entry);
    }
  }

  void place(std::uint64_t entry) {
    std::size_t at = tag_in(entry) & mask_;
    while (slots_[at] != kEmpty) at = (at + 1) & mask_;
    slots_[at] = entry;
  }

  std::vector<std::uint64_t> slots_;
  std::size_t mask_;
  std::size_t entries_max_;
  std::size_t size_ = 0;
};

}  // namespace weir
