// SPDX-License-Identifier: Apache-2.0
//
// The types of a Tbf and its components: rules, classes with their limit buckets, queues, shares.
// Included only by them.
//
//   Queue   requests of one head with the same attributes. Usually the class that limits it has the
//           same key, and is then stored inside the queue (`own`): one place in memory, found once,
//           about 210 bytes in total for a job.
//   Class   the limit buckets of one key under one rule. Classes other than `own` are stored apart:
//           of rules with a coarser key (by=), of layers above 0, and earlier classes of a queue.
//   Bucket  tokens, and a BucketWaiters if several queues may need them.
//   Pace    the current limits of a rule. The classes of one rule share one, but a class of a rule
//           with scope=cluster may have its own: its slice.
//   Share   a job's share: a bucket, a weight, and tokens lent and borrowed.
//   Reservation  tokens with which a class runs before others (reserve=), and its queues.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <boost/intrusive/list.hpp>

#include "weir/base/heap.h"
#include "weir/base/job_id.h"
#include "weir/base/ring.h"
#include "weir/classify/attributes.h"
#include "weir/classify/limits.h"
#include "weir/classify/rule.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/policy.h"
#include "weir/schedule/rule_engine.h"
#include "weir/schedule/rule_view.h"

namespace weir::tbf {

struct Bucket;
struct Class;
struct BucketWaiters;
struct Extra;
struct LoneClass;
struct Pace;
struct Queue;
struct Reservation;
struct RuleState;
struct Share;
struct ShareNode;

inline std::size_t index(Head head) { return static_cast<std::size_t>(head); }

// The bucket of a reservation, with two depths.
struct ReserveShape {
  BucketShape rested;  // after a time in which no request could use it
  BucketShape busy;    // while requests wait for it; at least as deep
  bool in_bytes = false;

  bool operator==(const ReserveShape&) const = default;
};

// The buckets of a rule; neither: no limit. The fields that the usual decision needs are first.
struct Shapes {
  Cost cost;
  bool realtime = false;
  bool is_ops_only = false;  // a bucket of operations, and no bucket of bytes
  bool is_sliced = false;    // a slice of a cluster-wide limit
  std::optional<BucketShape> ops;
  std::optional<BucketShape> bytes;
  std::optional<ReserveShape> reserve = {};

  bool operator==(const Shapes&) const = default;
  // Whether a request takes the same amounts from the same buckets.
  bool takes_alike(const Shapes& other) const {
    return cost == other.cost && ops.has_value() == other.ops.has_value() &&
           bytes.has_value() == other.bytes.has_value() && reserves_alike(other);
  }
  // Whether it has a reservation of the same kind, or none.
  bool reserves_alike(const Shapes& other) const {
    if (!reserve || !other.reserve) return reserve.has_value() == other.reserve.has_value();
    return reserve->in_bytes == other.reserve->in_bytes;
  }
};

// The pace of classes.
struct alignas(64) Pace {
  Shapes shapes;
  std::optional<Shapes> next;  // a change in progress
  RuleState* state = nullptr;
  Slice slice;     // for a rule with scope=cluster
  Attributes key;  // of the class that it belongs to
};

// A rule in the engine. A rule started for both heads has one state, so that its classes have
// one bucket.
struct RuleState {
  Pace pace;  // of all classes except those in `own`
  // Of classes with their own slice, by key.
  absl::flat_hash_map<Attributes, std::unique_ptr<Pace>, std::hash<Attributes>> own;
  FieldSet by;
  std::array<const Rule*, 2> listed{};  // the rule on each head
  std::uint32_t rules = 0;              // how many of them are still in their lists
  Instant started{};
  std::uint32_t classes = 0;
};

// Waiting requests.
struct Backlog {
  void operator+=(const Backlog& more) {
    requests += more.requests;
    bytes += more.bytes;
  }
  void operator-=(const Backlog& fewer) {
    requests -= fewer.requests;
    bytes -= fewer.bytes;
  }
  // Their cost in a bucket; lower by the rounding of each if the size of a request counts.
  Tokens cost(const Cost& each) const {
    switch (each.kind()) {
      case Cost::Kind::kOp:
        break;
      case Cost::Kind::kBytes:
        return Tokens{std::max(requests, bytes)};
      case Cost::Kind::kAffine:
        return Tokens{std::max(requests, each.base() * requests + each.per_kib() * (bytes / 1024))};
    }
    return Tokens{requests};
  }

  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;
};

// What a request has paid, stored in the request while it runs or is deferred: which buckets, and
// under which version of the rules, since refunds are for the buckets that paid.
class Receipt {
 public:
  static constexpr std::uint64_t kLimits = 1;
  static constexpr std::uint64_t kSlices = 2;  // cluster-wide limits, and no others
  static constexpr std::uint64_t kShare = 4;
  static constexpr std::uint64_t kLoan = 8;
  static constexpr std::uint64_t kRoot = 16;
  static constexpr std::uint64_t kReserve = 32;

