// SPDX-License-Identifier: Apache-2.0
//
// The queues and classes of a Tbf: how they are found, made, kept within their bounds and
// forgotten.
#include <utility>

#include "weir/base/assert.h"
#include "weir/schedule/tbf.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {
namespace {

// Queues kept at most, for each class that may be.
constexpr std::size_t kQueuesPerClass = 2;
// Idle queues looked at to find one whose class may be forgotten.
constexpr int kRoomTries = 8;
// Virtual time starts here, so that tags may lie behind it.
constexpr std::uint64_t kVirtualStart = std::uint64_t{1} << 62;
// One layout of keys after another in the same engine.
constexpr std::uint64_t kLayoutsPerEngine = 1 << 20;

}  // namespace

std::size_t Tbf::ClassKeyHash::operator()(const ClassKey& key) const {
  return hash_words(key.by.hash(), reinterpret_cast<std::uintptr_t>(key.rule));
}

Tbf::Tbf(FieldSet type, const RuleOptions& options, std::uint64_t stamp)
    : options_(options),
      key_(type),
      heaps_(std::make_unique<Heaps>()),
      groups_(options.groups),
      shares_(options.sharing),
      waits_(options.stays),
      stamp_(stamp * kLayoutsPerEngine),
      virtual_ns_(kVirtualStart),
      default_limits_(!options.sharing),
      is_plain_(!options.sharing && options.groups.empty()) {
  for (auto& list : lists_) list = std::make_unique<RuleList>(type);
  // Under shares requests of different jobs never stand in one queue.
  if (options.sharing) key_ = key_ | FieldSet{Field::kJobid};
  // Nor do those of different groups of clients.
  if (groups_.exist()) key_ = key_ | FieldSet{Field::kNid};
  RuleState& state = make_state(rules(Head::kRegular).default_rule(), Head::kRegular, Instant{});
  const Rule& high = rules(Head::kHigh).default_rule();
  state_of_[&high] = &state;
  state.listed[index(Head::kHigh)] = &high;
  ++state.rules;
  make_table();
}

Tbf::~Tbf() {
  for (const auto& busy : heaps_->busy) WEIR_ASSERT(busy.empty());
  heaps_->idle.clear();
  heaps_->unused.clear();
  each_live_class([](Class& used) {
    for (const Head head : kHeads) {
      if (used.is_listed[index(head)]) used.state()->listed[index(head)]->release();
    }
  });
}

void Tbf::make_table() {
  ++stamp_;
  waits_.end_all();
  index_ = std::make_unique<tbf::QueueIndex>(key_, options_.classes_max);
  heaps_->ready[index(Head::kRegular)].reserve(options_.classes_max);
  heaps_->wake.reserve(options_.classes_max);
}

// ---- finding ----

bool Tbf::is_current(const ClassHint& hint, Head head) const {
  if (hint.engine_ != stamp_) return false;
  const Queue& hinted = *static_cast<const Queue*>(hint.queue_);
  return hinted.generation == hint.generation_ && hinted.binding == bindings_ &&
         hinted.head == head;
}

Tbf::Queue& Tbf::queue_of(const Request& request, Head head, Instant now) {
  ClassHint* const hint = request.hint;
  if (hint != nullptr && is_current(*hint, head)) return *static_cast<Queue*>(hint->queue_);
  Queue& queue = find_queue(request.attributes, head, now);
  if (hint != nullptr) {
    hint->queue_ = &queue;
    hint->engine_ = stamp_;
    hint->generation_ = queue.generation;
  }
  return queue;
}

// Bound to the rules as they are; made if there is none.
Tbf::Queue& Tbf::find_queue(const Attributes& attributes, Head head, Instant now) {
  // A queue is soon made again, so few idle ones need to be kept; the class keeps the balance.
  if (queues() >= kQueuesPerClass * options_.classes_max) forget_one_idle(now);
  Queue& queue = index_->find_or_make(PackedKey(attributes, key_), head);
  // One with requests was bound by the command itself, so this one is new or idle. While it is
  // bound it must not be taken for one that can be forgotten.
  if (queue.binding != bindings_) {
    if (queue.link.is_linked()) heaps_->idle.erase(heaps_->idle.iterator_to(queue));
    bind(queue, now);
    heaps_->idle.push_back(queue);
  }
  return queue;
}

