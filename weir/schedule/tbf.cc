// SPDX-License-Identifier: Apache-2.0
//
// Admits, chooses and dispatches requests. Changes of rules and shares are in tbf_changes.cc,
// surcharges and refunds in tbf_settle.cc, and read-only views in tbf_views.cc.
#include "weir/schedule/tbf.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

// When all cluster-wide limits of the queue can pay; Instant::min() if there are none.
Instant slices_ready_at(tbf::Queue& queue) {
  Instant ready = Instant::min();
  const Bytes size = queue.requests.front().bytes;
  queue.each_class([&](tbf::Class& used) {
    if (!used.pace->shapes.is_sliced) return;
    used.each_bucket(size, [&](const tbf::Bucket& bucket, const BucketShape& shape, Tokens cost) {
      ready = std::max(ready, bucket.tokens.ready_at(cost, shape));
    });
  });
  return ready;
}

void pay_slices(tbf::Queue& queue, Bytes size, Instant now) {
  queue.each_class([&](tbf::Class& used) {
    if (!used.pace->shapes.is_sliced) return;
    used.each_bucket(size, [&](tbf::Bucket& bucket, const BucketShape& shape, Tokens cost) {
      bucket.tokens.take(cost, shape, now);
    });
  });
}

}  // namespace

Tbf::Tbf(FieldSet type, const RuleOptions& options, std::uint64_t stamp, Root* root)
    : options_(options),
      rules_(type, options),
      classes_(rules_),
      groups_(options.groups),
      shares_(options.sharing),
      root_(root == nullptr ? no_root_ : *root),
      waits_(options.watched_queues),
      tags_(options.sharing),
      binder_(type, options, rules_, classes_, shares_, groups_, waits_, stamp),
      run_(options, tags_, shares_, waits_, root_) {
  run_.reserve(options.classes_max);
}

Tbf::~Tbf() {
  for (const auto& busy : busy_) WEIR_ASSERT(busy.empty());
}

Instant Tbf::root_ready_at(const Request& request) const {
  if (!root_.exists()) return Instant::min();
  return root_.ready_at(root_.cost_of(request.bytes));
}

// Takes from all buckets or from none. REQUIRES: the root can pay.
bool Tbf::pay(Queue& queue, const Request& request, Instant now) {
  if (tbf::empty_limit(queue, now) != nullptr) return false;
  Share* const share = queue.share();
  if (share != nullptr && share->paces()) {
    const Tokens cost = options_.sharing->cost.of(request.bytes);
    if (!share->bucket.tokens.take(cost, *share->shape, now)) return false;
  }
  pay_limits(queue, request, now);
  return true;
}

// REQUIRES: the limits can pay, and the root too.
void Tbf::pay_limits(Queue& queue, const Request& request, Instant now) {
  if (!queue.is_unlimited()) {
    queue.each_limit([&](Bucket& bucket, const BucketShape& shape, Tokens cost) {
      const bool taken = bucket.tokens.take(cost, shape, now);
      WEIR_ASSERT(taken);
    });
  }
  if (root_.exists()) root_.pay(root_.cost_of(request.bytes), now);
}

// For a request whose limits have just paid, and the root if there is one.
Tbf::Receipt Tbf::receipt(std::uint64_t more) const {
  return {payers_, Receipt::kLimits | more | (root_.exists() ? Receipt::kRoot : 0)};
}

// Serves the first ready queue that can still pay. Others may have taken from a shared bucket, or
// moved a shared tag, since it became ready.
Pick Tbf::serve_ready(Head head, Instant now) {
  while (Queue* const queue = run_.ready(head)) {
    if (run_.falls_back(*queue, now)) continue;
    Request& first = queue->requests.front();
    if (queue->is_simple() && !root_.exists()) [[likely]] {
      if (serve_simple(*queue, first, now)) return {&first, kNever};
      continue;
    }
    if (const Instant at = root_ready_at(first); at > now) {
      waits_.root_refused(now, at);
      return {nullptr, at};
    }
    if (serve_any(*queue, first, now)) return {&first, kNever};
  }
  return {nullptr, run_.next_wake()};
}

// Serves the first queue of another group. REQUIRES: no queue of the preferred group is ready.
Pick Tbf::serve_later(Instant now) {
  while (Queue* const queue = run_.later()) {
    if (run_.falls_back(*queue, now)) continue;
    Request& first = queue->requests.front();
    if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
    if (serve_any(*queue, first, now)) return {&first, kNever};
  }
  return {nullptr, run_.next_wake()};
}

