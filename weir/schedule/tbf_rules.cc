// SPDX-License-Identifier: Apache-2.0
//
// What a rule command does to a Tbf: lists, states, balances, and the queues it concerns.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "weir/base/assert.h"
#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {
namespace {

// A realtime rule keeps what it did not use for so long, and no longer.
constexpr Nanoseconds kRealtimeCredit = std::chrono::seconds{1};
// Of a limit of the cluster, while no slice of it has come: the least there is (kLeastSlice).
constexpr Nanoseconds kSliceUnit = std::chrono::seconds{1000};
constexpr Rate kNoSlice{Tokens{1}, kSliceUnit};

// The part of a limit's depth that goes with a slice of it, rounded up.
Tokens depth_of_slice(Tokens depth, Rate slice, Rate limit) {
  using Wide = unsigned __int128;
  const std::uint64_t whole = std::max<std::uint64_t>(tokens_in(limit, kSliceUnit).count(), 1);
  const std::uint64_t part = std::min(tokens_in(slice, kSliceUnit).count(), whole);
  const Wide share = (Wide{depth.count()} * part + whole - 1) / whole;
  return Tokens{std::max<std::uint64_t>(static_cast<std::uint64_t>(share), 1)};
}

}  // namespace

Tbf::Shapes Tbf::shapes_of(const Rule& rule, const Slice& slice) const {
  const Limits& limits = rule.limits();
  Shapes shapes{.cost = limits.cost, .realtime = limits.realtime, .ops = {}, .bytes = {}};
  if (rule.is_default() && !default_limits_) return shapes;
  shapes.is_sliced = limits.scope == Scope::kCluster && options_.in_cluster;
  const auto shape_of = [&](Rate limit, const std::optional<Rate>& part,
                            const std::optional<Tokens>& burst, Tokens depth_min,
                            Nanoseconds time) {
    if (!shapes.is_sliced) {
      return BucketShape(limit, burst.value_or(std::max(depth_min, tokens_in(limit, time))));
    }
    const Rate rate = part.value_or(kNoSlice);
    if (burst) return BucketShape(rate, depth_of_slice(*burst, rate, limit));
    return BucketShape(rate, Tokens{1}, std::min(time, BucketShape::kSlackMax));
  };
  if (const std::uint32_t rate = limits.rate_in_force(); rate > 0) {
    const Nanoseconds time = limits.realtime ? kRealtimeCredit : options_.depth_time;
    shapes.ops.emplace(
        shape_of(Rate::per_second(rate), slice.ops, limits.burst_ops, options_.depth_min, time));
  }
  if (limits.bps) {
    std::optional<Tokens> burst;
    if (limits.burst_bytes) burst = Tokens{limits.burst_bytes->count()};
    shapes.bytes.emplace(shape_of(*limits.bps, slice.bytes, burst,
                                  Tokens{options_.byte_depth_min.count()}, options_.depth_time));
  }
  shapes.is_ops_only = shapes.ops && !shapes.bytes;
  return shapes;
}

// Refunds of what was paid before are lost from now on.
void Tbf::change_payers() {
  ++payers_;
  simple_receipt_ = Receipt(payers_, Receipt::kLimits).word();
}

Tbf::RuleState& Tbf::make_state(const Rule& rule, Head head, Instant now) {
  auto made = std::make_unique<RuleState>();
  RuleState& state = *made;
  states_.emplace(&state, std::move(made));
  state.pace.state = &state;
  state.pace.shapes = shapes_of(rule, state.pace.slice);
  state.by = rule.by();
  state.listed[index(head)] = &rule;
  state_of_[&rule] = &state;
  state.rules = 1;
  state.started = now;
  ++states_made_;
  return state;
}

void Tbf::after_start(const RuleCommand& command, Instant now) {
  RuleState* common = nullptr;
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const Rule& rule = *rules(head).find(command.name);
    key_ = key_ | rule.by();
    if (common == nullptr) {
      common = &make_state(rule, head, now);
    } else {
      state_of_[&rule] = common;
      common->listed[index(head)] = &rule;
      ++common->rules;
    }
  }
}

void Tbf::before_stop(const RuleCommand& command) {
  for (const Head head : kHeads) {
    const Rule* const rule = names(command.heads, head) ? rules(head).find(command.name) : nullptr;
    if (rule == nullptr) continue;
    const auto found = state_of_.find(rule);
    RuleState& state = *found->second;
    state_of_.erase(found);
    --state.rules;
    forget_if_unused(state);
  }
}

void Tbf::after_change(const RuleCommand& command, Instant now) {
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const Rule& rule = *rules(head).find(command.name);
    if (rule.is_default()) default_limits_ = true;
    key_ = key_ | rule.by();
    RuleState*& state = state_of_.at(&rule);
    if (command.heads != Heads::kBoth && state->rules == 2) {
      // A change for one head alone ends what the two had in common.
      --state->rules;
      state = &make_state(rule, head, now);
    } else {
      each_pace(*state, [&](Pace& pace) {
        const Shapes wanted = shapes_of(rule, pace.slice);
        if (wanted != pace.shapes || rule.by() != state->by) pace.next = wanted;
      });
      state->by = rule.by();
    }
  }
}

