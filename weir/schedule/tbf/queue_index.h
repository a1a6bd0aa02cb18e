// SPDX-License-Identifier: Apache-2.0
//
// The queues of a Tbf, and how they are found: by the fields of a request that tell queues apart,
// on each head.
//
//   QueueIndex index(key, expected);
//   Queue& queue = index.find_or_make(PackedKey(attributes, key), head);
//   index.forget(queue);
//
// Queues stand side by side, each with room for its key behind it. As many as are expected are made
// at the start, so that the first request of a class waits for no memory; further ones in slabs.
// Memory is never given back while the index lives, so that a hint to a queue that was forgotten
// can still be asked whether it is the same (generation).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "weir/base/index_table.h"
#include "weir/classify/packed_key.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class QueueIndex {
 public:
  // The fields that tell queues apart, and how many queues are expected.
  QueueIndex(FieldSet key, std::size_t expected);
  ~QueueIndex();
  QueueIndex(const QueueIndex&) = delete;
  QueueIndex& operator=(const QueueIndex&) = delete;

  FieldSet key() const { return key_; }
  // nullptr if there is none.
  Queue* find(const PackedKey& key, Head head) const {
    const std::uint32_t known = place_of(key, head);
    return known == IndexTable::kNone ? nullptr : &at(known);
  }
  // One that is made here is idle, bound to nothing and in no list, and of another generation.
  Queue& find_or_make(const PackedKey& key, Head head);
  // REQUIRES: it has no requests and stands in no list.
  void forget(Queue& queue);
  Attributes attributes_of(Queue& queue) const { return PackedKey::unpack(key_, queue.key()); }

  // How many there are.
  std::size_t queues() const {
    return tables_[0]->size() + (tables_[1] == nullptr ? 0 : tables_[1]->size());
  }
  // Places that have been used at one time or another, for who walks them in parts.
  std::uint32_t places() const { return taken_; }
  // REQUIRES: place < places().
  Queue& at(std::uint32_t place) const {
    std::byte* memory = first_.get() + place * stride_;
    if (place >= expected_) [[unlikely]] {
      const std::size_t later = place - expected_;
      memory = slabs_[later / kSlab].get() + (later % kSlab) * stride_;
    }
    return *std::launder(reinterpret_cast<Queue*>(memory));
  }

 private:
  using Memory = std::unique_ptr<std::byte[]>;
  static constexpr std::size_t kSlab = 64;

  std::uint32_t place_of(const PackedKey& key, Head head) const;
  std::uint32_t take();
  Memory make(std::size_t count) const;

  FieldSet key_;
  std::size_t stride_;
  std::size_t expected_;
  Memory first_;
  std::vector<Memory> slabs_;
  std::uint32_t taken_ = 0;
  std::vector<std::uint32_t> free_;
  std::array<std::unique_ptr<IndexTable>, 2> tables_;  // by head
};

}  // namespace weir::tbf
