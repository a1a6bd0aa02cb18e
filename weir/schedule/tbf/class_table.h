// SPDX-License-Identifier: Apache-2.0
//
// The classes of a Tbf: the buckets of one key under one rule. A class with the same key as a
// queue is stored inside the regular queue of that key (Queue::own), its host; the others are
// stored here.
//
//   Class* used = classes.find(state, by, host);      if there is none: classes.make(...)
//   classes.use(*used, head, rule);                   by a queue, until classes.release(*used)
//
// A class stays while a queue uses it, and afterwards as long as tokens are missing from
// its buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <boost/intrusive/list.hpp>

#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/schedule/tbf/queue_index.h"
#include "weir/schedule/tbf/rule_table.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

// The key of the class that a rule with these keys uses when no class can be created. No request
// has it: all zero would be the key of uid 0 and of the empty job id.
Attributes overflow_key(FieldSet by);

class ClassTable {
 public:
  // REQUIRES: the rules outlive it.
  explicit ClassTable(RuleTable& rules) : rules_(rules) {}

  // Both kinds.
  std::size_t size() const { return size_; }
  // nullptr if there is none. `host`: the queue in which it would be stored, or nullptr.
  Class* find(const RuleState& state, const Attributes& by, Queue* host) const;
  // Stored in its host if that has no class yet. Its buckets start full, or empty if they
  // are slices.
  Class& make(RuleState& state, const Attributes& by, Queue* host, Instant now);
  // The limits of this class alone, initially those of its rule.
  static Pace& own_pace(Class& used, const Attributes& by);

  // A queue of this head starts or stops using it, under this rule.
  void use(Class& chosen, Head head, const Rule& rule);
  void release(Class& used);

  // Removes a class that is stored in a queue. REQUIRES: not used by any other queue.
  void vacate(Class& gone);
  // Checks the class that was unused longest, and removes it if its buckets are full.
  void forget_one_unused(Instant now);
  // Removes the classes of rules that are in no list any more.
  void forget_stopped();
  // Moves the class that is stored in the queue to this table, with its balances.
  void move_out(Queue& host, const Attributes& by);

  // Those stored here, in no particular order.
  const std::vector<LoneClass*>& lone() const { return order_; }
  // All classes, including those in the queues of the index.
  template <class Visit>
  void each(const QueueIndex& index, Visit visit) const {
    for (std::uint32_t i = 0; i < index.places(); ++i) {
      if (Class& own = index.at(i).own; !own.is_vacant()) visit(own);
    }
    for (LoneClass* const lone : order_) visit(*lone);
  }

 private:
  struct Key {
    const RuleState* rule;
    const Attributes& by;
    bool operator==(const Key& other) const { return rule == other.rule && by == other.by; }
  };
  // Classes have their keys themselves, so that a class needs no second copy here.
  static Key key_of(const Key& key) { return key; }
  static Key key_of(const std::unique_ptr<LoneClass>& lone) { return {lone->state(), lone->by}; }
  struct KeyHash {
    using is_transparent = void;
    template <class T>
    std::size_t operator()(const T& one) const {
      const Key key = key_of(one);
      return hash_words(key.by.hash(), reinterpret_cast<std::uintptr_t>(key.rule));
    }
  };
  struct SameKey {
    using is_transparent = void;
    template <class T, class U>
    bool operator()(const T& one, const U& other) const {
      return key_of(one) == key_of(other);
    }
  };

  void keep(std::unique_ptr<LoneClass> lone);
  void forget(LoneClass& gone);

  RuleTable& rules_;
  absl::flat_hash_set<std::unique_ptr<LoneClass>, KeyHash, SameKey> lone_;
  std::vector<LoneClass*> order_;  // the same as lone_, to be visited in steps
  // Classes that no queue uses, most recently used last.
  boost::intrusive::list<
      LoneClass, boost::intrusive::member_hook<LoneClass, boost::intrusive::list_member_hook<>,
                                               &LoneClass::unused_hook>>
      unused_;
  std::size_t size_ = 0;
};

}  // namespace weir::tbf
