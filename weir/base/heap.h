// SPDX-License-Identifier: Apache-2.0
//
// A priority queue of objects that are stored elsewhere: smallest key first, equal keys in order
// of insertion. It holds queues that wait for tokens, ordered by time, and the events of the
// simulator.
//
//   position      0
//             /  |  |  \         children of i: 4i + 1 ... 4i + 4
//            1   2  3   4        entry: { key, sequence, slot }, the node's hook: { slot }
//                                of each slot: its position among the entries, its node
//
// Four children per node instead of two: half as many levels, and the four keys to compare are
// adjacent. Keys are stored in the array, so ordering never accesses a node. An entry that moves
// stores its new position under its slot, so that update() and erase() find it. Positions are
// adjacent too: in a heap of a hundred thousand nodes spread over memory, only the node that is
// returned enters the cache.
//
// Ties. Every push takes the next sequence number, and so does every change of key (replace_top,
// update), even to an equal key: a node that gets a new key is ordered after nodes with an equal
// key, as serving in turns requires. The order depends only on (key, sequence), not on addresses,
// so it is the same in every run.
//
// Invariants (is_valid): no entry is ordered before its parent, and the slot of entry i's node
// contains i. The heap does not own nodes: remove a node before it is destroyed or moved, and
// destroy the heap before its nodes (declare it after them); the hook asserts this. Two heaps may
// share one hook if a node is in one of them at a time. Not thread-safe, not copyable, no iteration
// in order.
//
// Cost: push, pop, replace_top, update, erase O(log n); the rest O(1), clear O(n). Does not
// allocate within the size set by reserve(). 36 bytes per entry with a 64-bit key, and 4 bytes in
// the node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "weir/base/assert.h"

namespace weir {

// The hook of a node in a Heap. Membership belongs to the object, not to its value: a copy of a
// node is in no heap, and assignment to a node leaves its membership unchanged.
class HeapHook {
 public:
  HeapHook() = default;
  HeapHook(const HeapHook&) noexcept {}
  HeapHook& operator=(const HeapHook&) noexcept { return *this; }
  // REQUIRES: not in a heap, which would keep a dangling pointer.
  ~HeapHook() { WEIR_ASSERT(!is_linked(), slot_); }

  bool is_linked() const { return slot_ != kNone; }

 private:
  template <class T, class Key, HeapHook T::*kHook>
  friend class Heap;

  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::uint32_t slot_ = kNone;
};

// Key needs operator< and should be cheap to copy: an integer, an Instant.
template <class T, class Key, HeapHook T::*kHook>
class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap() { clear(); }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  // Room for n nodes; pushes up to that size do not allocate.
  void reserve(std::size_t n) {
    entries_.reserve(n);
    slots_.reserve(n);
    nodes_.reserve(n);
  }

  // Whether the node is in this heap; works also if several heaps share the hook.
  bool contains(const T& node) const {
    const std::uint32_t slot = (node.*kHook).slot_;
    return slot < nodes_.size() && nodes_[slot] == &node;
  }

  // REQUIRES: the node's hook is in no heap.
  void push(T& node, Key key) {
    WEIR_ASSERT(!(node.*kHook).is_linked());
    WEIR_ASSERT(entries_.size() < HeapHook::kNone, entries_.size());
    const std::uint32_t slot = take_slot(node);
    entries_.emplace_back();
    sift_up(entries_.size() - 1, keyed(slot, key));
  }

  // The same with a turn from the caller instead of the next sequence number, which orders ties.
  // Use turns for all entries of a heap or for none.
  void push(T& node, Key key, std::uint64_t turn) {
    next_sequence_ = turn;
    push(node, key);
  }

  // The first node. REQUIRES: not empty.
  T& top() const { return *nodes_[first().slot]; }
  const Key& top_key() const { return first().key; }
  // The first node, or nullptr if the heap is empty.
  T* peek() const { return entries_.empty() ? nullptr : nodes_[entries_.front().slot]; }

  // Removes and returns the first node. REQUIRES: not empty.
  T& pop() {
    T& node = top();
    remove(0);
    return node;
  }

  // Gives the first node a new key: pop and push in one descent. REQUIRES: not empty.
  void replace_top(Key key) { sift_down(0, keyed(first().slot, key)); }
  void replace_top(Key key, std::uint64_t turn) {
    next_sequence_ = turn;
    replace_top(key);
  }

  // Gives any node a new key, smaller or larger. REQUIRES: contains(node).
  void update(T& node, Key key) {
    WEIR_ASSERT(contains(node), size());
    const std::uint32_t slot = (node.*kHook).slot_;
    sift(slots_[slot], keyed(slot, key));
  }

  void update(T& node, Key key, std::uint64_t turn) {
    next_sequence_ = turn;
    update(node, key);
  }

  // Removes a node. REQUIRES: contains(node).
  void erase(T& node) {
    WEIR_ASSERT(contains(node), size());
    remove(slots_[(node.*kHook).slot_]);
  }

