// SPDX-License-Identifier: Apache-2.0
//
// The queues of a Tbf, found by the fields of a request that distinguish queues, on each head.
//
//   QueueIndex index(key, expected);
//   Queue& queue = index.find_or_make(PackedKey(attributes, key), head);
//   index.forget(queue);
//
// Queues are stored side by side, each with room for its key. The expected number is allocated at
// the start, so that the first request of a class does not wait for memory; further ones in slabs.
// Memory is not freed while the index exists, so that a hint to a removed queue can still be
// checked (generation).
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
  // The fields that distinguish queues, and the expected number of queues.
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
  // A new queue is idle, unbound, in no list, and has another generation.
  Queue& find_or_make(const PackedKey& key, Head head);
  // REQUIRES: it has no requests and is in no list.
  void forget(Queue& queue);
  Attributes attributes_of(Queue& queue) const { return PackedKey::unpack(key_, queue.key()); }

  // Number of queues.
  std::size_t queues() const {
    return tables_[0]->size() + (tables_[1] == nullptr ? 0 : tables_[1]->size());
  }
  // Number of places ever used, for visits in steps.
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
