// SPDX-License-Identifier: Apache-2.0
//
// The order of the queues that have requests. Each is in exactly one place (Queue::Place):
//
//   ready   it can pay; by tag, a heap for each head
//   later   it can pay, but another group of clients is preferred; by tag
//   tree    within its limits, under shares in more than one level (TreeQueues)
//   spare   it has neither share nor limit; by arrival
//   first   it waits for a bucket; by the time it can pay, in one heap for all buckets
//   behind  it waits behind another queue at the same bucket (BucketWaiters), by tag
//
//   enter()  --lacks tokens--> first or behind --wake()--> ready or later
//        '---can pay---------> ready, later or spare
//   leave()  removes it from its place; the next queue at its bucket moves up
//
// A queue with a reservation whose limits can pay is also offered to it (reserves.h), and may run
// from any of these places.
//
// While a queue waits at a bucket that several queues use, the others wait behind it, and one at a
// time is released: a small request does not overtake a large one, and no queue is woken in vain.
//
// Before a queue changes its place, the time it spent there is added to its WaitBreakdown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "weir/base/heap.h"
#include "weir/base/time.h"
#include "weir/schedule/root.h"
#include "weir/schedule/tbf/reserves.h"
#include "weir/schedule/tbf/shares.h"
#include "weir/schedule/tbf/tags.h"
#include "weir/schedule/tbf/types.h"
#include "weir/schedule/tbf/wait_breakdown.h"

namespace weir::tbf {

// The limit bucket that is the last to be able to pay for the queue's first request; nullptr: all
// can pay.
Bucket* last_empty_limit(Queue& queue, Instant now);
inline Bucket* empty_limit(Queue& queue, Instant now) {
  return queue.is_unlimited() ? nullptr : last_empty_limit(queue, now);
}
// The same, or otherwise a limit bucket at which another queue waits. REQUIRES: the queue
// waits nowhere.
Bucket* empty_or_occupied_limit(Queue& queue, Instant now);
inline Bucket* lacking_limit(Queue& queue, Instant now) {
  return queue.is_unlimited() ? nullptr : empty_or_occupied_limit(queue, now);
}

class RunQueue {
 public:
  // REQUIRES: the arguments outlive it.
  RunQueue(const RuleOptions& options, Tags& tags, Shares& shares, WaitBreakdown& waits,
           const Root& root);

  // Allocates room for this many queues.
  void reserve(std::size_t queues);

  // REQUIRES: it has requests and is in no place.
  void enter(Queue& queue, Instant now);
  void leave(Queue& queue, Instant now);
  // Makes it wait for this bucket. REQUIRES: it is in no place.
  void wait_at(Bucket& bucket, Queue& queue);
  // Tokens were given to the bucket or taken from it outside the order: the first waiting queue
  // wakes at another time. `queue` is the only one that can wait at a bucket without BucketWaiters.
  void bucket_changed(Bucket& bucket, Queue& queue);

  // ---- which queues may run ----

  // Moves every queue whose bucket can pay now.
  void wake(Instant now) {
    while (!wake_.empty() && wake_.top_key() <= now) release_first(now);
  }
  // When the next bucket can pay; kNever if no queue waits for one.
  Instant next_wake() const { return wake_.empty() ? kNever : wake_.top_key(); }
  // The first in order, or nullptr.
  Queue* ready(Head head) const { return ready_[index(head)].peek(); }
  Queue* later() const { return later_.peek(); }
  Queue* spare(Head head) const { return spare_[index(head)].peek(); }
  // Of queues with a reservation, in whatever place they are.
  Reserves& reserves() { return reserves_; }
  // If another queue has moved their common tag since this one got its place, puts it back in order
  // and returns true. REQUIRES: it is the first of the ready queues, or later.
  bool falls_back(Queue& queue, Instant now) {
    const std::uint64_t tag = tags_.owner_tag(queue);
    if (queue.tag >= tag || queue.tag == 0) [[likely]]
      return false;
    move_back(queue, tag, now);
    return true;
  }

