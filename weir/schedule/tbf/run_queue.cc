// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/run_queue.h"

#include <utility>

#include "weir/base/assert.h"
#include "weir/schedule/tbf/tree_queues.h"

namespace weir::tbf {
namespace {

bool is_before(const Queue& a, const Queue& b) {
  return a.tag != b.tag ? a.tag < b.tag : a.turn() < b.turn();
}

// At a bucket, queues of the preferred group go before all others.
std::uint64_t waiter_key(const Queue& queue) {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;
  return queue.is_later() ? queue.tag | kLast : queue.tag;
}

bool waits_before(const Queue& a, const Queue& b) {
  return a.is_later() != b.is_later() ? b.is_later() : is_before(a, b);
}

bool has_limits(Queue& queue) {
  bool limited = false;
  queue.each_limit([&](Bucket&, const BucketShape&, Tokens) { limited = true; });
  return limited;
}

}  // namespace

Bucket* last_empty_limit(Queue& queue, Instant now) {
  Bucket* last = nullptr;
  Instant ready = now;
  queue.each_limit([&](Bucket& bucket, const BucketShape& shape, Tokens cost) {
    const Instant at = bucket.tokens.ready_at(cost, shape);
    if (at > ready) {
      ready = at;
      last = &bucket;
    }
  });
  return last;
}

// A queue waits at a shared bucket only if it lacks nothing else: the queues behind it must not
// wait for another bucket of its own.
Bucket* empty_or_occupied_limit(Queue& queue, Instant now) {
  Bucket* lacking = last_empty_limit(queue, now);
  if (lacking != nullptr) return lacking;
  queue.each_limit([&](Bucket& bucket, const BucketShape&, Tokens) {
    if (bucket.is_occupied()) lacking = &bucket;
  });
  return lacking;
}

RunQueue::RunQueue(const RuleOptions& options, Tags& tags, Shares& shares, WaitBreakdown& waits,
                   const Root& root)
    : sharing_(options.sharing),
      is_plain_(!options.sharing && options.groups.empty()),
      tags_(tags),
      shares_(shares),
      waits_(waits),
      root_(root),
      reserves_(tags) {}

bool RunQueue::is_first_in_tree(const Queue& queue) const {
  return shares_.tree()->first(TreeQueues::rank_of(queue)) == &queue;
}

void RunQueue::reserve(std::size_t queues) {
  ready_[index(Head::kRegular)].reserve(queues);
  wake_.reserve(queues);
}

// When its bucket can pay.
Instant RunQueue::wake_time(Queue& queue) const {
  Share* const share = queue.share();
  if (share != nullptr && queue.at == &share->bucket) return share_ready_at(queue);
  Instant ready = kNever;
  queue.each_limit([&](const Bucket& bucket, const BucketShape& shape, Tokens cost) {
    if (&bucket == queue.at) ready = bucket.tokens.ready_at(cost, shape);
  });
  return ready;
}

// REQUIRES: its share paces it.
Instant RunQueue::share_ready_at(const Queue& queue) const {
  const Share& share = *queue.share();
  const Tokens cost = sharing_->cost.of(queue.requests.front().bytes);
  return share.bucket.tokens.ready_at(cost, *share.shape);
}

void RunQueue::enter(Queue& queue, Instant now) {
  queue.tag = tags_.start(queue);
  if (Bucket* const lacking = lacking_limit(queue, now)) {
    if (!is_plain_) yield_to(*lacking, queue, now);
    return wait_at(*lacking, queue);
  }
  enter_within_limits(queue, now);
}

// REQUIRES: its limits can pay.
void RunQueue::enter_within_limits(Queue& queue, Instant now) {
  if (queue.extra != nullptr) reserves_.offer(queue, now);
  if (is_plain_) return push_ready(queue, now);
  if (sharing_) {
    Share& share = *queue.share();
    if (share.leaf != nullptr && (share.active || has_limits(queue))) [[unlikely]] {
      return shares_.tree()->enter(queue, now);
    }
    if (share.paces()) {
      const bool is_free = !yield_to(share.bucket, queue, now) && !share.bucket.is_occupied();
      if (!is_free || share_ready_at(queue) > now) return wait_at(share.bucket, queue);
    } else if (!share.active && !has_limits(queue)) {
      queue.place = Queue::Place::kSpare;
      spare_[index(queue.head)].push(queue, queue.turn());
      return;
    }
  }
  push_paid(queue, now);
}

void RunQueue::push_paid(Queue& queue, Instant now) {
  queue.is_later() ? push_later(queue) : push_ready(queue, now);
}

// The queue that was first in order until now has waited for a slot.
void RunQueue::push_ready(Queue& queue, Instant now) {
  auto& ready = ready_[index(queue.head)];
  Queue* const first = ready.peek();
  if (first != nullptr && is_before(queue, *first)) count(*first, now);
  queue.place = Queue::Place::kReady;
  ready.push(queue, queue.tag, queue.turn());
  if (ready.peek() == &queue) waits_.first_since(queue.head, now);
}

void RunQueue::push_later(Queue& queue) {
  queue.place = Queue::Place::kLater;
  later_.push(queue, queue.tag, queue.turn());
}

void RunQueue::leave(Queue& queue, Instant now) {
  count(queue, now);
  reserves_.withdraw(queue, now);
  const Queue::Place place = std::exchange(queue.place, Queue::Place::kIdle);
  Bucket* const bucket = std::exchange(queue.at, nullptr);
  BucketWaiters* const waiters = bucket == nullptr ? nullptr : bucket->waiters.get();
  switch (place) {
    case Queue::Place::kIdle:
      WEIR_ASSERT(false);
      return;
    case Queue::Place::kTree:
      return shares_.tree()->leave(queue, now);
    case Queue::Place::kSpare:
      spare_[index(queue.head)].erase(queue);
      return;
    case Queue::Place::kBehind:
      waiters->queues.erase(queue);
      return;
    case Queue::Place::kReady:
      if (ready(queue.head) == &queue) waits_.first_since(queue.head, now);
      ready_[index(queue.head)].erase(queue);
      if (waiters == nullptr) return;
      waiters->ahead = nullptr;
      return promote(*bucket);
    case Queue::Place::kLater:
      later_.erase(queue);
      if (waiters == nullptr) return;
      waiters->ahead = nullptr;
      return promote(*bucket);
    case Queue::Place::kFirst:
      wake_.erase(queue);
      if (waiters == nullptr) return;
      waiters->first = nullptr;
      return promote(*bucket);
  }
}

void RunQueue::wait_at(Bucket& bucket, Queue& queue) {
  queue.at = &bucket;
  BucketWaiters* const waiters = bucket.waiters.get();
  if (waiters == nullptr) return stand_first(bucket, queue);
  if (waiters->first == nullptr && waiters->ahead == nullptr) return stand_first(bucket, queue);
  Queue* behind = &queue;
  if (waiters->first != nullptr && waits_before(queue, *waiters->first)) {
    behind = std::exchange(waiters->first, nullptr);
    wake_.erase(*behind);
    stand_first(bucket, queue);
  }
  behind->place = Queue::Place::kBehind;
  waiters->queues.push(*behind, waiter_key(*behind), behind->turn());
}

void RunQueue::stand_first(Bucket& bucket, Queue& queue) {
  queue.place = Queue::Place::kFirst;
  wake_.push(queue, wake_time(queue), queue.turn());
  if (bucket.waiters == nullptr) return;
  bucket.waiters->first = &queue;
  Share* const share = queue.share();
  if (share != nullptr && &share->bucket == &bucket && sharing_->lending)
    shares_.offer_loan(*share);
}

// The next queue becomes first, unless another was released and has not run yet.
void RunQueue::promote(Bucket& bucket) {
  BucketWaiters& waiters = *bucket.waiters;
  if (waiters.ahead != nullptr || waiters.first != nullptr || waiters.queues.empty()) return;
  stand_first(bucket, waiters.queues.pop());
}

// A queue that was released here, but whose group is not preferred, waits again behind a queue of
// the preferred group. Returns whether there was one.
bool RunQueue::yield_to(Bucket& bucket, const Queue& queue, Instant now) {
  BucketWaiters* const waiters = bucket.waiters.get();
  if (waiters == nullptr || waiters->ahead == nullptr) return false;
  if (!waiters->ahead->is_later() || queue.is_later()) return false;
  Queue& ahead = *std::exchange(waiters->ahead, nullptr);
  count(ahead, now);
  later_.erase(ahead);
  Share* const share = ahead.share();
  if (share == nullptr || &share->bucket != &bucket) reserves_.withdraw(ahead, now);
  ahead.place = Queue::Place::kBehind;
  waiters->queues.push(ahead, waiter_key(ahead), ahead.turn());
  return true;
}

// Another bucket of its limits at which it has to wait behind others. Only a queue before it in
// order may block it there: otherwise two could block each other in turn.
Bucket* RunQueue::blocking_bucket(Queue& queue, const Bucket& except) {
  Bucket* found = nullptr;
  queue.each_limit([&](Bucket& other, const BucketShape&, Tokens) {
    if (&other == &except || other.waiters == nullptr) return;
    const BucketWaiters& waiters = *other.waiters;
    const bool is_behind = waiters.ahead != nullptr ||
                           (waiters.first != nullptr && waits_before(*waiters.first, queue));
    if (is_behind) found = &other;
  });
  return found;
}

// The first queue in the heap of wake-ups becomes ready, or waits at another bucket.
void RunQueue::release_first(Instant now) {
  Queue& first = wake_.top();
  count(first, now);
  wake_.pop();
  Bucket& bucket = *std::exchange(first.at, nullptr);
  // Usually this is its only bucket and no other queue uses it: there is nothing else to check.
  if (first.is_simple()) return push_ready(first, now);
  BucketWaiters* const waiters = bucket.waiters.get();
  if (waiters != nullptr) waiters->first = nullptr;
  Bucket* elsewhere = empty_limit(first, now);
  if (elsewhere == nullptr) elsewhere = blocking_bucket(first, bucket);
  Share* const share = first.share();
  if (elsewhere != nullptr) {
    reserves_.withdraw(first, now);
    yield_to(*elsewhere, first, now);
    wait_at(*elsewhere, first);
  } else if (share != nullptr && (share->leaf != nullptr || share->paces()) &&
             &share->bucket != &bucket) {
    enter_within_limits(first, now);
  } else {
    if (waiters != nullptr) {
      waiters->ahead = &first;
      first.at = &bucket;
    }
    reserves_.offer(first, now);
    push_paid(first, now);
  }
  if (waiters != nullptr) promote(bucket);
}

void RunQueue::bucket_changed(Bucket& bucket, Queue& queue) {
  Queue* const first = bucket.waiters == nullptr ? &queue : bucket.waiters->first;
  if (first == nullptr || first->place != Queue::Place::kFirst || first->at != &bucket) return;
  wake_.update(*first, wake_time(*first), first->turn());
}

void RunQueue::move_back(Queue& queue, std::uint64_t tag, Instant now) {
  count(queue, now);
  queue.tag = tag;
  if (queue.place == Queue::Place::kLater) {
    later_.replace_top(tag, queue.turn());
  } else {
    waits_.first_since(queue.head, now);
    ready_[index(queue.head)].replace_top(tag, queue.turn());
  }
}

void RunQueue::move_first(Queue& queue, const Request& next, Instant now) {
  auto& ready = ready_[index(queue.head)];
  Class& limits = *queue.limits;
  const Shapes& shapes = limits.pace->shapes;
  const BucketShape& shape = *shapes.ops;
  const auto credit = static_cast<std::uint64_t>(shape.fill_time().count());
  queue.tag = tags_.start(limits.tag, credit, shapes.realtime);
  const Instant at = limits.main.tokens.ready_at(shapes.cost.of(next.bytes), shape);
  if (at <= now) return ready.replace_top(queue.tag, next.policy_turn);
  ready.pop();
  queue.place = Queue::Place::kFirst;
  queue.at = &limits.main;
  wake_.push(queue, at, next.policy_turn);
}

}  // namespace weir::tbf
