// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/queue_index.h"

#include <cstring>

namespace weir::tbf {

// The high head, which is often unused, gets its table with its first request.
QueueIndex::QueueIndex(FieldSet key, std::size_t expected)
    : key_(key),
      stride_(sizeof(Queue) + PackedKey::words_of(key) * sizeof(std::uint64_t)),
      expected_(expected),
      first_(make(expected)),
      tables_{std::make_unique<IndexTable>(expected), nullptr} {}

QueueIndex::~QueueIndex() {
  const std::size_t made = expected_ + slabs_.size() * kSlab;
  for (std::size_t i = 0; i < made; ++i) at(static_cast<std::uint32_t>(i)).~Queue();
}

QueueIndex::Memory QueueIndex::make(std::size_t count) const {
  auto memory = std::make_unique_for_overwrite<std::byte[]>(count * stride_);
  for (std::size_t i = 0; i < count; ++i) new (memory.get() + i * stride_) Queue;
  return memory;
}

std::uint32_t QueueIndex::take() {
  if (!free_.empty()) {
    const std::uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  if (taken_ >= expected_ && (taken_ - expected_) % kSlab == 0) slabs_.push_back(make(kSlab));
  return taken_++;
}

std::uint32_t QueueIndex::place_of(const PackedKey& key, Head head) const {
  const auto& table = tables_[index(head)];
  if (table == nullptr) return IndexTable::kNone;
  return table->find(key.hash(), [&](std::uint32_t place) { return key.equals(at(place).key()); });
}

Queue& QueueIndex::find_or_make(const PackedKey& key, Head head) {
  if (Queue* const known = find(key, head)) return *known;
  auto& table = tables_[index(head)];
  if (table == nullptr) table = std::make_unique<IndexTable>(expected_);
  const std::uint32_t made = take();
  table->insert(key.hash(), made);
  Queue& queue = at(made);
  queue.head = head;
  queue.binding = 0;
  queue.watch = 0;
  queue.counted = &queue.waiting;
  ++queue.generation;
  std::memcpy(queue.key(), key.data(), key.size() * sizeof(std::uint64_t));
  return queue;
}

void QueueIndex::forget(Queue& queue) {
  IndexTable& table = *tables_[index(queue.head)];
  const std::uint64_t hash = PackedKey(attributes_of(queue), key_).hash();
  const std::uint32_t gone =
      table.find(hash, [&](std::uint32_t place) { return &at(place) == &queue; });
  table.erase(hash, gone);
  ++queue.generation;
  free_.push_back(gone);
}

}  // namespace weir::tbf