  // The first ready queue has tried to run, or has run, and `next` is its request now. REQUIRES: it
  // is simple (Queue::is_simple).
  void move_first(Queue& queue, const Request& next, Instant now);
  // Whether nothing can hold back the next request of a ready queue that has run: it has no limits,
  // no share that paces it, and no reservation.
  static bool is_free(const Queue& queue) {
    if (queue.place != Queue::Place::kReady || queue.at != nullptr) return false;
    if (!queue.is_unlimited()) return false;
    if (queue.extra == nullptr) return true;
    const Extra& extra = *queue.extra;
    if (extra.reserving != nullptr || extra.is_later) return false;
    return extra.share == nullptr || (extra.share->active && !extra.share->paces());
  }
  // The first ready queue has run, and is placed by its next request. REQUIRES: is_free().
  void keep_first(Queue& queue) {
    queue.tag = tags_.start(queue);
    ready_[index(queue.head)].replace_top(queue.tag, queue.turn());
  }
  // It has no requests left.
  void remove_first(Queue& queue) {
    ready_[index(queue.head)].pop();
    queue.place = Queue::Place::kIdle;
  }

  // Prefetches the first queue, or the request that will probably run next with its limits. With
  // many queues they are spread over memory.
  void prefetch_queue(Head head) const {
    if (const Queue* const queue = ready(head)) queue->prefetch();
  }
  void prefetch_request(Head head) const {
    if (const Queue* const queue = ready(head)) {
      __builtin_prefetch(&queue->requests.front());
      __builtin_prefetch(&queue->limits->pace->shapes);
    }
  }

  // ---- wait times and their causes ----

  WaitBreakdown::Order order_of(const Queue& queue) const {
    const bool is_first =
        queue.place == Queue::Place::kTree ? is_first_in_tree(queue) : ready(queue.head) == &queue;
    return is_first ? WaitBreakdown::Order::kFirst : WaitBreakdown::Order::kLater;
  }
  // A request has arrived at the queue.
  void arrive(Queue& queue, Instant now) {
    if (!WaitBreakdown::watches(queue)) return;
    if (order_of(queue) == WaitBreakdown::Order::kFirst) count_first(queue, now);
    waits_.arrive(queue, now);
  }
  // A request leaves it. REQUIRES: the time until now has been counted.
  void depart(Queue& queue, Instant now) {
    if (WaitBreakdown::watches(queue)) waits_.depart(queue, now);
  }
  void count(Queue& queue, Instant now) {
    if (WaitBreakdown::watches(queue)) waits_.count(queue, order_of(queue), now);
  }
  // The first in order is about to run, and another will be first from now on.
  void end_first(Queue& queue, Instant now) {
    if (WaitBreakdown::watches(queue)) count_first(queue, now);
    waits_.first_since(queue.head, now);
  }

 private:
  bool is_first_in_tree(const Queue& queue) const;
  void move_back(Queue& queue, std::uint64_t tag, Instant now);
  void enter_within_limits(Queue& queue, Instant now);
  void push_ready(Queue& queue, Instant now);
  void push_later(Queue& queue);
  void push_paid(Queue& queue, Instant now);
  void stand_first(Bucket& bucket, Queue& queue);
  void promote(Bucket& bucket);
  void release_first(Instant now);
  static Bucket* blocking_bucket(Queue& queue, const Bucket& except);
  bool yield_to(Bucket& bucket, const Queue& queue, Instant now);
  Instant wake_time(Queue& queue) const;
  Instant share_ready_at(const Queue& queue) const;
  void count_first(Queue& queue, Instant now) {
    if (root_.exists() || queue.place == Queue::Place::kTree) {
      return waits_.count(queue, WaitBreakdown::Order::kFirst, now);
    }
    waits_.count_first(queue, now);
  }

  std::optional<Sharing> sharing_;
  bool is_plain_;  // neither shares nor groups
  Tags& tags_;
  Shares& shares_;
  WaitBreakdown& waits_;
  const Root& root_;
  Reserves reserves_;
  std::array<Heap<Queue, std::uint64_t, &Queue::hook>, 2> ready_;  // by tag
  Heap<Queue, std::uint64_t, &Queue::hook> later_;                 // by tag
  std::array<Heap<Queue, std::uint64_t, &Queue::hook>, 2> spare_;  // by arrival
  Heap<Queue, Instant, &Queue::hook> wake_;  // by the time at which they can pay
};

}  // namespace weir::tbf
