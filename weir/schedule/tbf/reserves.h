// SPDX-License-Identifier: Apache-2.0
//
// The order of queues whose reservation (reserve=) can pay. A queue is offered while its first
// request is within its limits, wherever else it waits: for its share, or for its turn.
//
//   reserves.offer(queue, now);        its limits can pay
//   reserves.withdraw(queue, now);     they cannot, or it leaves its place
//   Queue* queue = reserves.first(head, now);
//
// First is the reservation whose tokens have waited longest; its queues go in order of tags. A
// reservation keeps few tokens while no queue is offered, and many while one is: a device that is
// late for a while must not cost the class its tokens:
// docs/decisions/0017-two-depths-of-a-reservation.md.
#pragma once

#include <array>

#include "weir/base/heap.h"
#include "weir/base/time.h"
#include "weir/schedule/tbf/tags.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class Reserves {
 public:
  // REQUIRES: the tags outlive it.
  explicit Reserves(const Tags& tags) : tags_(tags) {}

  // Both do nothing without a reservation, or if nothing changes.
  void offer(Queue& queue, Instant now) {
    if (queue.reserving() != nullptr && !queue.extra->reserve_hook.is_linked()) add(queue, now);
  }
  void withdraw(Queue& queue, Instant now) {
    if (queue.extra != nullptr && queue.extra->reserve_hook.is_linked()) remove(queue, now);
  }
  // The queue to run on this head, or nullptr.
  Queue* first(Head head, Instant now);
  bool has_any() const { return !lines_[0].empty() || !lines_[1].empty(); }
  // When there may be one; kNever if none is offered.
  Instant next_at(Head head) const {
    const auto& lines = lines_[index(head)];
    return lines.empty() ? kNever : lines.top_key();
  }
  // Takes the cost of a request. REQUIRES: it is offered, or leaves in the same instant.
  void pay(Queue& queue, Bytes size, Instant now);
  // A request moved more or less than it paid for.
  void settle(Queue& queue, Tokens paid, Tokens due, Instant now);

 private:
  static ReserveLine& line_of(const Queue& queue) {
    return queue.reserving()->reservation->lines[index(queue.head)];
  }
  static Instant ready_at(const Queue& queue);
  void add(Queue& queue, Instant now);
  void remove(Queue& queue, Instant now);
  void place(ReserveLine& line, Head head);
  void place_both(Class& reserving);

  const Tags& tags_;
  std::array<Heap<ReserveLine, Instant, &ReserveLine::hook>, 2> lines_;  // by head
};

}  // namespace weir::tbf
