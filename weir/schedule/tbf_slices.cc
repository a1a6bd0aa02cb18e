// SPDX-License-Identifier: Apache-2.0
//
// Limits of a whole cluster, of which this server has slices: what they are set to, what classes
// could use of them, and how they hold while the server stops.
#include <algorithm>
#include <memory>
#include <vector>

#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {

void Tbf::set_slices(std::span<const ClassSlice> slices, Instant now) {
  bool is_changed = false;
  for (const ClassSlice& one : slices) {
    for (const Head head : kHeads) {
      const Rule* const rule = rules(head).find(one.rule);
      if (rule == nullptr || rule->limits().scope != Scope::kCluster) continue;
      RuleState& state = *state_of_.at(rule);
      Pace* const pace = one.key ? own_pace(state, *one.key) : &state.pace;
      if (pace == nullptr || pace->slice == one.slice) continue;
      pace->slice = one.slice;
      const Shapes wanted = shapes_of(*rule, one.slice);
      if (wanted == pace->shapes) {
        pace->next.reset();
      } else {
        pace->next = wanted;
        is_changed = true;
      }
    }
  }
  if (is_changed) return_changed(now);
}

// Of the class of this key under a rule; made for it if it has none. nullptr: no such class.
Tbf::Pace* Tbf::own_pace(RuleState& state, const Attributes& key) {
  Queue* const host =
      state.by == key_ ? index_->find(PackedKey(key, key_), Head::kRegular) : nullptr;
  Class* const used = find_class(state, key, host);
  if (used == nullptr) return nullptr;
  if (used->pace == &state.pace) {
    auto made = std::make_unique<Pace>();
    made->shapes = state.pace.shapes;
    made->state = &state;
    made->key = key;
    used->pace = made.get();
    state.own[key] = std::move(made);
  }
  return used->pace;
}

std::vector<ClassLoad> Tbf::cluster_loads(Nanoseconds time) const {
  std::vector<ClassLoad> loads;
  absl::flat_hash_map<const Class*, std::size_t> place_of;
  const auto rule_of = [](const Class& used) {
    return used.state()->listed[used.is_listed[0] ? 0 : 1];
  };
  const auto add = [&](const Class& used, const Attributes& key, bool is_overflow) {
    if (used.state()->rules == 0) return;
    const Rule* const rule = rule_of(used);
    if (rule->limits().scope != Scope::kCluster) return;
    place_of.emplace(&used, loads.size());
    loads.push_back(
        {.rule = rule->name(),
         .key = key,
         .is_overflow = is_overflow,
         .served = Backlog{used.totals.served, used.totals.bytes}.cost(rule->limits().cost).count(),
         .served_bytes = used.totals.bytes});
  };
  for (std::uint32_t i = 0; i < index_->places(); ++i) {
    Queue& queue = index_->at(i);
    if (!queue.own.is_vacant()) add(queue.own, index_->attributes_of(queue), false);
  }
  for (const LoneClass* const lone : lone_order_) {
    add(*lone, lone->by, lone->by == Attributes{}.only({}) && !lone->state()->by.empty());
  }
  if (loads.empty()) return loads;
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) {
      queue.each_class([&](const Class& used) {
        const auto found = place_of.find(&used);
        if (found != place_of.end())
          count_waiting(queue, *rule_of(used), time, loads[found->second]);
      });
    }
  }
  return loads;
}

void Tbf::count_waiting(const Queue& queue, const Rule& rule, Nanoseconds time, ClassLoad& load) {
  const Limits& limits = rule.limits();
  const std::uint32_t rate = limits.rate_in_force();
  const std::uint64_t ops = rate == 0 ? 0 : tokens_in(Rate::per_second(rate), time).count();
  const std::uint64_t bytes = limits.bps ? tokens_in(*limits.bps, time).count() : 0;
  for (const Request* request = &queue.requests.front(); request != nullptr;
       request = queue.requests.behind(*request)) {
    const bool is_enough =
        (rate == 0 || load.waiting > ops) && (!limits.bps || load.waiting_bytes > bytes);
    if (is_enough) return;
    load.waiting += limits.cost.of(request->bytes).count();
    load.waiting_bytes += request->bytes.count();
  }
}

// When all limits of the cluster that it is under can pay; Instant::min() if there are none.
Instant Tbf::slices_ready_at(Queue& queue) {
  Instant ready = Instant::min();
  const Bytes size = queue.requests.front().bytes;
  queue.each_class([&](Class& used) {
    if (!used.pace->shapes.is_sliced) return;
    used.each_bucket(size, [&](const Bucket& bucket, const BucketShape& shape, Tokens cost) {
      ready = std::max(ready, bucket.tokens.ready_at(cost, shape));
    });
  });
  return ready;
}

// O(queues with requests), at the end of a server only.
Pick Tbf::finish(Head head, Instant now) {
  Instant next = kNever;
  for (Queue& queue : heaps_->busy[index(head)]) {
    const Instant at = slices_ready_at(queue);
    if (at > now) {
      next = std::min(next, at);
      continue;
    }
    Request& first = queue.requests.front();
    queue.each_class([&](Class& used) {
      if (!used.pace->shapes.is_sliced) return;
      used.each_bucket(first.bytes, [&](Bucket& bucket, const BucketShape& shape, Tokens cost) {
        bucket.tokens.take(cost, shape, now);
      });
    });
    const Receipt paid_for(payers_, Receipt::kSlices);
    leave(queue, now);
    take_out(queue, first, now);
    first.seat_turn = paid_for.word();
    return {&first, kNever};
  }
  return {nullptr, next};
}

}  // namespace weir
