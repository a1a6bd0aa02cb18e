// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/binder.h"

#include <utility>

#include "weir/classify/share_level.h"
#include "weir/schedule/tbf/tree_queues.h"

namespace weir::tbf {
namespace {

// Maximum number of queues per possible class.
constexpr std::size_t kQueuesPerClass = 2;
// Number of idle queues checked to find one whose class can be removed.
constexpr int kRoomTries = 8;
// Successive layouts of keys in the same engine.
constexpr std::uint64_t kLayoutsPerEngine = 1 << 20;

// Under shares, requests of different jobs are never in one queue; nor are those of different
// groups of clients.
FieldSet key_of(FieldSet type, const RuleOptions& options) {
  if (options.sharing) {
    type = type | FieldSet{Field::kJobid} | fields_of(options.sharing->levels);
  }
  if (!options.groups.empty()) type = type | FieldSet{Field::kNid};
  return type;
}

}  // namespace

Binder::Binder(FieldSet type, const RuleOptions& options, RuleTable& rules, ClassTable& classes,
               Shares& shares, const Groups& groups, WaitBreakdown& waits, std::uint64_t stamp)
    : classes_max_(options.classes_max),
      shares_out_(options.sharing.has_value()),
      rules_(rules),
      classes_(classes),
      shares_(shares),
      groups_(groups),
      waits_(waits),
      key_(key_of(type, options)),
      stamp_(stamp * kLayoutsPerEngine) {
  make_index();
}

Binder::~Binder() {
  idle_.clear();
  classes_.each(*index_, [](Class& used) {
    for (const Head head : kHeads) {
      if (used.is_listed[tbf::index(head)]) used.state()->listed[tbf::index(head)]->release();
    }
  });
}

void Binder::make_index() {
  ++stamp_;
  waits_.end_all();
  index_ = std::make_unique<QueueIndex>(key_, classes_max_);
}

// ---- finding ----

Queue& Binder::find_anew(const Request& request, Head head, Instant now) {
  Queue& queue = find(request.attributes, head, now);
  if (ClassHint* const hint = request.hint) {
    hint->queue_ = &queue;
    hint->engine_ = stamp_;
    hint->generation_ = queue.generation;
  }
  return queue;
}

Queue& Binder::find(const Attributes& attributes, Head head, Instant now) {
  // A queue is created quickly, so few idle ones need to be kept; the class keeps the balance.
  if (index_->queues() >= kQueuesPerClass * classes_max_) forget_one_idle(now);
  Queue& queue = index_->find_or_make(PackedKey(attributes, key_), head);
  // Queues with requests were bound by the command, so this one is new or idle. While it is being
  // bound it must not be removed.
  if (queue.binding != bindings_) {
    if (queue.link.is_linked()) idle_.erase(idle_.iterator_to(queue));
    bind(queue, now);
    idle_.push_back(queue);
  }
  return queue;
}

Class* Binder::class_of(const RuleState& state, const Attributes& key) const {
  const bool has_host = state.by == key_ && (key_.empty() || key != overflow_key(key_));
  Queue* const host = has_host ? index_->find(PackedKey(key, key_), Head::kRegular) : nullptr;
  return classes_.find(state, key, host);
}

const Class* Binder::class_in_force(const Attributes& attributes, Head head, unsigned layer) const {
  const Rule* const rule = rules_.match(attributes, head, layer);
  if (rule == nullptr) return nullptr;
  Queue* const host = layer == 0 && rule->by() == key_
                          ? index_->find(PackedKey(attributes, key_), Head::kRegular)
                          : nullptr;
  return classes_.find(rules_.state_of(*rule), attributes.only(rule->by()), host);
}

// ---- binding ----

// Its old classes are released only afterwards, since it may get the same classes again.
void Binder::bind(Queue& queue, Instant now) {
  const Attributes attributes = index_->attributes_of(queue);
  // The class of a stopped rule has no state: its place is free for the next.
  Class* had = queue.limits;
  if (had == &queue.own && had->state()->rules == 0 && had->users == 1) {
    classes_.release(*std::exchange(had, nullptr));
  }
  std::unique_ptr<Extra> had_extra = std::move(queue.extra);
  const Rule& first = *rules_.match(attributes, queue.head, 0);
  queue.limits = &use_class(first, queue, attributes, now);
  count_in_class(queue);
  if (shares_out_ || groups_.exist()) queue.extra = std::make_unique<Extra>();
  if (shares_out_) {
    queue.extra->share = &shares_.of(attributes.job);
    ++queue.extra->share->queues;
    if (TreeQueues* const tree = shares_.tree()) {
      queue.extra->leaf = queue.extra->share->leaf;
      queue.extra->above = &tree->hold(attributes, first);
    }
  }
  if (groups_.exist()) {
    queue.extra->group = groups_.group_of(attributes.nid);
    queue.extra->is_later = groups_.is_set_back(queue.extra->group, queue.head);
  }
  for (unsigned layer = 1; layer < kLayers; ++layer) {
    const Rule* const rule = rules_.match(attributes, queue.head, layer);
    if (rule == nullptr) continue;
    if (queue.extra == nullptr) queue.extra = std::make_unique<Extra>();
    queue.extra->upper[layer - 1] = &use_class(*rule, queue, attributes, now);
    queue.extra->has_upper = true;
  }
  find_reservation(queue);
  if (had != nullptr) classes_.release(*had);
  if (had_extra != nullptr) release(*had_extra);
  queue.binding = bindings_;
}

void Binder::find_reservation(Queue& queue) {
  Class* found = nullptr;
  queue.each_class([&](Class& used) {
    if (found == nullptr && used.reservation != nullptr) found = &used;
  });
  if (found == nullptr) return;
  if (queue.extra == nullptr) queue.extra = std::make_unique<Extra>();
  queue.extra->reserving = found;
  queue.extra->queue = &queue;
}

// Waiting requests are counted with the class, if other queues share it and take turns by arrival;
// under shares jobs take turns.
void Binder::count_in_class(Queue& queue) {
  const bool is_common = queue.limits->is_lone && !shares_out_;
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

void Binder::unbind(Queue& queue) {
  if (queue.limits != nullptr) classes_.release(*std::exchange(queue.limits, nullptr));
  if (const auto extra = std::move(queue.extra)) release(*extra);
}

void Binder::release(Extra& extra) {
  for (Class* const used : extra.upper) {
    if (used != nullptr) classes_.release(*used);
  }
  if (extra.above != nullptr) shares_.tree()->release(*extra.above);
  if (extra.share != nullptr) shares_.release(*extra.share);
}

// The class of the queue under a rule. A class with the queue's own key is stored in the regular
// queue of that key, which is created if necessary, so that both heads find it there.
Class& Binder::use_class(const Rule& rule, Queue& queue, const Attributes& attributes,
                         Instant now) {
  RuleState& state = rules_.state_of(rule);
  Attributes by = attributes.only(rule.by());
  Queue* host = nullptr;
  if (rule.layer() == 0 && rule.by() == key_) {
    host = queue.head == Head::kRegular
               ? &queue
               : &index_->find_or_make(PackedKey(attributes, key_), Head::kRegular);
    // Without a class it would look removable.
    if (host != &queue && !host->has_requests() && host->link.is_linked()) {
      idle_.erase(idle_.iterator_to(*host));
    }
  }
  Queue* const home = host;
  Class* chosen = classes_.find(state, by, host);
  if (chosen == nullptr && classes_.size() >= classes_max_ && !make_room(now)) {
    // Invented ids must not gain bursts: those beyond the bound share one class of their rule.
    ++overflowed_;
    by = overflow_key(rule.by());
    host = nullptr;
    chosen = classes_.find(state, by, host);
  }
  if (chosen == nullptr) chosen = &classes_.make(state, by, host, now);
  classes_.use(*chosen, queue.head, rule);
  if (host != nullptr && host != &queue && chosen == &host->own) share_with_others(*host);
  if (home != nullptr && home != &queue && !home->link.is_linked()) idle_.push_back(*home);
  return *chosen;
}

// The host of the class may already wait there.
void Binder::share_with_others(Queue& host) {
  if (host.own.main.waiters != nullptr) return;
  host.own.open_to_others();
  if (host.place == Queue::Place::kFirst && host.at->waiters != nullptr) {
    host.at->waiters->first = &host;
  }
}

bool Binder::is_affected(Queue& queue) const {
  bool affected = false;
  queue.each_class([&](const Class& used) { affected = affected || used.pace->next.has_value(); });
  if (affected || is_bound(queue)) return affected;
  const Attributes attributes = index_->attributes_of(queue);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Rule* const rule = rules_.match(attributes, queue.head, layer);
    const RuleState* const wanted = rule == nullptr ? nullptr : &rules_.state_of(*rule);
    const Class* const has = layer == 0               ? queue.limits
                             : queue.extra != nullptr ? queue.extra->upper[layer - 1]
                                                      : nullptr;
    if (wanted != (has == nullptr ? nullptr : has->state())) return true;
  }
  return false;
}

void Binder::distinguish_by(FieldSet by) {
  for (Queue& queue : idle_) unbind(queue);
  for (Queue& queue : idle_) {
    if (!queue.own.is_vacant()) classes_.move_out(queue, index_->attributes_of(queue));
  }
  idle_.clear();
  key_ = key_ | by;
  make_index();
}

// ---- forgetting ----

// Removes a class without state: it is unused and its buckets are full.
bool Binder::make_room(Instant now) {
  const std::size_t before = classes_.size();
  for (int tries = 0; tries < kRoomTries; ++tries) {
    classes_.forget_one_unused(now);
    if (classes_.size() == before) forget_one_idle(now);
    if (classes_.size() < before) return true;
  }
  return false;
}

// Removes the longest idle queue, unless the class inside it has state.
void Binder::forget_one_idle(Instant now) {
  if (idle_.empty()) return;
  Queue& oldest = idle_.front();
  Class& own = oldest.own;
  const std::uint32_t used_by_itself = oldest.limits == &own ? 1 : 0;
  if (own.is_vacant() || (own.users == used_by_itself && own.is_full(now))) {
    forget(oldest);
  } else {
    idle_.splice(idle_.end(), idle_, idle_.begin());
  }
}

// REQUIRES: idle. Classes stored apart stay as long as they have state.
void Binder::forget(Queue& queue) {
  unbind(queue);
  waits_.end(queue);
  if (!queue.own.is_vacant()) classes_.vacate(queue.own);
  idle_.erase(idle_.iterator_to(queue));
  index_->forget(queue);
}

}  // namespace weir::tbf