// Matches it with the rules as they are. What it had is let go only afterwards, since it may well
// get the same classes again.
void Tbf::bind(Queue& queue, Instant now) {
  const Attributes attributes = index_->attributes_of(queue);
  const RuleList& list = rules(queue.head);
  // The class of a rule that has been stopped has nothing to remember: its place is for the next.
  Class* had = queue.limits;
  if (had == &queue.own && had->state()->rules == 0 && had->users == 1) {
    release(*std::exchange(had, nullptr));
  }
  std::unique_ptr<Extra> had_extra = std::move(queue.extra);
  queue.limits = &class_of(*list.match(attributes, 0), queue, attributes, now);
  count_in_class(queue);
  if (!is_plain_) queue.extra = std::make_unique<Extra>();
  if (options_.sharing) {
    queue.extra->share = &shares_.of(attributes.job);
    ++queue.extra->share->queues;
  }
  if (groups_.exist()) {
    queue.extra->group = groups_.group_of(attributes.nid);
    queue.extra->is_later = groups_.is_set_back(queue.extra->group, queue.head);
  }
  for (unsigned layer = 1; layer < kLayers; ++layer) {
    const Rule* const rule = list.has_layer(layer) ? list.match(attributes, layer) : nullptr;
    if (rule == nullptr) continue;
    if (queue.extra == nullptr) queue.extra = std::make_unique<Extra>();
    queue.extra->upper[layer - 1] = &class_of(*rule, queue, attributes, now);
    queue.extra->has_upper = true;
  }
  if (had != nullptr) release(*had);
  if (had_extra != nullptr) release(*had_extra);
  queue.binding = bindings_;
}

// What waits in it is counted with its class, if others have the same and take turns with it by
// arrival; under shares jobs take turns.
void Tbf::count_in_class(Queue& queue) {
  const bool is_common = queue.limits->is_lone && !options_.sharing;
  Backlog* const before = queue.counted;
  Backlog* const after =
      is_common ? &static_cast<LoneClass*>(queue.limits)->waiting : &queue.waiting;
  if (before == after) return;
  queue.counted = after;
  if (!queue.has_requests()) return;
  Backlog all;
  for (const Request* one = &queue.requests.front(); one != nullptr;
       one = queue.requests.behind(*one)) {
    all += {1, one->bytes.count()};
  }
  *before -= all;
  *after += all;
}

void Tbf::unbind(Queue& queue) {
  if (queue.limits != nullptr) release(*std::exchange(queue.limits, nullptr));
  if (const auto extra = std::move(queue.extra)) release(*extra);
}

void Tbf::release(Extra& extra) {
  for (Class* const used : extra.upper) {
    if (used != nullptr) release(*used);
  }
  if (extra.share != nullptr) shares_.release(*extra.share);
}

Tbf::Class* Tbf::find_class(const RuleState& state, const Attributes& by, Queue* host) const {
  if (host != nullptr && !host->own.is_vacant() && host->own.state() == &state) return &host->own;
  const auto found = lone_classes_.find({&state, by});
  return found == lone_classes_.end() ? nullptr : found->second.get();
}

Tbf::Class& Tbf::make_class(RuleState& state, const Attributes& by, Queue* host, Instant now) {
  Class* made = nullptr;
  if (host != nullptr && host->own.is_vacant()) {
    made = &host->own;
  } else {
    auto lone = std::make_unique<LoneClass>();
    lone->by = by;
    lone->is_lone = true;
    lone->place = lone_order_.size();
    lone_order_.push_back(lone.get());
    made = lone.get();
    lone_classes_.emplace(ClassKey{&state, by}, std::move(lone));
  }
  ++classes_;
  ++state.classes;
  made->pace = &state.pace;
  made->tag = 0;
  made->totals = {};
  made->reshape({}, made->pace->shapes, now);
  if (made->is_lone) made->open_to_others();
  return *made;
}

// The class of the queue under a rule. A class with the queue's own key lives in the regular queue
// of that key, which is made if need be, so that both heads find it there.
Tbf::Class& Tbf::class_of(const Rule& rule, Queue& queue, const Attributes& attributes,
                          Instant now) {
  RuleState& state = *state_of_.at(&rule);
  Attributes by = attributes.only(rule.by());
  Queue* host = nullptr;
  if (rule.layer() == 0 && rule.by() == key_) {
    host = queue.head == Head::kRegular
               ? &queue
               : &index_->find_or_make(PackedKey(attributes, key_), Head::kRegular);
    // Until it has a class it looks as if it could be forgotten.
    if (host != &queue && !host->has_requests() && host->link.is_linked()) {
      heaps_->idle.erase(heaps_->idle.iterator_to(*host));
    }
  }
  Queue* const home = host;
  Class* chosen = find_class(state, by, host);
  if (chosen == nullptr && classes_ >= options_.classes_max && !make_room(now)) {
    // Invented ids must not buy bursts: those beyond the bound share one class of their rule.
    ++overflowed_;
    by = Attributes{}.only({});
    host = nullptr;
    chosen = find_class(state, by, host);
  }
  if (chosen == nullptr) chosen = &make_class(state, by, host, now);
  use(*chosen, queue, rule);
  if (host != nullptr && host != &queue && chosen == &host->own) share_with_others(*host);
  if (home != nullptr && home != &queue && !home->link.is_linked()) heaps_->idle.push_back(*home);
  return *chosen;
}

