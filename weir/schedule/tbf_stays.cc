// SPDX-License-Identifier: Apache-2.0
//
// Why requests of a Tbf waited, and what its classes are, for whoever looks at it.
#include <algorithm>
#include <utility>

#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {

void Tbf::visit_stays(Instant now, const std::function<void(const StayView&)>& visit) const {
  waits_.visit(
      now, [this](const Queue& queue) { return order_of(queue); },
      [&](Queue& queue, std::uint32_t waiting, Instant begun, const DelaySums& delays) {
        visit({.key = index_->attributes_of(queue),
               .head = queue.head,
               .waiting = waiting,
               .begun = begun,
               .delays = delays});
      });
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
  const std::size_t own = index_->places();
  const std::size_t all = own + lone_order_.size();
  const std::size_t end = std::min(from + count, all);
  for (std::size_t at = from; at < end; ++at) {
    if (at >= own) {
      LoneClass& lone = *lone_order_[at - own];
      show(lone, lone.by, lone.by == Attributes{}.only({}) && !lone.state()->by.empty());
      continue;
    }
    Queue& queue = index_->at(static_cast<std::uint32_t>(at));
    if (!queue.own.is_vacant()) show(queue.own, index_->attributes_of(queue), false);
  }
  if (end == all) return std::nullopt;
  return end;
}

}  // namespace weir