  // Removes all nodes. O(n).
  void clear() {
    for (const Entry& entry : entries_) (nodes_[entry.slot]->*kHook).slot_ = HeapHook::kNone;
    entries_.clear();
    slots_.clear();
    nodes_.clear();
    free_slot_ = HeapHook::kNone;
  }

  // Whether the invariants hold, for tests. O(n).
  bool is_valid() const {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const std::uint32_t slot = entries_[i].slot;
      if (slots_[slot] != i || (nodes_[slot]->*kHook).slot_ != slot) return false;
      if (i > 0 && is_before(entries_[i], entries_[parent(i)])) return false;
    }
    return true;
  }

 private:
  struct Entry {
    Key key;
    std::uint64_t sequence;
    std::uint32_t slot;
  };
  static constexpr std::size_t kFanout = 4;

  static std::size_t parent(std::size_t i) { return (i - 1) / kFanout; }
  static std::size_t first_child(std::size_t i) { return kFanout * i + 1; }

  // Branch-free, like least_child(): the result of a key comparison is unpredictable, and one
  // misprediction costs as much as all comparisons of a level. Plain numbers are compared together
  // with their sequence as one number of 128 bits.
  static bool is_before(const Entry& a, const Entry& b) {
    if constexpr (std::is_same_v<Key, std::uint64_t>) {
      using Wide = unsigned __int128;
      return (Wide{a.key} << 64 | a.sequence) < (Wide{b.key} << 64 | b.sequence);
    } else {
      const bool smaller = a.key < b.key;
      const bool larger = b.key < a.key;
      const bool earlier = a.sequence < b.sequence;
      return smaller | (!larger & earlier);
    }
  }

  const Entry& first() const {
    WEIR_ASSERT(!entries_.empty());
    return entries_.front();
  }

  // 2^64 numbers are enough for any run: one per nanosecond for 584 years.
  Entry keyed(std::uint32_t slot, const Key& key) { return {key, next_sequence_++, slot}; }

  std::uint32_t take_slot(T& node) {
    std::uint32_t slot = free_slot_;
    if (slot == HeapHook::kNone) {
      slot = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back(&node);
      slots_.push_back(0);
    } else {
      free_slot_ = slots_[slot];
      nodes_[slot] = &node;
    }
    (node.*kHook).slot_ = slot;
    return slot;
  }
  void free_slot(std::uint32_t slot) {
    (nodes_[slot]->*kHook).slot_ = HeapHook::kNone;
    nodes_[slot] = nullptr;
    slots_[slot] = free_slot_;
    free_slot_ = slot;
  }

  void place(std::size_t i, const Entry& entry) {
    entries_[i] = entry;
    slots_[entry.slot] = static_cast<std::uint32_t>(i);
  }

  // The first in order of the up to four children that start at begin. REQUIRES: begin < size.
  std::size_t least_child(std::size_t begin, std::size_t size) const {
    const Entry* const child = entries_.data() + begin;
    if (begin + kFanout <= size) [[likely]] {
      const std::size_t left = is_before(child[1], child[0]) ? 1 : 0;
      const std::size_t right = is_before(child[3], child[2]) ? 3 : 2;
      return begin + (is_before(child[right], child[left]) ? right : left);
    }
    std::size_t least = 0;
    for (std::size_t i = 1; begin + i < size; ++i) {
      if (is_before(child[i], child[least])) least = i;
    }
    return begin + least;
  }

  // The next three functions place an entry, starting from a hole at i. They move entries into the
  // hole instead of swapping, so each step writes one entry.
  void sift_up(std::size_t i, const Entry& entry) {
    while (i > 0 && is_before(entry, entries_[parent(i)])) {
      place(i, entries_[parent(i)]);
      i = parent(i);
    }
    place(i, entry);
  }

  // First to the bottom along the least children, then up again. An entry with a new key usually
  // belongs near the bottom, so this needs fewer comparisons than checking at each level, and a
  // loop of fixed length has no exit to mispredict.
  void sift_down(std::size_t i, const Entry& entry) {
    const std::size_t size = entries_.size();
    const std::size_t start = i;
    for (std::size_t begin = first_child(i); begin < size; begin = first_child(i)) {
      const std::size_t least = least_child(begin, size);
      place(i, entries_[least]);
      i = least;
    }
    while (i > start && is_before(entry, entries_[parent(i)])) {
      place(i, entries_[parent(i)]);
      i = parent(i);
    }
    place(i, entry);
  }

  void sift(std::size_t i, const Entry& entry) {
    if (i > 0 && is_before(entry, entries_[parent(i)])) {
      sift_up(i, entry);
    } else {
      sift_down(i, entry);
    }
  }

  // Fills the hole at i with the last entry, which may move up or down, because it is from
  // another branch.
  void remove(std::size_t i) {
    free_slot(entries_[i].slot);
    const Entry last = entries_.back();
    entries_.pop_back();
    if (i < entries_.size()) sift(i, last);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t>
      slots_;  // position of the entry, or for a free slot the next free slot
  std::vector<T*> nodes_;
  std::uint32_t free_slot_ = HeapHook::kNone;
  std::uint64_t next_sequence_ = 0;
};

}  // namespace weir
