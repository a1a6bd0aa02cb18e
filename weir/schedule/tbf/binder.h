// SPDX-License-Identifier: Apache-2.0
//
// Finds the queue of a request, and binds queues to what they depend on: the classes of the rules
// that match, the share of the job, the group of the client.
//
//   Queue& queue = binder.find(request, head, now);     created and bound if necessary
//   binder.rules_changed();                              every queue must be bound again: those
//                                                        with requests at once (bind), idle ones
//                                                        with their next request
//
// It also keeps the idle queues, longest idle first, and removes them and their classes when there
// are too many. A class is removed only if its buckets are full, so that no client gains a burst.
// If no class can be removed, further keys of a rule share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/schedule/request.h"
#include "weir/schedule/tbf/class_table.h"
#include "weir/schedule/tbf/groups.h"
#include "weir/schedule/tbf/queue_index.h"
#include "weir/schedule/tbf/rule_table.h"
#include "weir/schedule/tbf/shares.h"
#include "weir/schedule/tbf/types.h"
#include "weir/schedule/tbf/wait_breakdown.h"

namespace weir::tbf {

class Binder {
 public:
  // REQUIRES: the arguments outlive it. `stamp` distinguishes the engines of one Gate.
  Binder(FieldSet type, const RuleOptions& options, RuleTable& rules, ClassTable& classes,
         Shares& shares, const Groups& groups, WaitBreakdown& waits, std::uint64_t stamp);
  ~Binder();
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  const QueueIndex& index() const { return *index_; }
  // Requests for which no class could be created.
  std::uint64_t overflowed() const { return overflowed_; }

  // ---- finding ----

  // By its hint if that is current. Bound to the current rules.
  Queue& find(const Request& request, Head head, Instant now) {
    if (request.hint != nullptr && is_current(*request.hint, head)) [[likely]] {
      return *static_cast<Queue*>(request.hint->queue_);
    }
    return find_anew(request, head, now);
  }
  Queue& find(const Attributes& attributes, Head head, Instant now);
  // Whether a request with this hint needs no search.
  bool is_current(const ClassHint& hint, Head head) const {
    if (hint.engine_ != stamp_) return false;
    const Queue& hinted = *static_cast<const Queue*>(hint.queue_);
    return hinted.generation == hint.generation_ && hinted.binding == bindings_ &&
           hinted.head == head;
  }
  // nullptr if there is none.
  const Queue* known(const Attributes& attributes, Head head) const {
    return index_->find(PackedKey(attributes, key_), head);
  }
  // The class of this key under a rule, or the class that limits a request with these attributes in
  // a layer; nullptr if there is no rule, or no such class yet.
  Class* class_of(const RuleState& state, const Attributes& key) const;
  const Class* class_in_force(const Attributes& attributes, Head head, unsigned layer) const;

  // ---- idle queues ----

  void become_busy(Queue& queue) { idle_.erase(idle_.iterator_to(queue)); }
  void become_idle(Queue& queue) { idle_.push_back(queue); }
  // An idle queue was used without a request in it.
  void touch(Queue& queue) { idle_.splice(idle_.end(), idle_, idle_.iterator_to(queue)); }

  // ---- changes of rules ----

  void rules_changed() { ++bindings_; }
  bool is_bound(const Queue& queue) const { return queue.binding == bindings_; }
  // Whether the current rules give it other classes, or one of its classes has other limits.
  bool is_affected(Queue& queue) const;
  void bind(Queue& queue, Instant now);
  // REQUIRES: not affected.
  void keep_bound(Queue& queue) const { queue.binding = bindings_; }

  // Whether these fields already distinguish queues.
  bool distinguishes(FieldSet by) const { return (key_ | by) == key_; }
  // They do from now on. All queues are removed; their classes keep their balances. REQUIRES: all
  // are idle.
  void distinguish_by(FieldSet by);

 private:
  Queue& find_anew(const Request& request, Head head, Instant now);
  void unbind(Queue& queue);
  void count_in_class(Queue& queue);
  static void find_reservation(Queue& queue);
  Class& use_class(const Rule& rule, Queue& queue, const Attributes& attributes, Instant now);
  static void share_with_others(Queue& host);
  void release(Extra& extra);
  bool make_room(Instant now);
  void forget_one_idle(Instant now);
  void forget(Queue& queue);
  void make_index();

  const std::size_t classes_max_;
  const bool shares_out_;  // jobs have shares
  RuleTable& rules_;
  ClassTable& classes_;
  Shares& shares_;
  const Groups& groups_;
  WaitBreakdown& waits_;
  FieldSet key_;  // fields that distinguish queues; grows with by= and never shrinks
  std::unique_ptr<QueueIndex> index_;
  QueueList idle_;
  std::uint64_t stamp_;         // of the memory that hints point to
  std::uint32_t bindings_ = 1;  // increases with everything that can change the classes of a queue
  std::uint64_t overflowed_ = 0;
};

}  // namespace weir::tbf
