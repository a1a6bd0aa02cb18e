// SPDX-License-Identifier: Apache-2.0
//
// Why requests of a Tbf waited, and what its classes are, for whoever looks at it. A queue's time is
// counted before its place or its length changes, so its place says what the time was spent on.
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

Tbf::Stay* Tbf::stay_of(const Queue& queue) const {
  if (queue.stay == 0) return nullptr;
  const Stay& stay = stays_[queue.stay - 1U];
  return stay.queue == &queue ? const_cast<Stay*>(&stay) : nullptr;
}

// Looks at one place: whoever is busy keeps it, and the newcomer goes without until next time.
void Tbf::begin_stay(Queue& queue, Instant now) {
  if (Stay* const had = stay_of(queue)) {
    had->since = now;
    return;
  }
  const std::size_t place = next_stay_;
  next_stay_ = (next_stay_ + 1) % kStays;
  if (stays_[place].length != 0) return;
  stays_[place] = {.queue = &queue, .begun = now, .since = now};
  queue.stay = static_cast<std::uint16_t>(place + 1);
}

// What has passed since it was last counted, by where the queue stands.
void Tbf::add_delays(Queue& queue, const Stay& stay, Instant now, DelaySums& sums) const {
  if (now <= stay.since) return;
  const auto add = [&](Delay delay, Instant from, Instant to) {
    if (to <= from) return;
    sums[static_cast<std::size_t>(delay)] +=
        stay.length * static_cast<std::uint64_t>((to - from).count());
  };
  switch (queue.place) {
    case Queue::Place::kFirst:
    case Queue::Place::kBehind: {
      const Share* const share = queue.share();
      const bool lacks_share = share != nullptr && queue.at == &share->bucket;
      return add(lacks_share ? Delay::kShare : Delay::kLimit, stay.since, now);
    }
    case Queue::Place::kReady:
      break;
    case Queue::Place::kIdle:
    case Queue::Place::kSpare:
      return add(Delay::kOrder, stay.since, now);
  }
  if (heaps_->ready[index(queue.head)].peek() != &queue) {
    return add(Delay::kOrder, stay.since, now);
  }
  const Instant first = std::clamp(top_since_[index(queue.head)], stay.since, now);
  const Instant refused = std::clamp(root_refused_, first, now);
  const Instant paid = std::clamp(root_until_, refused, now);
  add(Delay::kOrder, stay.since, first);
  add(Delay::kSlot, first, refused);
  add(Delay::kRoot, refused, paid);
  add(Delay::kSlot, paid, now);
}

void Tbf::count_stay(Queue& queue, Instant now) {
  Stay* const stay = stay_of(queue);
  if (stay == nullptr) return;
  add_delays(queue, *stay, now, stay->delays);
  stay->since = std::max(stay->since, now);
}

// One that comes from another queue has left its time there.
void Tbf::arrive(Queue& queue, const Request& request, Instant now) {
  Stay* const stay = stay_of(queue);
  if (stay == nullptr) return;
  count_stay(queue, now);
  ++stay->length;
  if (request.admitted_at() < now) stay->waited_ns -= stay->stood(request.admitted_at(), now);
}

void Tbf::depart(Queue& queue, const Request& request, Instant now) {
  Stay* const stay = stay_of(queue);
  if (stay == nullptr) return;
  count_stay(queue, now);
  --stay->length;
  stay->waited_ns += stay->stood(request.admitted_at(), now);
}

void Tbf::visit_stays(Instant now, const std::function<void(const StayView&)>& visit) const {
  for (const Stay& stay : stays_) {
    if (stay.queue == nullptr || stay_of(*stay.queue) != &stay) continue;
    auto& queue = const_cast<Queue&>(*stay.queue);
    StayView view{.key = attributes_of(queue),
                  .head = queue.head,
                  .waiting = stay.length,
                  .begun = stay.begun,
                  .waited_ns = stay.waited_ns,
                  .delays = stay.delays};
    add_delays(queue, stay, now, view.delays);
    visit(view);
  }
}

std::optional<std::size_t> Tbf::visit_classes(
    std::size_t from, std::size_t count, Instant now,
    const std::function<void(const ClassView&)>& visit) const {
  const auto show = [&](Class& used, const Attributes& key, bool is_overflow) {
    const Rule* const rule = used.state->listed[used.is_listed[0] ? 0 : 1];
    const Shapes& shapes = used.state->shapes;
    ClassView view{.rule = *rule, .key = key, .is_overflow = is_overflow, .ops = shapes.ops,
                   .bytes = shapes.bytes, .totals = used.totals};
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
      show(lone, lone.by, lone.by == Attributes{}.only({}) && !lone.state->by.empty());
      continue;
    }
    Queue& queue = slab_->at(static_cast<std::uint32_t>(at));
    if (!queue.own.is_vacant()) show(queue.own, attributes_of(queue), false);
  }
  if (end == all) return std::nullopt;
  return end;
}

}  // namespace weir