// Serves the first queue whose reservation can pay. Its share and the root are charged; their
// balances do not matter. Moves its tag, but not virtual time.
Pick Tbf::serve_reserved(Head head, Instant now) {
  while (Queue* const queue = run_.reserves().first(head, now)) {
    Request& first = queue->requests.front();
    // Others may have taken from a shared limit since it was offered.
    if (tbf::empty_limit(*queue, now) != nullptr) {
      run_.leave(*queue, now);
      run_.enter(*queue, now);
      continue;
    }
    run_.reserves().pay(*queue, first.bytes, now);
    pay_limits(*queue, first, now);
    std::uint64_t paid = Receipt::kReserve;
    if (Share* const share = queue->share()) {
      const Tokens cost = options_.sharing->cost.of(first.bytes);
      if (shares_.charge_reserved(*share, cost, now)) paid |= Receipt::kShare;
      if (share->leaf == nullptr) run_.bucket_changed(share->bucket, *queue);
    }
    count_all(*queue, first, now);
    tags_.step_reserved(*queue, first);
    return serve(*queue, first, receipt(paid), now);
  }
  return {nullptr, run_.reserves().next_at(head)};
}

// For any limits and share. False if it could not pay, and waits.
bool Tbf::serve_any(Queue& queue, Request& first, Instant now) {
  const bool paid = pay(queue, first, now);
  // Then it moves within the heap of ready queues, instead of out of it and in again.
  const bool stays = paid && queue.requests.behind(first) != nullptr && run_.is_free(queue);
  stays ? run_.end_first(queue, now) : run_.leave(queue, now);
  waits_.root_paid();
  if (!paid) {
    run_.enter(queue, now);
    return false;
  }
  count_all(queue, first, now);
  tags_.step(queue, first);
  const Share* const share = queue.share();
  const Receipt paid_for = receipt(share != nullptr && share->paces() ? Receipt::kShare : 0);
  if (stays) {
    take_request(queue, first, now);
    run_.keep_first(queue);
  } else {
    take_out(queue, first, now);
  }
  first.policy_turn = paid_for.word();
  return true;
}

// The usual case: its own class with one bucket. The queue moves within the heaps, and nothing else
// is touched. False if it could not pay, and waits. REQUIRES: it is the first ready queue.
bool Tbf::serve_simple(Queue& queue, Request& first, Instant now) {
  Class& limits = *queue.limits;
  const Shapes& shapes = limits.pace->shapes;
  const BucketShape& shape = *shapes.ops;
  const Tokens cost = shapes.cost.of(first.bytes);
  const bool paid = limits.main.tokens.take(cost, shape, now);
  const Request* next = &first;
  run_.end_first(queue, now);
  if (paid) {
    limits.totals.start(first.starting(now));
    run_.depart(queue, now);
    tags_.step(limits.tag,
               static_cast<std::uint64_t>(std::max(shape.time_for(cost), Nanoseconds{1}).count()));
    next = queue.requests.behind(first);
    queue.requests.erase(first);
    queue.waiting -= {1, first.bytes.count()};
    first.policy_turn = simple_receipt_;
  }
  if (next != nullptr) {
    run_.move_first(queue, *next, now);
  } else {
    run_.remove_first(queue);
    become_idle(queue, now);
  }
  run_.prefetch_queue(queue.head);
  return paid;
}

// Removes the first request from a queue that paid for it.
Pick Tbf::serve(Queue& queue, Request& first, Receipt paid_for, Instant now) {
  run_.leave(queue, now);
  take_out(queue, first, now);
  first.policy_turn = paid_for.word();
  return {&first, kNever};
}

// A queue that lacks only a share runs on unused capacity; the job that has borrowed least for its
// weight is first. Moves neither tag nor virtual time.
Pick Tbf::serve_borrower(Head head, Instant now) {
  while (Share* const share = shares_.next_borrower()) {
    Queue* const queue = share->bucket.waiters->first;
    if (Bucket* const lacking = tbf::lacking_limit(*queue, now)) {
      run_.leave(*queue, now);
      run_.wait_at(*lacking, *queue);
      continue;
    }
    if (queue->head != head) return {};
    Request& first = queue->requests.front();
    if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
    pay_limits(*queue, first, now);
    shares_.lend(*share, options_.sharing->cost.of(first.bytes));
    count_all(*queue, first, now);
    return serve(*queue, first, receipt(Receipt::kLoan), now);
  }
  return {};
}

// Queues with neither share nor limit, first come, first served.
Pick Tbf::serve_spare(Head head, Instant now) {
  Queue* const queue = run_.spare(head);
  if (queue == nullptr) return {};
  Request& first = queue->requests.front();
  if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
  pay_limits(*queue, first, now);
  count_all(*queue, first, now);
  return serve(*queue, first, receipt(0), now);
}

// Without payment.
Pick Tbf::force(Head head, Instant now) {
  if (busy(head).empty()) return {};
  Queue& queue = busy(head).front();
  return serve(queue, queue.requests.front(), Receipt::of(0), now);
}

// Only during shutdown: O(queues with requests).
Pick Tbf::finish(Head head, Instant now) {
  Instant next = kNever;
  for (Queue& queue : busy(head)) {
    if (const Instant at = slices_ready_at(queue); at > now) {
      next = std::min(next, at);
      continue;
    }
    Request& first = queue.requests.front();
    pay_slices(queue, first.bytes, now);
    return serve(queue, first, Receipt(payers_, Receipt::kSlices), now);
  }
  return {nullptr, next};
}

