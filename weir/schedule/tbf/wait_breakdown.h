// SPDX-License-Identifier: Apache-2.0
//
// The causes of waits, in request nanoseconds: n requests that wait for t count n * t. A bounded
// number of queues is watched. The time of a queue is counted before its place or its length
// changes, so its place determines the cause, and the sums are always exact:
//
//   limit + share + root + slot + order = sum of (dispatch - arrival) + sum of (now - arrival)
//
// The time that all requests of a queue have waited up to t is base + length * t, in
// unsigned arithmetic: an arrival at t keeps it unchanged by "base -= t, ++length", a
// departure by the reverse.
//
// Which queue is first in order changes without that queue being touched. So this class stores
// since when the current one has been first, and when the root refused it; the caller determines
// whether a queue is that one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weir/base/time.h"
#include "weir/schedule/rule_view.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class WaitBreakdown {
 public:
  // Whether a queue that can pay is the next to run on its head.
  enum class Order : std::uint8_t { kFirst, kLater };

  explicit WaitBreakdown(std::size_t watched_max) : waits_(watched_max) {}

  static bool watches(const Queue& queue) { return queue.watch != 0; }
  // A queue has become busy, and is watched from now on if a record is free or its owner is idle.
  void begin(Queue& queue, Instant now);
  // The queue is removed. REQUIRES: idle.
  void end(Queue& queue);
  void end_all() { waits_.assign(waits_.size(), {}); }

  // ---- of a watched queue ----

  // Its length must not change while it is first, unless the time until now has been counted.
  void arrive(Queue& queue, Instant now) {
    QueueWait& wait = wait_of(queue);
    wait.base -= ns_of(now);
    ++wait.length;
  }
  // REQUIRES: it has just been counted.
  void depart(Queue& queue, Instant now) {
    QueueWait& wait = wait_of(queue);
    wait.base += ns_of(now);
    --wait.length;
    ++wait.left;
  }
  void count(Queue& queue, Order order, Instant now) {
    QueueWait& wait = wait_of(queue);
    wait.counted = add_delays(queue, order, now, wait.delays);
  }
  // The same for a queue that is first and does not wait for the root; faster.
  void count_first(Queue& queue, Instant now);

  // ---- of the first queue in order ----

  void first_since(Head head, Instant now) { first_since_[index(head)] = now; }
  // The root cannot pay for it before then.
  void root_refused(Instant now, Instant until) {
    root_refused_ = std::min(root_refused_, now);
    root_until_ = until;
  }
  void root_paid() { root_refused_ = kNever; }

  // For every watched queue, up to now: visit(queue, waiting, left, begun, delays).
  template <class OrderOf, class Visit>
  void visit(Instant now, OrderOf order_of, Visit visit) const {
    for (const QueueWait& wait : waits_) {
      if (wait.queue == nullptr) continue;
      DelaySums delays = wait.delays;
      add_delays(*wait.queue, order_of(*wait.queue), now, delays);
      visit(*wait.queue, static_cast<std::uint32_t>(wait.length), wait.left, wait.begun, delays);
    }
  }

 private:
  // Assigned to a queue when it gets busy; reused when it is idle and another queue needs it.
  struct QueueWait {
    std::uint64_t stood(Instant at) const { return base + length * ns_of(at); }

    Queue* queue = nullptr;
    std::uint64_t base = 0;
    std::uint64_t length = 0;   // requests in the queue
    std::uint64_t left = 0;     // requests that were in it before
    std::uint64_t counted = 0;  // the time already counted in `delays`
    DelaySums delays{};
    Instant begun{};
  };

  static std::uint64_t ns_of(Instant at) {
    return static_cast<std::uint64_t>(at.time_since_epoch().count());
  }
  QueueWait& wait_of(const Queue& queue) { return waits_[queue.watch - 1U]; }
  const QueueWait& wait_of(const Queue& queue) const { return waits_[queue.watch - 1U]; }
  std::uint64_t shared_until(const Queue& queue, Instant now) const;
  std::uint64_t add_delays(const Queue& queue, Order order, Instant now, DelaySums& sums) const;

  std::vector<QueueWait> waits_;
  std::size_t next_ = 0;
  std::array<Instant, 2> first_since_{};  // by head
  Instant root_refused_ = kNever;         // when the root could not pay for the first queue
  Instant root_until_ = kNever;           // and until when
};

}  // namespace weir::tbf
