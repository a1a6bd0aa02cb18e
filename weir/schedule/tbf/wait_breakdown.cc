// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/wait_breakdown.h"

#include <algorithm>
#include <string_view>

#include "weir/schedule/tbf/tree_queues.h"

namespace weir {

std::string_view delay_name(Delay delay) {
  static constexpr std::array<std::string_view, kDelays> kNames = {"limit", "share", "root", "slot",
                                                                   "order"};
  return kNames[static_cast<std::size_t>(delay)];
}

}  // namespace weir

namespace weir::tbf {

// Checks one record: a busy queue keeps it, and the new one is not watched until the next time.
void WaitBreakdown::begin(Queue& queue, Instant now) {
  if (queue.watch != 0 || waits_.empty()) return;
  const std::size_t place = next_;
  QueueWait& wait = waits_[place];
  next_ = next_ + 1 == waits_.size() ? 0 : next_ + 1;
  if (wait.length != 0) return;
  if (wait.queue != nullptr) wait.queue->watch = 0;
  wait = {.queue = &queue, .begun = now};
  queue.watch = static_cast<std::uint16_t>(place + 1);
}

void WaitBreakdown::end(Queue& queue) {
  if (queue.watch == 0) return;
  wait_of(queue) = {};
  queue.watch = 0;
}

// Adds the time not counted yet, by the place of the queue, and returns the total.
std::uint64_t WaitBreakdown::add_delays(const Queue& queue, Order order, Instant now,
                                        DelaySums& sums) const {
  const QueueWait& wait = wait_of(queue);
  const std::uint64_t all = wait.stood(now);
  // No time has passed, or time stepped back.
  if (static_cast<std::int64_t>(all - wait.counted) <= 0) return wait.counted;
  const auto add = [&](Delay delay, std::uint64_t from, std::uint64_t to) {
    sums[static_cast<std::size_t>(delay)] += to - from;
  };
  if (queue.place == Queue::Place::kFirst || queue.place == Queue::Place::kBehind) {
    const Share* const share = queue.share();
    const bool lacks_share = share != nullptr && queue.at == &share->bucket;
    add(lacks_share ? Delay::kShare : Delay::kLimit, wait.counted, all);
    return all;
  }
  // Its length has been the same since it was last counted.
  std::uint64_t counted = wait.counted;
  if (queue.place == Queue::Place::kTree) {
    counted = shared_until(queue, now);
    add(Delay::kShare, wait.counted, counted);
  } else if (queue.place != Queue::Place::kReady) {
    order = Order::kLater;
  }
  if (order == Order::kLater) {
    add(Delay::kOrder, counted, all);
    return all;
  }
  // Its length has been the same since it became first, or since it was last counted.
  const auto stood = [&](Instant at, std::uint64_t least) {
    if (at >= now) return all;
    const std::uint64_t then = wait.stood(at);
    return static_cast<std::int64_t>(then - least) < 0 ? least : then;
  };
  const std::uint64_t first = stood(first_since_[index(queue.head)], counted);
  const std::uint64_t refused = stood(root_refused_, first);
  const std::uint64_t paid = stood(root_until_, refused);
  add(Delay::kOrder, counted, first);
  add(Delay::kSlot, first, refused);
  add(Delay::kRoot, refused, paid);
  add(Delay::kSlot, paid, all);
  return all;
}

// In a tree, all nodes above a queue have paid since the last of them could.
std::uint64_t WaitBreakdown::shared_until(const Queue& queue, Instant now) const {
  const QueueWait& wait = wait_of(queue);
  const Instant at = std::min(now, TreeQueues::pays_at(*queue.extra->leaf));
  if (at <= wait.begun) return wait.counted;
  const std::uint64_t until = wait.stood(at);
  return static_cast<std::int64_t>(until - wait.counted) < 0 ? wait.counted : until;
}

void WaitBreakdown::count_first(Queue& queue, Instant now) {
  QueueWait& wait = wait_of(queue);
  const std::uint64_t all = wait.stood(now);
  if (static_cast<std::int64_t>(all - wait.counted) <= 0) return;
  std::uint64_t first = wait.stood(first_since_[index(queue.head)]);
  if (static_cast<std::int64_t>(first - wait.counted) < 0) first = wait.counted;
  wait.delays[static_cast<std::size_t>(Delay::kOrder)] += first - wait.counted;
  wait.delays[static_cast<std::size_t>(Delay::kSlot)] += all - first;
  wait.counted = all;
}

}  // namespace weir::tbf
