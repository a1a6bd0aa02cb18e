// SPDX-License-Identifier: Apache-2.0
//
// Groups of clients in a Tbf: who is preferred, and where those stand that are not.
#include <utility>
#include <vector>

#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {

void Tbf::prefer(std::optional<std::uint32_t> group, Instant now) {
  if (!groups_.prefer(group)) return;
  const auto is_set_back = [&](const Queue& queue) {
    return groups_.is_set_back(queue.extra->group, queue.head);
  };
  std::vector<Queue*> moved;
  for (Queue& queue : heaps_->busy[index(Head::kRegular)]) {
    if (queue.extra->is_later != is_set_back(queue)) moved.push_back(&queue);
  }
  for (Queue* const queue : moved) leave(*queue, now);
  for (Queue* const queue : moved) queue->extra->is_later = is_set_back(*queue);
  for (Queue* const queue : moved) enter(*queue, now);
}

void Tbf::push_later(Queue& queue) {
  queue.place = Queue::Place::kLater;
  heaps_->later.push(queue, queue.tag, queue.turn());
}

// Those of the preferred group stand before all others.
std::uint64_t Tbf::crowd_key(const Queue& queue) {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;
  return queue.is_later() ? queue.tag | kLast : queue.tag;
}

bool Tbf::is_before_in_crowd(const Queue& a, const Queue& b) {
  return a.is_later() != b.is_later() ? b.is_later() : is_before(a, b);
}

// One that was let go here, but whose group is not preferred, does not hold up one whose group is:
// it waits again, behind the one that comes. Whether there was such a one.
bool Tbf::make_way(Bucket& bucket, const Queue& queue, Instant now) {
  Crowd* const crowd = bucket.crowd.get();
  if (crowd == nullptr || crowd->ahead == nullptr) return false;
  if (!crowd->ahead->is_later() || queue.is_later()) return false;
  Queue& ahead = *std::exchange(crowd->ahead, nullptr);
  count_stay(ahead, now);
  heaps_->later.erase(ahead);
  ahead.place = Queue::Place::kBehind;
  crowd->waiters.push(ahead, crowd_key(ahead), ahead.turn());
  return true;
}

// The first of those whose group is not preferred. REQUIRES: none is ready whose group is.
Pick Tbf::serve_later(Instant now) {
  auto& later = heaps_->later;
  while (Queue* const top = later.peek()) {
    Queue& queue = *top;
    if (const std::uint64_t tag = owner_tag(queue); queue.tag < tag && queue.tag != 0) {
      count_stay(queue, now);
      queue.tag = tag;
      later.replace_top(tag, queue.turn());
      continue;
    }
    Request& first = queue.requests.front();
    if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
    if (serve_any(queue, first, now)) return {&first, kNever};
  }
  return {nullptr, heaps_->wake.empty() ? kNever : heaps_->wake.top_key()};
}

}  // namespace weir
