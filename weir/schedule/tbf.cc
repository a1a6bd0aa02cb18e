// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf.h"

#include <algorithm>
#include <optional>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "weir/base/assert.h"
#include "weir/base/heap.h"

namespace weir {
namespace {

namespace bi = boost::intrusive;

// A realtime rule keeps what it did not use for so long, and no longer.
constexpr Nanoseconds kRealtimeCredit = std::chrono::seconds{1};
// Queues kept at most, for each class that may be.
constexpr std::size_t kQueuesPerClass = 2;
// Idle queues looked at to find one whose class may be forgotten.
constexpr int kRoomTries = 8;
// Virtual time starts here, so that tags may lie behind it.
constexpr std::uint64_t kVirtualStart = std::uint64_t{1} << 62;

}  // namespace

// Requests of one head with the same attributes, as far as rules look at them.
struct Tbf::Queue {
  struct TagOrder {
    bool operator()(const Queue& a, const Queue& b) const {
      return a.tag != b.tag ? a.tag < b.tag : a.order < b.order;
    }
  };
  using Requests =
      bi::list<Request, bi::member_hook<Request, Request::ListHook, &Request::seat_list>>;

  Queue(const Attributes& a, Head h) : attributes(a), head(h) {}

  Attributes attributes;
  Head head;
  std::uint64_t binding = 0;              // at which of Tbf::bindings_ it was bound
  std::array<Class*, kLayers> classes{};  // layer 0 always has one
  Requests requests;
  // Where it stands while it has requests: ready, or waiting at a bucket.
  std::uint64_t tag = 0;
  std::uint64_t order = 0;
  HeapHook ready_hook;
  bi::set_member_hook<> waiter_hook;
  Bucket* waits_at = nullptr;
  Bucket* let_go_by = nullptr;
  bi::list_member_hook<> state_hook;  // busy or idle
};

// A limit bucket and the queues that wait for it.
struct Tbf::Bucket {
  using Waiters =
      bi::multiset<Queue, bi::member_hook<Queue, bi::set_member_hook<>, &Queue::waiter_hook>,
                   bi::compare<Queue::TagOrder>>;

  TokenBucket tokens = TokenBucket::empty(Instant::min());
  Waiters waiters;
  Queue* gone_ahead = nullptr;  // was let go and has not been served yet
  HeapHook wake_hook;
};

// What the limits of a rule make of buckets.
struct Tbf::Shapes {
  std::optional<BucketShape> ops;
  std::optional<BucketShape> bytes;
  Cost cost;
  bool realtime = false;
};

struct Tbf::Class {
  Class(RuleState& owner, const Shapes& of_owner, const Attributes& key, Instant now)
      : state(&owner), shapes(&of_owner), by(key) {
    if (shapes->ops) ops.tokens = TokenBucket::full(*shapes->ops, now);
    if (shapes->bytes) bytes.tokens = TokenBucket::full(*shapes->bytes, now);
  }

  template <class Visit>
  void each_bucket(Bytes size, Visit visit) {
    if (shapes->ops) visit(ops, *shapes->ops, shapes->cost.of(size));
    if (shapes->bytes) visit(bytes, *shapes->bytes, Tokens{size.count()});
  }
  bool is_full(Instant now) const {
    return (!shapes->ops || ops.tokens.can_take(shapes->ops->depth(), *shapes->ops, now)) &&
           (!shapes->bytes || bytes.tokens.can_take(shapes->bytes->depth(), *shapes->bytes, now));
  }
  // What a request adds to the tag: its cost over the rate, the larger one where there are two.
  std::uint64_t tag_step(Bytes size) {
    Nanoseconds step{1};
    each_bucket(size, [&](Bucket&, const BucketShape& shape, Tokens cost) {
      step = std::max(step, shape.time_for(cost));
    });
    return static_cast<std::uint64_t>(step.count());
  }
  // How far behind virtual time it may start after a pause.
  std::uint64_t credit() const {
    const BucketShape& shape = shapes->ops ? *shapes->ops : *shapes->bytes;
    return static_cast<std::uint64_t>(shape.fill_time().count());
  }

