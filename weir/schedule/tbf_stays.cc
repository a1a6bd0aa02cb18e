// SPDX-License-Identifier: Apache-2.0
//
// Why requests of a Tbf waited, and what its classes are, for whoever looks at it. A queue's time
// is counted before its place or its length changes, so its place says what the time was spent on.
#include <algorithm>
#include <utility>

#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_parts.h"

namespace weir {

std::string_view delay_name(Delay delay) {
  static constexpr std::array<std::string_view, kDelays> kNames = {"limit", "share", "root", "slot",
                                                                   "order"};
  return kNames[static_cast<std::size_t>(delay)];
}

// Looks at one place: whoever is busy keeps it, and the newcomer goes without until next time.
void Tbf::begin_stay(Queue& queue, Instant now) {
  if (queue.stay != 0 || stays_.empty()) return;
  const std::size_t place = next_stay_;
  Stay& stay = stays_[place];
  next_stay_ = next_stay_ + 1 == stays_.size() ? 0 : next_stay_ + 1;
  if (stay.length != 0) return;
  if (stay.queue != nullptr) stay.queue->stay = 0;
  stay = {.queue = &queue, .begun = now};
  queue.stay = static_cast<std::uint16_t>(place + 1);
}

// REQUIRES: idle.
void Tbf::end_stay(Queue& queue) {
  if (queue.stay == 0) return;
  stay_of(queue) = {};
  queue.stay = 0;
}

// Adds what was not counted yet, by where the queue stands, and gives what is counted then.
std::uint64_t Tbf::add_delays(const Queue& queue, Instant now, DelaySums& sums) const {
  const Stay& stay = stay_of(queue);
  const std::uint64_t all = stay.stood(now);
  // Nothing has passed, or time has stepped back.
  if (static_cast<std::int64_t>(all - stay.counted) <= 0) return stay.counted;
  const auto add = [&](Delay delay, std::uint64_t from, std::uint64_t to) {
    sums[static_cast<std::size_t>(delay)] += to - from;
  };
  if (queue.place == Queue::Place::kFirst || queue.place == Queue::Place::kBehind) {
    const Share* const share = queue.share();
    const bool lacks_share = share != nullptr && queue.at == &share->bucket;
    add(lacks_share ? Delay::kShare : Delay::kLimit, stay.counted, all);
    return all;
  }
  const bool is_first =
      queue.place == Queue::Place::kReady && heaps_->ready[index(queue.head)].peek() == &queue;
  if (!is_first) {
    add(Delay::kOrder, stay.counted, all);
    return all;
  }
  // Its length has been the same since it became first, or since it was last counted.
  const auto stood = [&](Instant at, std::uint64_t least) {
    if (at >= now) return all;
    const std::uint64_t then = stay.stood(at);
    return static_cast<std::int64_t>(then - least) < 0 ? least : then;
  };
  const std::uint64_t first = stood(top_since_[index(queue.head)], stay.counted);
  const std::uint64_t refused = stood(root_refused_, first);
  const std::uint64_t paid = stood(root_until_, refused);
  add(Delay::kOrder, stay.counted, first);
  add(Delay::kSlot, first, refused);
  add(Delay::kRoot, refused, paid);
  add(Delay::kSlot, paid, all);
  return all;
}

void Tbf::count_stay(Queue& queue, Instant now) {
  if (queue.stay == 0) return;
  Stay& stay = stay_of(queue);
  stay.counted = add_delays(queue, now, stay.delays);
}

// The same for one that is first in order, in few steps where there is no root.
// REQUIRES: it is watched.
void Tbf::count_first(Queue& queue, Instant now) {
  if (root_shape_) return count_stay(queue, now);
  Stay& stay = stay_of(queue);
  const std::uint64_t all = stay.stood(now);
  if (static_cast<std::int64_t>(all - stay.counted) <= 0) return;
  std::uint64_t first = stay.stood(top_since_[index(queue.head)]);
  if (static_cast<std::int64_t>(first - stay.counted) < 0) first = stay.counted;
  stay.delays[static_cast<std::size_t>(Delay::kOrder)] += first - stay.counted;
  stay.delays[static_cast<std::size_t>(Delay::kSlot)] += all - first;
  stay.counted = all;
}

void Tbf::visit_stays(Instant now, const std::function<void(const StayView&)>& visit) const {
  for (const Stay& stay : stays_) {
    if (stay.queue == nullptr) continue;
    StayView view{.key = attributes_of(*stay.queue),
                  .head = stay.queue->head,
                  .waiting = static_cast<std::uint32_t>(stay.length),
                  .begun = stay.begun,
                  .delays = stay.delays};
    add_delays(*stay.queue, now, view.delays);
    visit(view);
  }
}

std::optional<std::size_t> Tbf::visit_classes(
    std::size_t from, std::size_t count, Instant now,
    const std::function<void(const ClassView&)>& visit) const {
  const auto show = [&](Class& used, const Attributes& key, bool is_overflow) {
    const Rule* const rule = used.state()->listed[used.is_listed[0] ? 0 : 1];
    const Shapes& shapes = used.pace->shapes;
    ClassView view{.rule = *rule,
                   .key = key,
                   .is_overflow = is_overflow,
                   .ops = shapes.ops,
                   .bytes = shapes.bytes,
                   .totals = used.totals};
    if (shapes.ops) view.ops_level = used.main.tokens.level(*shapes.ops, now);
    if (shapes.bytes) {
      const Bucket& bucket = shapes.ops ? *used.second : used.main;
      view.bytes_level = bucket.tokens.level(*shapes.bytes, now);
    }
    visit(view);
  };
  const std::size_t own = slab_->size();
  const std::size_t all = own + lone_order_.size();
  const std::size_t end = std::min(from + count, all);
  for (std::size_t at = from; at < end; ++at) {
    if (at >= own) {
      LoneClass& lone = *lone_order_[at - own];
      show(lone, lone.by, lone.by == Attributes{}.only({}) && !lone.state()->by.empty());
      continue;
    }
    Queue& queue = slab_->at(static_cast<std::uint32_t>(at));
    if (!queue.own.is_vacant()) show(queue.own, attributes_of(queue), false);
  }
  if (end == all) return std::nullopt;
  return end;
}

}  // namespace weir
