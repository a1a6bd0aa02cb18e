// SPDX-License-Identifier: Apache-2.0
//
// Where queues stand in a Tbf: the heaps of those that can pay and of those that cannot yet, the
// lists of busy and idle ones, and of classes that no queue uses. A queue with requests stands in
// one heap at a time, or behind another at a bucket (Crowd). For the sources of Tbf alone.
#pragma once

#include <array>
#include <cstdint>

#include <boost/intrusive/list.hpp>

#include "weir/base/heap.h"
#include "weir/schedule/tbf.h"

namespace weir {

struct Tbf::Heaps {
  template <class T, boost::intrusive::list_member_hook<> T::*kHook>
  using List = boost::intrusive::list<
      T, boost::intrusive::member_hook<T, boost::intrusive::list_member_hook<>, kHook>>;

  // The request that will probably run next, and the limits it is under.
  void prefetch_next(Head head) const {
    if (const Queue* const queue = ready[index(head)].peek()) {
      __builtin_prefetch(&queue->requests.front());
      __builtin_prefetch(&queue->limits->pace->shapes);
    }
  }

  std::array<Heap<Queue, std::uint64_t, &Queue::hook>, 2> ready;  // by tag
  Heap<Queue, std::uint64_t, &Queue::hook> later;                 // by tag
  std::array<Heap<Queue, std::uint64_t, &Queue::hook>, 2> spare;  // by arrival
  Heap<Queue, Instant, &Queue::hook> wake;                        // by when they can pay
  std::array<List<Queue, &Queue::link>, 2> busy;                  // queues with requests
  List<Queue, &Queue::link> idle;                   // without, least recently used first
  List<LoneClass, &LoneClass::unused_hook> unused;  // that no queue uses, in the same order
};

// A request that comes, or leaves.
inline void Tbf::join(Queue& queue, const Request& request) {
  *queue.counted += {1, request.bytes.count()};
}
inline void Tbf::part(Queue& queue, const Request& request) {
  *queue.counted -= {1, request.bytes.count()};
}

inline Tbf::WaitOrder Tbf::order_of(const Queue& queue) const {
  return heaps_->ready[index(queue.head)].peek() == &queue ? WaitOrder::kFirst : WaitOrder::kLater;
}

inline void Tbf::arrive(Queue& queue, Instant now) {
  if (!tbf::WaitBreakdown::watches(queue)) return;
  if (order_of(queue) == WaitOrder::kFirst) count_first(queue, now);
  waits_.arrive(queue, now);
}

inline void Tbf::depart(Queue& queue, Instant now) {
  if (tbf::WaitBreakdown::watches(queue)) waits_.depart(queue, now);
}

inline void Tbf::count_stay(Queue& queue, Instant now) {
  if (tbf::WaitBreakdown::watches(queue)) waits_.count(queue, order_of(queue), now);
}

// REQUIRES: it is watched, and first in order.
inline void Tbf::count_first(Queue& queue, Instant now) {
  if (root_.exists()) return waits_.count(queue, WaitOrder::kFirst, now);
  waits_.count_first(queue, now);
}

// Every class there is, the vacant ones left out.
template <class Visit>
void Tbf::each_live_class(Visit visit) {
  for (std::uint32_t i = 0; i < index_->places(); ++i) {
    if (Class& own = index_->at(i).own; !own.is_vacant()) visit(own);
  }
  for (auto& [key, lone] : lone_classes_) visit(*lone);
}

}  // namespace weir