  Receipt(std::uint32_t payers, std::uint64_t parts)
      : word_(std::uint64_t{payers} << kPartBits | parts) {}
  static Receipt of(std::uint64_t word) { return Receipt(word); }

  // In a tree of shares: the nodes that borrowed (ShareTree::lend).
  Receipt with_borrowers(std::uint8_t nodes) const {
    return Receipt(word_ | std::uint64_t{nodes} << kBorrowersShift);
  }
  std::uint8_t borrowers() const { return static_cast<std::uint8_t>(word_ >> kBorrowersShift); }

  std::uint64_t word() const { return word_; }
  bool paid(std::uint64_t any_of) const { return (word_ & any_of) != 0; }
  std::uint32_t payers() const { return static_cast<std::uint32_t>(word_ >> kPartBits); }

 private:
  static constexpr unsigned kPartBits = 8;
  static constexpr unsigned kBorrowersShift = kPartBits + 32;
  explicit Receipt(std::uint64_t word) : word_(word) {}
  std::uint64_t word_;
};

struct Bucket {
  bool is_occupied() const;

  TokenBucket tokens = TokenBucket::empty(Instant::min());
  // None: only the queue in which the class is stored can wait for it.
  std::unique_ptr<BucketWaiters> waiters;
};

struct Class {
  bool is_vacant() const { return pace == nullptr; }
  // REQUIRES: not vacant.
  RuleState* state() const { return pace->state; }

  template <class Visit>
  void each_bucket(Bytes size, Visit visit) {
    const Shapes& shapes = pace->shapes;
    if (shapes.ops) visit(main, *shapes.ops, shapes.cost.of(size));
    if (shapes.bytes) visit(shapes.ops ? *second : main, *shapes.bytes, Tokens{size.count()});
  }
  bool is_full(Instant now);
  // What a request adds to the tag: its cost divided by the rate, the larger one if there are two.
  std::uint64_t tag_step(Bytes size) {
    const Shapes& shapes = pace->shapes;
    Nanoseconds step{1};
    if (shapes.ops) step = std::max(step, shapes.ops->time_for(shapes.cost.of(size)));
    if (shapes.bytes) step = std::max(step, shapes.bytes->time_for(Tokens{size.count()}));
    return static_cast<std::uint64_t>(step.count());
  }
  // How far behind virtual time it may start after a pause.
  std::uint64_t credit() const {
    const Shapes& shapes = pace->shapes;
    if (shapes.ops) return static_cast<std::uint64_t>(shapes.ops->fill_time().count());
    return shapes.bytes ? static_cast<std::uint64_t>(shapes.bytes->fill_time().count()) : 0;
  }
  // What a request takes from its reservation. REQUIRES: it has one.
  Tokens reserve_cost(Bytes size) const {
    const Shapes& shapes = pace->shapes;
    return shapes.reserve->in_bytes ? Tokens{size.count()} : shapes.cost.of(size);
  }
  // Queues other than its host may use it.
  void open_to_others();
  // Balances are kept. A new bucket starts full; a bucket of a slice has the tokens since the rule
  // was started.
  void reshape(const Shapes& from, const Shapes& to, Instant now);

  Pace* pace = nullptr;
  Bucket main;  // of operations; of bytes if only bytes are limited
  std::uint64_t tag = 0;
  std::unique_ptr<Bucket> second;
  std::unique_ptr<Reservation> reservation;
  ClassTotals totals;
  std::uint32_t users = 0;          // queues
  std::array<bool, 2> is_listed{};  // counted as a reference of the rule of each head
  bool is_lone = false;             // not stored in a queue
};

// A class that is not stored in a queue.
struct LoneClass : Class {
  Attributes by;
  boost::intrusive::list_member_hook<> unused_hook;
  std::size_t place = 0;  // index in the engine's list
  Backlog waiting;        // in the queues that are counted here
};

// Fields that few queues need.
struct Extra {
  std::array<Class*, kLayers - 1> upper{};  // classes of layers 1-3
  bool has_upper = false;
  Share* share = nullptr;
  std::uint32_t group = 0;  // of its client, if there are groups
  bool is_later = false;    // another group is preferred
  // The class of the lowest layer that has a reservation; nullptr: none.
  Class* reserving = nullptr;
  Queue* queue = nullptr;  // whose Extra this is
  HeapHook reserve_hook;   // in the order of its reservation
  // In a tree of shares, the leaf of its job, and the node that its own fields name above it.
  ShareNode* leaf = nullptr;
  ShareNode* above = nullptr;
};

struct Queue {
  enum class Place : std::uint8_t {
    kIdle,    // no requests
    kReady,   // can pay
    kLater,   // can pay, while another group of clients is preferred
    kFirst,   // first at the bucket `at`, in the heap of wake-ups
    kBehind,  // behind another at the bucket `at`
    kSpare,   // has neither share nor limit: runs when nothing else does
    kTree,    // within its limits, in a tree of shares
  };