  RuleState* state;
  const Shapes* shapes;  // those of the state
  Attributes by;
  std::array<RuleRef, 2> rules;  // of the heads whose queues use it
  Bucket ops;
  Bucket bytes;
  std::uint64_t tag = 0;
  std::size_t queues = 0;
  bi::list_member_hook<> unused_hook;
  bi::list_member_hook<> state_hook;
};

// A rule as the engine knows it. One started for both heads has one state, so that its classes have
// one bucket.
struct Tbf::RuleState {
  Shapes shapes;
  std::size_t rules = 0;  // that stand in a list, of the two heads
  bi::list<Class, bi::member_hook<Class, bi::list_member_hook<>, &Class::state_hook>,
           bi::constant_time_size<false>>
      classes;
};

struct Tbf::Heaps {
  using List = bi::list<Queue, bi::member_hook<Queue, bi::list_member_hook<>, &Queue::state_hook>>;

  std::array<Heap<Queue, std::uint64_t, &Queue::ready_hook>, 2> ready;
  Heap<Bucket, Instant, &Bucket::wake_hook> wake;
  std::array<List, 2> busy;  // queues with requests
  List idle;                 // without, least recently used first
  // Classes that no queue uses, least recently used first.
  bi::list<Class, bi::member_hook<Class, bi::list_member_hook<>, &Class::unused_hook>> unused;
};

std::size_t Tbf::ClassKeyHash::operator()(const ClassKey& key) const {
  return hash_words(key.by.hash(), reinterpret_cast<std::uintptr_t>(key.rule));
}

Tbf::Tbf(FieldSet type, const Options& options)
    : options_(options), key_(type), heaps_(std::make_unique<Heaps>()), virtual_ns_(kVirtualStart) {
  for (auto& list : lists_) list = std::make_unique<RuleList>(type);
  RuleState& state = make_state(rules(Head::kRegular).default_rule());
  state_of_[&rules(Head::kHigh).default_rule()] = &state;
  ++state.rules;
}

Tbf::~Tbf() {
  for (const auto& busy : heaps_->busy) WEIR_ASSERT(busy.empty());
  heaps_->idle.clear();
  heaps_->unused.clear();
  for (auto& state : states_) state->classes.clear();
}

// ---- finding ----

Tbf::Queue& Tbf::queue_of(const Attributes& attributes, Head head, Instant now) {
  const Attributes key = attributes.only(key_);
  auto& found = queues_[index(head)][key];
  if (found == nullptr) found = std::make_unique<Queue>(key, head);
  Queue& queue = *found;
  // A queue is soon made again, so few idle ones need to be kept; the class keeps the balance.
  if (queues() > kQueuesPerClass * options_.classes_max && !heaps_->idle.empty() &&
      &heaps_->idle.front() != &queue) {
    forget(heaps_->idle.front());
  }
  // One with requests was bound by the command itself, so this one is new or idle. While it is
  // bound it must not be taken for one that can be forgotten.
  if (queue.binding != bindings_) {
    if (queue.state_hook.is_linked()) heaps_->idle.erase(heaps_->idle.iterator_to(queue));
    bind(queue, now);
    heaps_->idle.push_back(queue);
  }
  return queue;
}

// Matches it with the rules as they are. What it had is let go only afterwards, since it may well
// get the same classes again.
void Tbf::bind(Queue& queue, Instant now) {
  const auto had = queue.classes;
  const RuleList& list = rules(queue.head);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Rule* rule = list.has_layer(layer) ? list.match(queue.attributes, layer) : nullptr;
    queue.classes[layer] = rule == nullptr ? nullptr : &class_of(*rule, queue, now);
  }
  for (Class* used : had) release(used);
  queue.binding = bindings_;
}

void Tbf::release(Class* used) {
  if (used == nullptr || --used->queues > 0) return;
  if (used->state->rules == 0) {
    forget(*used);
  } else {
    heaps_->unused.push_back(*used);
  }
}

Tbf::Class& Tbf::class_of(const Rule& rule, const Queue& queue, Instant now) {
  RuleState& state = *state_of_.at(&rule);
  ClassKey key{&state, queue.attributes.only(rule.by())};
  auto found = classes_.find(key);
  if (found == classes_.end() && classes_.size() >= options_.classes_max && !make_room(now)) {
    // Invented ids must not buy bursts: those beyond the bound share one class of their rule.
    ++overflowed_;
    key.by = Attributes{}.only({});
    found = classes_.find(key);
  }
  if (found == classes_.end()) {
    auto made = std::make_unique<Class>(state, state.shapes, key.by, now);
    state.classes.push_back(*made);
    found = classes_.emplace(key, std::move(made)).first;
  }
  Class& chosen = *found->second;
  ++chosen.queues;
  if (chosen.unused_hook.is_linked()) heaps_->unused.erase(heaps_->unused.iterator_to(chosen));
  RuleRef& listed = chosen.rules[index(queue.head)];
  if (!listed) listed = RuleRef(rule);
  return chosen;
}