void Tbf::use(Class& chosen, const Queue& queue, const Rule& rule) {
  if (chosen.users++ == 0 && chosen.is_lone) {
    auto& lone = static_cast<LoneClass&>(chosen);
    if (lone.unused_hook.is_linked()) heaps_->unused.erase(heaps_->unused.iterator_to(lone));
  }
  if (chosen.is_listed[index(queue.head)]) return;
  chosen.is_listed[index(queue.head)] = true;
  rule.retain();
}

// The queue a class lives in may be waiting there already.
void Tbf::share_with_others(Queue& host) {
  if (host.own.main.crowd != nullptr) return;
  host.own.open_to_others();
  if (host.place == Queue::Place::kFirst && host.at->crowd != nullptr)
    host.at->crowd->first = &host;
}

void Tbf::release(Class& used) {
  if (--used.users > 0) return;
  const bool is_stopped = used.state()->rules == 0;
  if (!used.is_lone) {
    if (is_stopped) vacate(used);
  } else if (is_stopped) {
    forget(static_cast<LoneClass&>(used));
  } else {
    heaps_->unused.push_back(static_cast<LoneClass&>(used));
  }
}

// Forgets a class that has nothing to remember: nobody uses it and its buckets are full.
bool Tbf::make_room(Instant now) {
  const std::size_t before = classes_;
  for (int tries = 0; tries < kRoomTries; ++tries) {
    if (!heaps_->unused.empty()) {
      LoneClass& oldest = heaps_->unused.front();
      heaps_->unused.pop_front();
      if (oldest.is_full(now)) {
        forget(oldest);
      } else {
        heaps_->unused.push_back(oldest);
      }
    }
    if (classes_ == before) forget_one_idle(now);
    if (classes_ < before) return true;
  }
  return false;
}

// The queue that was idle for longest goes, unless the class inside it has something to remember.
void Tbf::forget_one_idle(Instant now) {
  if (heaps_->idle.empty()) return;
  Queue& oldest = heaps_->idle.front();
  Class& own = oldest.own;
  const std::uint32_t used_by_itself = oldest.limits == &own ? 1 : 0;
  if (own.is_vacant() || (own.users == used_by_itself && own.is_full(now))) {
    forget(oldest);
  } else {
    heaps_->idle.splice(heaps_->idle.end(), heaps_->idle, heaps_->idle.begin());
  }
}

// REQUIRES: idle. Classes that stand alone stay as long as they have something to remember.
void Tbf::forget(Queue& queue) {
  unbind(queue);
  waits_.end(queue);
  if (!queue.own.is_vacant()) vacate(queue.own);
  heaps_->idle.erase(heaps_->idle.iterator_to(queue));
  index_->forget(queue);
}

// Ends what a class was. REQUIRES: used by no queue that will not be told.
void Tbf::vacate(Class& gone) {
  const Pace& pace = *std::exchange(gone.pace, nullptr);
  RuleState& state = *pace.state;
  for (const Head head : kHeads) {
    if (std::exchange(gone.is_listed[index(head)], false)) state.listed[index(head)]->release();
  }
  gone.second.reset();
  gone.main.crowd.reset();
  --classes_;
  --state.classes;
  if (&pace != &state.pace) state.own.erase(Attributes(pace.key));
  forget_if_unused(state);
}

// REQUIRES: used by no queue, and in no list.
void Tbf::forget(LoneClass& gone) {
  const ClassKey key{gone.state(), gone.by};
  lone_order_.back()->place = gone.place;
  lone_order_[gone.place] = lone_order_.back();
  lone_order_.pop_back();
  vacate(gone);
  lone_classes_.erase(key);
}

void Tbf::forget_if_unused(RuleState& state) {
  if (state.rules == 0 && state.classes == 0) states_.erase(&state);
}

std::optional<ClassTotals> Tbf::totals(const Attributes& attributes, Head head) const {
  const Queue* const queue = index_->find(PackedKey(attributes, key_), head);
  if (queue == nullptr || queue->limits == nullptr) return std::nullopt;
  return queue->limits->totals;
}

}  // namespace weir
