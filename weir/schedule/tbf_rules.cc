// SPDX-License-Identifier: Apache-2.0
//
// What a rule command does to a Tbf: lists, states, balances, and the queues it concerns.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "weir/base/assert.h"
#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_parts.h"

namespace weir {
namespace {

// A realtime rule keeps what it did not use for so long, and no longer.
constexpr Nanoseconds kRealtimeCredit = std::chrono::seconds{1};

// What so many requests of so many bytes took of a bucket of operations; off by the rounding of
// each where a request's size counts.
std::uint64_t tokens_of(const Cost& cost, std::uint64_t requests, std::uint64_t bytes) {
  switch (cost.kind()) {
    case Cost::Kind::kOp:
      break;
    case Cost::Kind::kBytes:
      return std::max(requests, bytes);
    case Cost::Kind::kAffine:
      return std::max(requests, cost.base() * requests + cost.per_kib() * (bytes / 1024));
  }
  return requests;
}

}  // namespace

Tbf::Shapes Tbf::shapes_of(const Rule& rule, const Slice& slice) const {
  const Limits& limits = rule.limits();
  Shapes shapes{.cost = limits.cost, .realtime = limits.realtime, .ops = {}, .bytes = {}};
  if (rule.is_default() && !default_limits_) return shapes;
  const bool is_sliced = limits.scope == Scope::kCluster;
  if (const std::uint32_t rate = limits.rate_in_force(); rate > 0) {
    const Rate whole = Rate::per_second(rate);
    const Rate per_second = is_sliced ? slice.ops.value_or(whole) : whole;
    const Nanoseconds time = limits.realtime ? kRealtimeCredit : options_.depth_time;
    const Tokens depth = std::max(options_.depth_min, tokens_in(per_second, time));
    shapes.ops.emplace(per_second, limits.burst_ops.value_or(depth));
  }
  if (limits.bps) {
    const Rate rate = is_sliced ? slice.bytes.value_or(*limits.bps) : *limits.bps;
    const Tokens depth =
        std::max(Tokens{options_.byte_depth_min.count()}, tokens_in(rate, options_.depth_time));
    shapes.bytes.emplace(rate, limits.burst_bytes ? Tokens{limits.burst_bytes->count()} : depth);
  }
  shapes.is_ops_only = shapes.ops && !shapes.bytes;
  return shapes;
}

void Tbf::set_slice(std::string_view rule, const Slice& slice, Instant now) {
  const ClassSlice one{.rule = rule, .key = std::nullopt, .slice = slice};
  set_slices({&one, 1}, now);
}

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
      if (wanted == pace->shapes) continue;
      pace->next = wanted;
      is_changed = true;
    }
  }
  if (is_changed) return_changed(now);
}

// Of the class of this key under a rule; made for it if it has none. nullptr: no such class.
Tbf::Pace* Tbf::own_pace(RuleState& state, const Attributes& key) {
  Queue* host = nullptr;
  if (state.by == key_) {
    const std::uint32_t known = find(PackedKey(key, key_), Head::kRegular);
    if (known != IndexTable::kNone) host = &slab_->at(known);
  }
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

std::vector<Tbf::ClassLoad> Tbf::cluster_loads(Nanoseconds time) {
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
         .served = tokens_of(rule->limits().cost, used.totals.served, used.totals.bytes),
         .served_bytes = used.totals.bytes});
  };
  for (std::uint32_t i = 0; i < slab_->size(); ++i) {
    Queue& queue = slab_->at(i);
    if (!queue.own.is_vacant()) add(queue.own, attributes_of(queue), false);
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

void Tbf::Class::reshape(const Shapes& from, const Shapes& to, Instant now) {
  const auto reshaped = [&](const Bucket* bucket, const std::optional<BucketShape>& before,
                            const std::optional<BucketShape>& after) {
    if (!after) return TokenBucket::empty(now);
    if (!before) return TokenBucket::full(*after, now);
    TokenBucket tokens = bucket->tokens;
    tokens.reshape(*before, *after, now);
    return tokens;
  };
  const TokenBucket of_ops = reshaped(&main, from.ops, to.ops);
  const TokenBucket of_bytes = reshaped(from.ops ? second.get() : &main, from.bytes, to.bytes);
  main.tokens = to.ops ? of_ops : of_bytes;
  if (!to.ops || !to.bytes) return second.reset();
  if (second == nullptr) second = std::make_unique<Bucket>();
  second->tokens = of_bytes;
  if (main.crowd != nullptr) open_to_others();
}

Tbf::RuleState& Tbf::make_state(const Rule& rule, Head head) {
  auto made = std::make_unique<RuleState>();
  RuleState& state = *made;
  states_.emplace(&state, std::move(made));
  state.pace.state = &state;
  state.pace.shapes = shapes_of(rule, state.pace.slice);
  state.by = rule.by();
  state.listed[index(head)] = &rule;
  state_of_[&rule] = &state;
  state.rules = 1;
  ++states_made_;
  return state;
}

void Tbf::after_start(const RuleCommand& command) {
  RuleState* common = nullptr;
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const Rule& rule = *rules(head).find(command.name);
    key_ = key_ | rule.by();
    if (common == nullptr) {
      common = &make_state(rule, head);
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

void Tbf::after_change(const RuleCommand& command) {
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const Rule& rule = *rules(head).find(command.name);
    if (rule.is_default()) default_limits_ = true;
    key_ = key_ | rule.by();
    RuleState*& state = state_of_.at(&rule);
    if (command.heads != Heads::kBoth && state->rules == 2) {
      // A change for one head alone ends what the two had in common.
      --state->rules;
      state = &make_state(rule, head);
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
  const Attributes attributes = attributes_of(queue);
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
  each([](Pace& pace) {
    if (pace.next) pace.shapes = *std::exchange(pace.next, std::nullopt);
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
void Tbf::return_all(FieldSet key_before, Instant now) {
  std::vector<std::pair<Request*, Head>> requests;
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) leave(queue, now);
    while (!busy.empty()) {
      Queue& queue = busy.front();
      while (queue.has_requests()) {
        Request& first = queue.requests.front();
        queue.requests.erase(first);
        requests.emplace_back(&first, queue.head);
      }
      become_idle(queue, now);
    }
  }
  std::sort(requests.begin(), requests.end(),
            [](const auto& a, const auto& b) { return a.first->seat_turn < b.first->seat_turn; });
  reshape_changed(now);
  const FieldSet key_after = std::exchange(key_, key_before);
  move_classes_out();
  key_ = key_after;
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
    lone->by = attributes_of(queue);
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
  if (command.verb == Verb::kStart) after_start(command);
  if (command.verb == Verb::kChange) after_change(command);
  if (generations() != before) ++bindings_;
  if (key_ == key_before) {
    return_changed(now);
  } else {
    return_all(key_before, now);
  }
  return {};
}

}  // namespace weir