// Forgets a class that has nothing to remember: nobody uses it and its buckets are full.
bool Tbf::make_room(Instant now) {
  for (int tries = 0; tries < kRoomTries; ++tries) {
    if (heaps_->unused.empty()) {
      if (heaps_->idle.empty()) return false;
      forget(heaps_->idle.front());
      continue;
    }
    Class& oldest = heaps_->unused.front();
    heaps_->unused.pop_front();
    if (oldest.is_full(now)) {
      forget(oldest);
      return true;
    }
    heaps_->unused.push_back(oldest);
  }
  return false;
}

// REQUIRES: idle. Its classes stay as long as they have something to remember.
void Tbf::forget(Queue& queue) {
  for (Class* used : queue.classes) release(used);
  heaps_->idle.erase(heaps_->idle.iterator_to(queue));
  queues_[index(queue.head)].erase(Attributes(queue.attributes));
}

// REQUIRES: used by no queue, and in no list.
void Tbf::forget(Class& gone) {
  RuleState& state = *gone.state;
  state.classes.erase(state.classes.iterator_to(gone));
  classes_.erase(ClassKey{&state, Attributes(gone.by)});
  forget_if_unused(state);
}

void Tbf::forget_if_unused(RuleState& state) {
  if (state.rules > 0 || !state.classes.empty()) return;
  std::erase_if(states_, [&](const auto& owned) { return owned.get() == &state; });
}

// ---- deciding ----

namespace {

template <class Queue, class Visit>
void each_bucket(const Queue& queue, Visit visit) {
  const Bytes size = queue.requests.front().bytes;
  for (auto* used : queue.classes) {
    if (used != nullptr) used->each_bucket(size, visit);
  }
}

}  // namespace

// When all buckets of the queue's first request can pay, and the one that is last.
Instant Tbf::ready_at(const Queue& queue, Bucket*& last) const {
  Instant ready = Instant::min();
  each_bucket(queue, [&](Bucket& bucket, const BucketShape& shape, Tokens cost) {
    const Instant at = bucket.tokens.ready_at(cost, shape);
    if (at > ready) {
      ready = at;
      last = &bucket;
    }
  });
  return ready;
}

// A bucket at which somebody else is first.
Tbf::Bucket* Tbf::occupied_bucket(const Queue& queue) const {
  Bucket* occupied = nullptr;
  each_bucket(queue, [&](Bucket& bucket, const BucketShape&, Tokens) {
    if (!bucket.waiters.empty() || bucket.gone_ahead != nullptr) occupied = &bucket;
  });
  return occupied;
}

// REQUIRES: it has requests and stands nowhere.
void Tbf::enter(Queue& queue, Instant now) {
  Class& owner = *queue.classes[0];
  owner.tag = std::max(owner.tag, virtual_ns_ - owner.credit());
  queue.tag = owner.shapes->realtime ? 0 : owner.tag;
  queue.order = order_++;
  if (Bucket* occupied = occupied_bucket(queue)) return wait_at(*occupied, queue);
  Bucket* last = nullptr;
  if (ready_at(queue, last) > now) return wait_at(*last, queue);
  heaps_->ready[index(queue.head)].push(queue, queue.tag, queue.order);
}

// Takes it from where it stands; who waited behind it moves up.
void Tbf::leave(Queue& queue) {
  if (queue.waits_at != nullptr) {
    Bucket& bucket = *std::exchange(queue.waits_at, nullptr);
    bucket.waiters.erase(bucket.waiters.iterator_to(queue));
    rekey(bucket);
    return;
  }
  heaps_->ready[index(queue.head)].erase(queue);
  if (Bucket* bucket = std::exchange(queue.let_go_by, nullptr)) {
    bucket->gone_ahead = nullptr;
    rekey(*bucket);
  }
}

void Tbf::wait_at(Bucket& bucket, Queue& queue) {
  queue.waits_at = &bucket;
  bucket.waiters.insert(queue);
  rekey(bucket);
}

// The bucket wakes when its first waiter can go; while one has gone ahead, not at all.
void Tbf::rekey(Bucket& bucket) {
  const bool sleeps = bucket.waiters.empty() || bucket.gone_ahead != nullptr;
  if (sleeps) {
    if (heaps_->wake.contains(bucket)) heaps_->wake.erase(bucket);
    return;
  }
  Bucket* last = nullptr;
  const Instant ready = ready_at(*bucket.waiters.begin(), last);
  if (heaps_->wake.contains(bucket)) {
    heaps_->wake.update(bucket, ready);
  } else {
    heaps_->wake.push(bucket, ready);
  }
}