// The usual case needs none of the functions below: neither tree, root, reservation nor group.
Pick Tbf::pick(Head head, Instant now, Urge urge) {
  if (urge != Urge::kInTime || shares_.tree() != nullptr) [[unlikely]]
    return pick_otherwise(head, now, urge);
  run_.wake(now);
  Queue* const queue = run_.ready(head);
  if (queue == nullptr || !queue->is_simple() || root_.exists() || run_.reserves().has_any() ||
      run_.falls_back(*queue, now)) {
    return pick_in_order(head, now);
  }
  Request& first = queue->requests.front();
  if (serve_simple(*queue, first, now)) [[likely]]
    return {&first, kNever};
  return pick_in_order(head, now);
}

Pick Tbf::pick_otherwise(Head head, Instant now, Urge urge) {
  if (urge == Urge::kForce) return force(head, now);
  if (urge == Urge::kFinish) return finish(head, now);
  if (shares_.tree() != nullptr) return pick_in_tree(head, now, urge);
  const Pick borrower = serve_borrower(head, now);
  if (borrower.request != nullptr || borrower.until != kNever) return borrower;
  const Pick spare = serve_spare(head, now);
  if (spare.request != nullptr || spare.until != kNever) return spare;
  if (!shares_.has_offers()) root_.rest();  // waiting queues wait for their own limits
  return borrower;
}

// Reservations first, then the ready queues, those of the preferred group before others.
Pick Tbf::pick_in_order(Head head, Instant now) {
  // A queue that could not pay may have released another one.
  for (;;) {
    run_.wake(now);
    if (head == Head::kRegular && run_.reserves().next_at(head) <= now) {
      const Pick reserved = serve_reserved(head, now);
      if (reserved.request != nullptr) return reserved;
    }
    Pick pick = serve_ready(head, now);
    if (pick.request != nullptr) return pick;
    if (head == Head::kRegular && run_.later() != nullptr && run_.ready(head) == nullptr) {
      pick = serve_later(now);
      if (pick.request != nullptr) return pick;
    }
    if (head == Head::kHigh && run_.reserves().next_at(head) <= now) {
      const Pick reserved = serve_reserved(head, now);
      if (reserved.request != nullptr) return reserved;
    }
    pick.until = std::min(pick.until, run_.reserves().next_at(head));
    if (pick.until <= now) continue;
    // Waiting queues wait for their own limits. Under shares they may still borrow.
    if (!options_.sharing && run_.ready(head) == nullptr) root_.rest();
    return pick;
  }
}

// One request leaves. REQUIRES: the time until now has been counted.
void Tbf::take_request(Queue& queue, Request& request, Instant now) {
  run_.depart(queue, now);
  queue.requests.erase(request);
  queue.part(request);
  request.policy_group = nullptr;
}

// The same, and places the queue. REQUIRES: it is in no place.
void Tbf::take_out(Queue& queue, Request& request, Instant now) {
  take_request(queue, request, now);
  queue.has_requests() ? run_.enter(queue, now) : become_idle(queue, now);
}

void Tbf::become_busy(Queue& queue, Instant now) {
  binder_.become_busy(queue);
  busy(queue.head).push_back(queue);
  waits_.begin(queue, now);
  if (queue.extra == nullptr) return;
  groups_.become_busy(queue.extra->group, queue.head);
  queue.extra->is_later = groups_.is_set_back(queue.extra->group, queue.head);
  Share* const share = queue.extra->share;
  if (share == nullptr) return;
  if (share->busy == 0) tbf::Shares::settle_spill(*share, now);
  ++share->busy;
  if (share->leaf != nullptr) shares_.tree()->become_busy(queue, now);
}

void Tbf::become_idle(Queue& queue, Instant now) {
  busy(queue.head).erase(busy(queue.head).iterator_to(queue));
  binder_.become_idle(queue);
  if (queue.extra == nullptr) return;
  groups_.become_idle(queue.extra->group, queue.head);
  Share* const share = queue.extra->share;
  if (share == nullptr) return;
  tbf::Shares::settle_spill(*share, now);
  --share->busy;
  if (share->leaf != nullptr) tbf::TreeQueues::become_idle(queue, now);
}

void Tbf::admit(Request& request, Head head, Instant now) {
  Queue& queue = binder_.find(request, head, now);
  request.policy_group = &queue;
  request.policy_turn = arrivals_++;
  const bool was_idle = !queue.has_requests();
  queue.requests.push_back(request);
  queue.join(request);
  if (!was_idle) {
    run_.arrive(queue, now);
    if (const tbf::TreeQueues* const tree = shares_.tree()) [[unlikely]] {
      return tree->prefetch_queue(tbf::TreeQueues::rank_of(queue));
    }
    return run_.prefetch_request(head);
  }
  become_busy(queue, now);
  run_.arrive(queue, now);
  run_.enter(queue, now);
}

void Tbf::remove(Request& request, Head /*head*/, Instant now) {
  Queue& queue = *static_cast<Queue*>(request.policy_group);
  if (&queue.requests.front() == &request) {
    run_.leave(queue, now);
    take_out(queue, request, now);
    return;
  }
  run_.count(queue, now);
  take_request(queue, request, now);
}

}  // namespace weir
