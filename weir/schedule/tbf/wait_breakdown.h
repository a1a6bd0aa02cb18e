// SPDX-License-Identifier: Apache-2.0
//
// Where the time of waiting requests goes, in request nanoseconds: n requests that stood for t
// count n * t. Up to a number of queues are watched. A queue's time is counted before its place or
// its length changes, so its place says what the time was spent on, and it always adds up:
//
//   limit + share + root + slot + order = sum of (left - came) + sum of (now - came) of who waits
//
// The time all requests of a queue have stood up to t is base + length * t, in unsigned arithmetic:
// one that comes at t changes neither by "base -= t, ++length", and one that leaves by the reverse.
//
// Who is first in order changes without its queue being touched. So this remembers since when there
// has been the present first one, and when the root refused it; whether a queue is that one is for
// the caller to say.
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
  // A queue has become busy, and is watched from now on, if there is a place for it: that of one
  // that is idle.
  void begin(Queue& queue, Instant now);
  // It goes. REQUIRES: idle.
  void end(Queue& queue);
  void end_all() { waits_.assign(waits_.size(), {}); }

  // ---- of a queue that is watched ----

  // Its length must not change while it is first, unless what was before has been counted.
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
  }
  void count(Queue& queue, Order order, Instant now) {
    QueueWait& wait = wait_of(queue);
    wait.counted = add_delays(queue, order, now, wait.delays);
  }
  // The same for one that is first and has no root to wait for, in few steps.
  void count_first(Queue& queue, Instant now);

  // ---- of the first in order ----

  void first_since(Head head, Instant now) { first_since_[index(head)] = now; }
  // The root cannot pay for it before then.
  void root_refused(Instant now, Instant until) {
    root_refused_ = std::min(root_refused_, now);
    root_until_ = until;
  }
  void root_paid() { root_refused_ = kNever; }

  // Of every queue that is watched, up to now: visit(queue, waiting, begun, delays).
  template <class OrderOf, class Visit>
  void visit(Instant now, OrderOf order_of, Visit visit) const {
    for (const QueueWait& wait : waits_) {
      if (wait.queue == nullptr) continue;
      DelaySums delays = wait.delays;
      add_delays(*wait.queue, order_of(*wait.queue), now, delays);
      visit(*wait.queue, static_cast<std::uint32_t>(wait.length), wait.begun, delays);
    }
  }

 private:
  // Lent to a queue when it gets busy, and to another once it is idle and many come.
  struct QueueWait {
    std::uint64_t stood(Instant at) const { return base + length * ns_of(at); }

    Queue* queue = nullptr;
    std::uint64_t base = 0;
    std::uint64_t length = 0;   // requests in the queue
    std::uint64_t counted = 0;  // of what they stood, in `delays`
    DelaySums delays{};
    Instant begun{};
  };

  static std::uint64_t ns_of(Instant at) {
    return static_cast<std::uint64_t>(at.time_since_epoch().count());
  }
  QueueWait& wait_of(const Queue& queue) { return waits_[queue.watch - 1U]; }
  const QueueWait& wait_of(const Queue& queue) const { return waits_[queue.watch - 1U]; }
  std::uint64_t add_delays(const Queue& queue, Order order, Instant now, DelaySums& sums) const;

  std::vector<QueueWait> waits_;
  std::size_t next_ = 0;
  std::array<Instant, 2> first_since_{};  // by head
  Instant root_refused_ = kNever;         // the root could not pay for who is first
  Instant root_until_ = kNever;           // and could not before
};

}  // namespace weir::tbf