void Tbf::wake(Instant now) {
  while (!heaps_->wake.empty() && heaps_->wake.top_key() <= now) let_go(heaps_->wake.top(), now);
}

// Its first waiter becomes ready, or waits for another bucket from now on.
void Tbf::let_go(Bucket& bucket, Instant now) {
  Queue& first = *bucket.waiters.begin();
  bucket.waiters.erase(bucket.waiters.begin());
  first.waits_at = nullptr;
  Bucket* elsewhere = nullptr;
  // Only who stands before it may hold it up elsewhere: else two could send each other to and fro.
  each_bucket(first, [&](Bucket& other, const BucketShape&, Tokens) {
    const bool behind =
        other.gone_ahead != nullptr ||
        (!other.waiters.empty() && Queue::TagOrder{}(*other.waiters.begin(), first));
    if (&other != &bucket && behind) elsewhere = &other;
  });
  Bucket* last = nullptr;
  if (elsewhere == nullptr && ready_at(first, last) > now) elsewhere = last;
  if (elsewhere != nullptr) {
    wait_at(*elsewhere, first);
  } else {
    bucket.gone_ahead = &first;
    first.let_go_by = &bucket;
    heaps_->ready[index(first.head)].push(first, first.tag, first.order);
  }
  rekey(bucket);
}

// The first of the ready queues that can still pay. Others may have taken from a common bucket, or
// moved a common tag, since it became ready.
Tbf::Queue* Tbf::first_ready(Head head, Instant now) {
  auto& ready = heaps_->ready[index(head)];
  while (!ready.empty()) {
    Queue& queue = ready.top();
    const Class& owner = *queue.classes[0];
    if (!owner.shapes->realtime && queue.tag < owner.tag) {
      queue.tag = owner.tag;
      ready.replace_top(queue.tag, queue.order);
      continue;
    }
    Bucket* last = nullptr;
    if (ready_at(queue, last) <= now) return &queue;
    leave(queue);
    enter(queue, now);
  }
  return nullptr;
}

void Tbf::charge(Queue& queue, const Request& request, Instant now) {
  Class& owner = *queue.classes[0];
  virtual_ns_ = std::max(virtual_ns_, owner.tag);
  // At the end of virtual time, after centuries of debt, order is by turns.
  if (__builtin_add_overflow(owner.tag, owner.tag_step(request.bytes), &owner.tag)) {
    owner.tag = UINT64_MAX;
  }
  each_bucket(queue, [&](Bucket& bucket, const BucketShape& shape, Tokens cost) {
    const bool taken = bucket.tokens.take(cost, shape, now);
    WEIR_ASSERT(taken);
  });
}

// REQUIRES: the queue stands nowhere. Puts it where it belongs after one request less.
void Tbf::take_out(Queue& queue, Request& request, Instant now) {
  queue.requests.erase(queue.requests.iterator_to(request));
  request.seat_group = nullptr;
  if (!queue.requests.empty()) return enter(queue, now);
  auto& busy = heaps_->busy[index(queue.head)];
  busy.erase(busy.iterator_to(queue));
  heaps_->idle.push_back(queue);
}

void Tbf::admit(Request& request, Head head, Instant now) {
  Queue& queue = queue_of(request.attributes, head, now);
  request.seat_group = &queue;
  const bool was_idle = queue.requests.empty();
  queue.requests.push_back(request);
  if (!was_idle) return;
  heaps_->idle.erase(heaps_->idle.iterator_to(queue));
  heaps_->busy[index(head)].push_back(queue);
  enter(queue, now);
}

Pick Tbf::pick(Head head, Instant now, Urge urge) {
  if (urge == Urge::kForce) {
    auto& busy = heaps_->busy[index(head)];
    if (busy.empty()) return {};
    Queue& queue = busy.front();
    Request& first = queue.requests.front();
    leave(queue);
    take_out(queue, first, now);
    return {&first, kNever};
  }
  wake(now);
  Queue* const queue = first_ready(head, now);
  if (queue == nullptr) {
    return {nullptr, heaps_->wake.empty() ? kNever : heaps_->wake.top_key()};
  }
  Request& first = queue->requests.front();
  charge(*queue, first, now);
  leave(*queue);
  take_out(*queue, first, now);
  return {&first, kNever};
}