  void prefetch() const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(this);
    for (std::size_t line = 0; line < sizeof(Queue); line += 64) __builtin_prefetch(bytes + line);
  }
  bool has_requests() const { return !requests.empty(); }
  std::uint64_t turn() const { return requests.front().policy_turn; }
  std::uint64_t* key() { return reinterpret_cast<std::uint64_t*>(this + 1); }

  template <class Visit>
  void each_class(Visit visit) const {
    visit(*limits);
    if (extra == nullptr || !extra->has_upper) return;
    for (Class* const used : extra->upper) {
      if (used != nullptr) visit(*used);
    }
  }
  template <class Visit>
  void each_limit(Visit visit) {
    const Bytes size = requests.front().bytes;
    each_class([&](Class& used) { used.each_bucket(size, visit); });
  }
  // No bucket of its classes limits it: each_limit() would visit none.
  bool is_unlimited() const {
    const Shapes& shapes = limits->pace->shapes;
    return !shapes.ops && !shapes.bytes && (extra == nullptr || !extra->has_upper);
  }
  // Limited by one bucket of operations that no other queue uses, and no share.
  bool is_simple() const {
    return extra == nullptr && limits->main.waiters == nullptr && limits->pace->shapes.is_ops_only;
  }
  Share* share() const { return extra == nullptr ? nullptr : extra->share; }
  Class* reserving() const { return extra == nullptr ? nullptr : extra->reserving; }
  // A request arrives, or leaves.
  void join(const Request& request) { *counted += {1, request.bytes.count()}; }
  void part(const Request& request) { *counted -= {1, request.bytes.count()}; }
  bool is_later() const { return extra != nullptr && extra->is_later; }

  Ring<Request, &Request::policy_ring> requests;
  Backlog waiting;              // their number and size, while `counted` points here
  Backlog* counted = &waiting;  // or to that of the class shared with other queues
  Class* limits = nullptr;      // of layer 0
  std::unique_ptr<Extra> extra;
  std::uint64_t tag = 0;  // of its owner, when it was placed
  Bucket* at = nullptr;   // the bucket where it waits, or that released it
  HeapHook hook;
  std::uint32_t binding = 0;     // version of the binding
  std::uint32_t generation = 0;  // number of times this memory was used
  Head head = Head::kRegular;
  Place place = Place::kIdle;
  std::uint16_t watch = 0;  // its index in the WaitBreakdown, from 1; 0: not watched
  boost::intrusive::list_member_hook<> link;  // busy or idle
  Class own;
};

// A request of the queue runs.
inline void count_all(Queue& queue, const Request& request, Instant now) {
  queue.each_class([&](Class& used) { used.totals.start(request.starting(now)); });
}

using QueueList = boost::intrusive::list<
    Queue,
    boost::intrusive::member_hook<Queue, boost::intrusive::list_member_hook<>, &Queue::link>>;

// Queues that need the tokens of one bucket, in order of tags. One at a time is released.
struct BucketWaiters {
  Queue* first = nullptr;  // in the heap of wake-ups
  Queue* ahead = nullptr;  // was released and has not been served yet
  Heap<Queue, std::uint64_t, &Queue::hook> queues;
};

// Queues of one head that a reservation can pay for, in order of tags.
struct ReserveLine {
  HeapHook hook;
  Heap<Extra, std::uint64_t, &Extra::reserve_hook> queues;
};

struct Reservation {
  bool is_offered() const { return !lines[0].queues.empty() || !lines[1].queues.empty(); }

  TokenBucket tokens = TokenBucket::empty(Instant::min());
  Instant unused_since = Instant::min();  // unless it is offered
  bool was_offered = false;               // since the last report
  std::array<ReserveLine, 2> lines;       // by head
};

// Whether a queue waits there, or was released and has not been served.
inline bool Bucket::is_occupied() const {
  return waiters != nullptr && (waiters->first != nullptr || waiters->ahead != nullptr);
}

struct Share {
  // Without a rate it only determines the order.
  bool paces() const { return active && shape.has_value(); }

  JobId job;
  std::optional<BucketShape> shape;
  Bucket bucket;
  Spill spill;
  std::uint64_t nodes = 1;
  std::uint64_t unit = 1;  // of virtual time for a token of one node
  std::uint64_t tag = 0;
  std::uint64_t tag_part = 0;  // in 1/nodes
  std::uint64_t loan_tag = 0;
  std::uint64_t loan_part = 0;
  Tokens borrowed;
  Tokens lent;
  Tokens reserved;  // of requests that ran under a reservation
  std::uint32_t queues = 0;
  std::uint32_t busy = 0;  // queues with requests
  bool active = false;     // set by the controller
  HeapHook lend_hook;
  ShareNode* leaf = nullptr;  // in a tree of shares, which has the bucket and the tags
};

// The paces of a rule: the common one, and those of classes with their own.
template <class Visit>
void each_pace(RuleState& state, Visit visit) {
  visit(state.pace);
  for (const auto& [key, pace] : state.own) visit(*pace);
}

}  // namespace weir::tbf