// Whether the queue has got other classes, or one of its classes other limits.
bool Tbf::is_affected(Queue& queue) {
  bool affected = false;
  queue.each_class([&](const Class& used) { affected = affected || used.pace->next.has_value(); });
  if (affected || queue.binding == bindings_) return affected;
  const Attributes attributes = index_->attributes_of(queue);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Rule* const rule =
        rules(queue.head).has_layer(layer) ? rules(queue.head).match(attributes, layer) : nullptr;
    const RuleState* const wanted = rule == nullptr ? nullptr : state_of_.at(rule);
    const Class* const has = layer == 0               ? queue.limits
                             : queue.extra != nullptr ? queue.extra->upper[layer - 1]
                                                      : nullptr;
    if (wanted != (has == nullptr ? nullptr : has->state())) return true;
  }
  return false;
}

void Tbf::reshape_changed(Instant now) {
  bool any = false;
  const auto each = [&](auto visit) {
    for (const auto& [key, state] : states_) each_pace(*state, visit);
  };
  each([&](const Pace& pace) { any = any || pace.next.has_value(); });
  if (!any) return;
  each_live_class([&](Class& used) {
    if (used.pace->next) used.reshape(used.pace->shapes, *used.pace->next, now);
  });
  each([&](Pace& pace) {
    if (!pace.next) return;
    const Shapes before = std::exchange(pace.shapes, *std::exchange(pace.next, std::nullopt));
    if (!before.takes_alike(pace.shapes)) change_payers();
  });
}

// Classes of rules that are in no list any more.
void Tbf::forget_stopped() {
  for (auto it = heaps_->unused.begin(); it != heaps_->unused.end();) {
    LoneClass& candidate = *it;
    if (candidate.state()->rules > 0) {
      ++it;
      continue;
    }
    it = heaps_->unused.erase(it);
    forget(candidate);
  }
}

// Queues with requests that are affected are bound and entered anew, the others stay where they
// stand; idle ones are bound when a request comes.
void Tbf::return_changed(Instant now) {
  std::vector<Queue*> affected;
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) {
      if (is_affected(queue)) {
        affected.push_back(&queue);
      } else {
        queue.binding = bindings_;
      }
    }
  }
  for (Queue* const queue : affected) leave(*queue, now);
  reshape_changed(now);
  for (Queue* const queue : affected) {
    if (queue->binding != bindings_) bind(*queue, now);
  }
  for (Queue* const queue : affected) enter(*queue, now);
  forget_stopped();
}

// Other fields than before tell queues apart: all requests come again, in order, to new queues.
void Tbf::return_all(Instant now) {
  std::vector<std::pair<Request*, Head>> requests;
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) leave(queue, now);
    while (!busy.empty()) {
      Queue& queue = busy.front();
      while (queue.has_requests()) {
        Request& first = queue.requests.front();
        queue.requests.erase(first);
        part(queue, first);
        requests.emplace_back(&first, queue.head);
      }
      become_idle(queue, now);
    }
  }
  std::sort(requests.begin(), requests.end(),
            [](const auto& a, const auto& b) { return a.first->seat_turn < b.first->seat_turn; });
  reshape_changed(now);
  move_classes_out();
  make_table();
  forget_stopped();
  for (const auto& [request, head] : requests) admit(*request, head, now);
}

// Ends all queues; the classes that live in them stand alone from now on and keep their balances.
// REQUIRES: all queues are idle.
void Tbf::move_classes_out() {
  for (Queue& queue : heaps_->idle) unbind(queue);
  for (Queue& queue : heaps_->idle) {
    if (queue.own.is_vacant()) continue;
    auto lone = std::make_unique<LoneClass>();
    static_cast<Class&>(*lone) = std::move(queue.own);
    queue.own.pace = nullptr;
    lone->is_lone = true;
    lone->by = index_->attributes_of(queue);
    lone->open_to_others();
    heaps_->unused.push_back(*lone);
    lone->place = lone_order_.size();
    lone_order_.push_back(lone.get());
    lone_classes_.emplace(ClassKey{lone->state(), lone->by}, std::move(lone));
  }
  heaps_->idle.clear();
}

Result<void> Tbf::apply(const RuleCommand& command, Instant now) {
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    if (auto checked = rules(head).check(command); !checked) return checked;
  }
  const FieldSet key_before = key_;
  const auto generations = [&] {
    return rules(Head::kRegular).generation() + rules(Head::kHigh).generation() + states_made_;
  };
  const std::uint64_t before = generations();
  if (command.verb == Verb::kStop) before_stop(command);
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const auto applied = lists_[index(head)]->apply(command);
    WEIR_ASSERT(applied.has_value());
  }
  if (command.verb == Verb::kStart) after_start(command, now);
  if (command.verb == Verb::kChange) after_change(command, now);
  if (generations() != before) {
    ++bindings_;
    change_payers();
  }
  if (key_ == key_before) {
    return_changed(now);
  } else {
    return_all(now);
  }
  return {};
}

}  // namespace weir