void Tbf::remove(Request& request, Head /*head*/, Instant now) {
  Queue& queue = *static_cast<Queue*>(request.seat_group);
  if (&queue.requests.front() == &request) {
    leave(queue);
    take_out(queue, request, now);
    return;
  }
  queue.requests.erase(queue.requests.iterator_to(request));
  request.seat_group = nullptr;
}

// ---- changing ----

Tbf::Shapes Tbf::shapes_of(const Limits& limits) const {
  Shapes shapes{{}, {}, limits.cost, limits.realtime};
  if (const std::uint32_t rate = limits.rate_in_force(); rate > 0) {
    const Rate per_second = Rate::per_second(rate);
    const Nanoseconds time = limits.realtime ? kRealtimeCredit : options_.depth_time;
    const Tokens depth = std::max(options_.depth_min, tokens_in(per_second, time));
    shapes.ops.emplace(per_second, limits.burst_ops.value_or(depth));
  }
  if (limits.bps) {
    const Tokens depth = std::max(Tokens{options_.byte_depth_min.count()},
                                  tokens_in(*limits.bps, options_.depth_time));
    shapes.bytes.emplace(*limits.bps,
                         limits.burst_bytes ? Tokens{limits.burst_bytes->count()} : depth);
  }
  return shapes;
}

Tbf::RuleState& Tbf::make_state(const Rule& rule) {
  RuleState& state = *states_.emplace_back(std::make_unique<RuleState>());
  state.shapes = shapes_of(rule.limits());
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
      common = &make_state(rule);
    } else {
      state_of_[&rule] = common;
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
    key_ = key_ | rule.by();
    RuleState*& state = state_of_.at(&rule);
    if (command.heads != Heads::kBoth && state->rules == 2) {
      // A change for one head alone ends what the two had in common.
      --state->rules;
      state = &make_state(rule);
    } else {
      change_shapes(*state, rule.limits(), now);
    }
  }
}

// Balances stay; a bucket that was not there starts full.
void Tbf::change_shapes(RuleState& state, const Limits& limits, Instant now) {
  const Shapes before = std::exchange(state.shapes, shapes_of(limits));
  const auto reshape = [&](Bucket& bucket, const std::optional<BucketShape>& from,
                           const std::optional<BucketShape>& to) {
    if (from && to) {
      bucket.tokens.reshape(*from, *to, now);
    } else if (to) {
      bucket.tokens = TokenBucket::full(*to, now);
    }
  };
  for (Class& used : state.classes) {
    reshape(used.ops, before.ops, state.shapes.ops);
    reshape(used.bytes, before.bytes, state.shapes.bytes);
  }
}

// Classes of rules that are in no list any more.
void Tbf::forget_stopped() {
  for (auto it = heaps_->unused.begin(); it != heaps_->unused.end();) {
    Class& candidate = *it;
    if (candidate.state->rules > 0) {
      ++it;
      continue;
    }
    it = heaps_->unused.erase(it);
    forget(candidate);
  }
}

// Queues with requests are bound and entered anew; idle ones are bound when a request comes. If
// other fields than before tell queues apart, all requests come again, in order, to new queues.
// REQUIRES: no queue stands anywhere.
void Tbf::return_all(FieldSet key_before, Instant now) {
  std::vector<std::pair<Request*, Head>> requests;
  for (const Head head : kHeads) {
    auto& busy = heaps_->busy[index(head)];
    if (key_ == key_before) {
      for (Queue& queue : busy) {
        if (queue.binding != bindings_) bind(queue, now);
      }
      for (Queue& queue : busy) enter(queue, now);
      continue;
    }
    for (Queue& queue : busy) {
      while (!queue.requests.empty()) {
        requests.emplace_back(&queue.requests.front(), head);
        queue.requests.pop_front();
      }
    }
    heaps_->idle.splice(heaps_->idle.end(), busy);
  }
  if (key_ == key_before) return forget_stopped();
  while (!heaps_->idle.empty()) forget(heaps_->idle.front());
  forget_stopped();
  for (const auto& [request, head] : requests) admit(*request, head, now);
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
  for (auto& busy : heaps_->busy) {
    for (Queue& queue : busy) leave(queue);
  }
  if (command.verb == Verb::kStop) before_stop(command);
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const auto applied = lists_[index(head)]->apply(command);
    WEIR_ASSERT(applied.has_value());
  }
  if (command.verb == Verb::kStart) after_start(command);
  if (command.verb == Verb::kChange) after_change(command, now);
  if (generations() != before) ++bindings_;
  return_all(key_before, now);
  return {};
}

}  // namespace weir
