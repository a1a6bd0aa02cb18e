// SPDX-License-Identifier: Apache-2.0
//
// Deciding which request runs. Queues and classes are found in tbf_classes.cc; what rules and
// controllers change is in tbf_rules.cc and tbf_shares.cc, groups of clients in tbf_groups.cc.
#include "weir/schedule/tbf.h"

#include <algorithm>

#include "weir/base/assert.h"
#include "weir/schedule/tbf_heaps.h"

namespace weir {

using tbf::advance;

// Under shares the job owns the tag, else the layer-0 class.
std::uint64_t& Tbf::owner_tag(const Queue& queue) const {
  return options_.sharing ? queue.share()->tag : queue.limits->tag;
}

// Brings the owner's tag up to where it may start, and gives what the queue stands by: the tag, or
// for a realtime rule the very first place.
std::uint64_t Tbf::start_tag(Queue& queue) {
  std::uint64_t& tag = owner_tag(queue);
  const std::uint64_t credit = options_.sharing ? 0 : queue.limits->credit();
  tag = std::max(tag, virtual_ns_ - credit);
  return queue.limits->pace->shapes.realtime ? 0 : tag;
}

void Tbf::step_tag(Queue& queue, const Request& request) {
  std::uint64_t& tag = owner_tag(queue);
  virtual_ns_ = std::max(virtual_ns_, tag);
  if (!options_.sharing) return advance(tag, queue.limits->tag_step(request.bytes));
  Share& share = *queue.share();
  advance(tag, tbf::Shares::weigh(share, options_.sharing->cost.of(request.bytes), share.tag_part));
}

// The limit bucket that cannot pay for the queue's first request for longest, if any cannot now.
Tbf::Bucket* Tbf::empty_limit(Queue& queue, Instant now) {
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

// A limit bucket that cannot pay, else one at which somebody else stands. It waits at a common
// bucket only if that is all it lacks: those behind it must not wait for another bucket of its.
// REQUIRES: it waits at no limit.
Tbf::Bucket* Tbf::lacking_limit(Queue& queue, Instant now) {
  Bucket* lacking = empty_limit(queue, now);
  if (lacking != nullptr) return lacking;
  queue.each_limit([&](Bucket& bucket, const BucketShape&, Tokens) {
    if (bucket.is_occupied()) lacking = &bucket;
  });
  return lacking;
}

// When the bucket it waits at can pay.
Instant Tbf::wake_time(Queue& queue) const {
  Share* const share = queue.share();
  if (share != nullptr && queue.at == &share->bucket) return share_ready_at(queue);
  Instant ready = kNever;
  queue.each_limit([&](const Bucket& bucket, const BucketShape& shape, Tokens cost) {
    if (&bucket == queue.at) ready = bucket.tokens.ready_at(cost, shape);
  });
  return ready;
}

// REQUIRES: it is paced.
Instant Tbf::share_ready_at(const Queue& queue) const {
  const Share& share = *queue.share();
  const Tokens cost = options_.sharing->cost.of(queue.requests.front().bytes);
  return share.bucket.tokens.ready_at(cost, *share.shape);
}

// REQUIRES: it has requests and stands nowhere.
void Tbf::enter(Queue& queue, Instant now) {
  queue.tag = start_tag(queue);
  if (Bucket* const lacking = lacking_limit(queue, now)) {
    if (!is_plain_) make_way(*lacking, queue, now);
    return wait_at(*lacking, queue);
  }
  enter_within_limits(queue, now);
}

// REQUIRES: its limits can pay.
void Tbf::enter_within_limits(Queue& queue, Instant now) {
  if (is_plain_) return push_ready(queue, now);
  if (options_.sharing) {
    Share& share = *queue.share();
    if (share.paces()) {
      const bool is_free = !make_way(share.bucket, queue, now) && !share.bucket.is_occupied();
      if (!is_free || share_ready_at(queue) > now) return wait_at(share.bucket, queue);
    } else if (!share.active && !has_limits(queue)) {
      queue.place = Queue::Place::kSpare;
      heaps_->spare[index(queue.head)].push(queue, queue.turn());
      return;
    }
  }
  queue.is_later() ? push_later(queue) : push_ready(queue, now);
}

// Who stood first in order and does not any more has waited for a slot until now.
void Tbf::push_ready(Queue& queue, Instant now) {
  auto& ready = heaps_->ready[index(queue.head)];
  Queue* const first = ready.peek();
  if (first != nullptr && is_before(queue, *first)) count_stay(*first, now);
  queue.place = Queue::Place::kReady;
  ready.push(queue, queue.tag, queue.turn());
  if (ready.peek() == &queue) waits_.first_since(queue.head, now);
}

bool Tbf::has_limits(Queue& queue) {
  bool limited = false;
  queue.each_limit([&](Bucket&, const BucketShape&, Tokens) { limited = true; });
  return limited;
}

// Takes it from where it stands; who waited behind it moves up.
void Tbf::leave(Queue& queue, Instant now) {
  count_stay(queue, now);
  const Queue::Place place = std::exchange(queue.place, Queue::Place::kIdle);
  Bucket* const bucket = std::exchange(queue.at, nullptr);
  Crowd* const crowd = bucket == nullptr ? nullptr : bucket->crowd.get();
  switch (place) {
    case Queue::Place::kIdle:
      WEIR_ASSERT(false);
      return;
    case Queue::Place::kSpare:
      heaps_->spare[index(queue.head)].erase(queue);
      return;
    case Queue::Place::kBehind:
      crowd->waiters.erase(queue);
      return;
    case Queue::Place::kReady:
      if (order_of(queue) == WaitOrder::kFirst) waits_.first_since(queue.head, now);
      heaps_->ready[index(queue.head)].erase(queue);
      if (crowd == nullptr) return;
      crowd->ahead = nullptr;
      return promote(*bucket);
    case Queue::Place::kLater:
      heaps_->later.erase(queue);
      if (crowd == nullptr) return;
      crowd->ahead = nullptr;
      return promote(*bucket);
    case Queue::Place::kFirst:
      heaps_->wake.erase(queue);
      if (crowd == nullptr) return;
      crowd->first = nullptr;
      return promote(*bucket);
  }
}

void Tbf::wait_at(Bucket& bucket, Queue& queue) {
  queue.at = &bucket;
  Crowd* const crowd = bucket.crowd.get();
  if (crowd == nullptr) return stand_first(bucket, queue);
  if (crowd->first == nullptr && crowd->ahead == nullptr) return stand_first(bucket, queue);
  Queue* behind = &queue;
  if (crowd->first != nullptr && is_before_in_crowd(queue, *crowd->first)) {
    behind = std::exchange(crowd->first, nullptr);
    heaps_->wake.erase(*behind);
    stand_first(bucket, queue);
  }
  behind->place = Queue::Place::kBehind;
  crowd->waiters.push(*behind, crowd_key(*behind), behind->turn());
}

bool Tbf::is_before(const Queue& a, const Queue& b) {
  return a.tag != b.tag ? a.tag < b.tag : a.turn() < b.turn();
}

void Tbf::stand_first(Bucket& bucket, Queue& queue) {
  queue.place = Queue::Place::kFirst;
  heaps_->wake.push(queue, wake_time(queue), queue.turn());
  if (bucket.crowd == nullptr) return;
  bucket.crowd->first = &queue;
  Share* const share = queue.share();
  if (share != nullptr && &share->bucket == &bucket && options_.sharing->lending)
    shares_.offer_loan(*share);
}

// The next in order stands first, unless one has gone ahead.
void Tbf::promote(Bucket& bucket) {
  Crowd& crowd = *bucket.crowd;
  if (crowd.ahead != nullptr || crowd.first != nullptr || crowd.waiters.empty()) return;
  stand_first(bucket, crowd.waiters.pop());
}

// The first in the heap of wake-ups becomes ready, or waits elsewhere from now on.
void Tbf::let_go(Instant now) {
  Queue& first = heaps_->wake.top();
  count_stay(first, now);
  heaps_->wake.pop();
  Bucket& bucket = *std::exchange(first.at, nullptr);
  Crowd* const crowd = bucket.crowd.get();
  if (crowd != nullptr) crowd->first = nullptr;
  Bucket* elsewhere = empty_limit(first, now);
  // Only who stands before it may hold it up elsewhere: else two could send each other to and fro.
  if (elsewhere == nullptr) {
    first.each_limit([&](Bucket& other, const BucketShape&, Tokens) {
      if (&other == &bucket || other.crowd == nullptr) return;
      const bool behind =
          other.crowd->ahead != nullptr ||
          (other.crowd->first != nullptr && is_before_in_crowd(*other.crowd->first, first));
      if (behind) elsewhere = &other;
    });
  }
  Share* const share = first.share();
  if (elsewhere != nullptr) {
    make_way(*elsewhere, first, now);
    wait_at(*elsewhere, first);
  } else if (share != nullptr && share->paces() && &share->bucket != &bucket) {
    enter_within_limits(first, now);
  } else {
    if (crowd != nullptr) {
      crowd->ahead = &first;
      first.at = &bucket;
    }
    first.is_later() ? push_later(first) : push_ready(first, now);
  }
  if (crowd != nullptr) promote(bucket);
}

Instant Tbf::root_ready_at(const Request& request) const {
  if (!root_.exists()) return Instant::min();
  return root_.ready_at(options_.sharing->cost.of(request.bytes));
}

// Takes from all buckets or from none. REQUIRES: the root can pay.
bool Tbf::pay(Queue& queue, const Request& request, Instant now) {
  if (empty_limit(queue, now) != nullptr) return false;
  Share* const share = queue.share();
  if (share != nullptr && share->paces()) {
    const Tokens cost = options_.sharing->cost.of(request.bytes);
    if (!share->bucket.tokens.take(cost, *share->shape, now)) return false;
  }
  pay_limits(queue, request, now);
  return true;
}

// REQUIRES: they can pay, and the root too.
void Tbf::pay_limits(Queue& queue, const Request& request, Instant now) {
  queue.each_limit([&](Bucket& bucket, const BucketShape& shape, Tokens cost) {
    const bool taken = bucket.tokens.take(cost, shape, now);
    WEIR_ASSERT(taken);
  });
  if (root_.exists()) root_.pay(options_.sharing->cost.of(request.bytes), now);
}

// Of a request whose limits have just paid, and the root where there is one.
Tbf::Receipt Tbf::receipt(std::uint64_t more) const {
  return {payers_, Receipt::kLimits | more | (root_.exists() ? Receipt::kRoot : 0)};
}

void Tbf::count(Class& used, const Request& request, Instant now) {
  ClassTotals& totals = used.totals;
  ++totals.served;
  totals.bytes += request.bytes.count();
  totals.waited_ns += static_cast<std::uint64_t>((now - request.admitted_at()).count());
}

void Tbf::count_all(Queue& queue, const Request& request, Instant now) {
  queue.each_class([&](Class& used) { count(used, request, now); });
}

// The first of the ready queues that can still pay. Others may have taken from a common bucket, or
// moved a common tag, since it became ready.
Pick Tbf::serve_ready(Head head, Instant now) {
  auto& ready = heaps_->ready[index(head)];
  while (Queue* const top = ready.peek()) {
    Queue& queue = *top;
    const std::uint64_t tag = owner_tag(queue);
    if (queue.tag < tag && queue.tag != 0) {
      count_stay(queue, now);
      waits_.first_since(head, now);
      queue.tag = tag;
      ready.replace_top(tag, queue.turn());
      continue;
    }
    Request& first = queue.requests.front();
    if (queue.is_simple()) [[likely]] {
      if (serve_simple(queue, first, now)) return {&first, kNever};
      continue;
    }
    if (const Instant at = root_ready_at(first); at > now) {
      waits_.root_refused(now, at);
      return {nullptr, at};
    }
    if (serve_any(queue, first, now)) return {&first, kNever};
  }
  return {nullptr, heaps_->wake.empty() ? kNever : heaps_->wake.top_key()};
}

// Whatever limits and share it has. False if it could not pay, and waits.
bool Tbf::serve_any(Queue& queue, Request& first, Instant now) {
  const bool paid = pay(queue, first, now);
  leave(queue, now);
  waits_.root_paid();
  if (!paid) {
    enter(queue, now);
    return false;
  }
  count_all(queue, first, now);
  step_tag(queue, first);
  const Share* const share = queue.share();
  const Receipt paid_for = receipt(share != nullptr && share->paces() ? Receipt::kShare : 0);
  take_out(queue, first, now);
  first.seat_turn = paid_for.word();
  return true;
}

// The usual case in one go: a class of its own with one bucket. The queue moves within the heaps,
// and nothing else is touched. False if it could not pay, and waits. REQUIRES: it is the top of its
// ready heap.
bool Tbf::serve_simple(Queue& queue, Request& first, Instant now) {
  auto& ready = heaps_->ready[index(queue.head)];
  Class& limits = *queue.limits;
  const Shapes& shapes = limits.pace->shapes;
  const BucketShape& shape = *shapes.ops;
  const Tokens cost = shapes.cost.of(first.bytes);
  const bool paid = limits.main.tokens.take(cost, shape, now);
  const Request* next = &first;
  if (queue.stay != 0) count_first(queue, now);
  waits_.first_since(queue.head, now);
  if (paid) {
    count(limits, first, now);
    depart(queue, now);
    virtual_ns_ = std::max(virtual_ns_, limits.tag);
    advance(limits.tag,
            static_cast<std::uint64_t>(std::max(shape.time_for(cost), Nanoseconds{1}).count()));
    next = queue.requests.behind(first);
    queue.requests.erase(first);
    queue.waiting -= {1, first.bytes.count()};
    first.seat_turn = simple_receipt_;
  }
  if (next == nullptr) {
    ready.pop();
    queue.place = Queue::Place::kIdle;
    become_idle(queue, now);
  } else {
    const auto credit = static_cast<std::uint64_t>(shape.fill_time().count());
    limits.tag = std::max(limits.tag, virtual_ns_ - credit);
    queue.tag = shapes.realtime ? 0 : limits.tag;
    const Instant at = limits.main.tokens.ready_at(shapes.cost.of(next->bytes), shape);
    if (at <= now) {
      ready.replace_top(queue.tag, next->seat_turn);
    } else {
      ready.pop();
      queue.place = Queue::Place::kFirst;
      queue.at = &limits.main;
      heaps_->wake.push(queue, at, next->seat_turn);
    }
  }
  // It will be asked for next, and is all over memory where there are many.
  if (const Queue* const next_up = ready.peek()) next_up->prefetch();
  return paid;
}

// Somebody who lacks only a share runs on what others do not use; who has borrowed least for its
// weight is first. It moves neither tag nor virtual time.
Pick Tbf::serve_borrower(Head head, Instant now) {
  while (Share* const share = shares_.next_borrower()) {
    Queue* const queue = share->bucket.crowd->first;
    if (Bucket* const lacking = lacking_limit(*queue, now)) {
      leave(*queue, now);
      wait_at(*lacking, *queue);
      continue;
    }
    if (queue->head != head) return {};
    Request& first = queue->requests.front();
    if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
    pay_limits(*queue, first, now);
    shares_.lend(*share, options_.sharing->cost.of(first.bytes));
    count_all(*queue, first, now);
    const Receipt paid_for = receipt(Receipt::kLoan);
    leave(*queue, now);
    take_out(*queue, first, now);
    first.seat_turn = paid_for.word();
    return {&first, kNever};
  }
  return {};
}

// Who has neither share nor limit, first come, first served.
Pick Tbf::serve_spare(Head head, Instant now) {
  auto& spare = heaps_->spare[index(head)];
  if (spare.empty()) return {};
  Queue& queue = spare.top();
  Request& first = queue.requests.front();
  if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
  pay_limits(queue, first, now);
  count_all(queue, first, now);
  const Receipt paid_for = receipt(0);
  leave(queue, now);
  take_out(queue, first, now);
  first.seat_turn = paid_for.word();
  return {&first, kNever};
}

Pick Tbf::force(Head head, Instant now) {
  auto& busy = heaps_->busy[index(head)];
  if (busy.empty()) return {};
  Queue& queue = busy.front();
  Request& first = queue.requests.front();
  leave(queue, now);
  take_out(queue, first, now);
  first.seat_turn = 0;  // it paid nothing
  return {&first, kNever};
}

Pick Tbf::pick(Head head, Instant now, Urge urge) {
  if (urge == Urge::kForce) return force(head, now);
  if (urge == Urge::kFinish) return finish(head, now);
  if (urge == Urge::kBorrow) {
    const Pick borrower = serve_borrower(head, now);
    if (borrower.request != nullptr || borrower.until != kNever) return borrower;
    const Pick spare = serve_spare(head, now);
    if (spare.request != nullptr || spare.until != kNever) return spare;
    if (!shares_.has_offers()) root_.rest();  // whoever waits does so for a limit of its own
    return borrower;
  }
  // Who could not pay after all may have let somebody else go.
  for (;;) {
    while (!heaps_->wake.empty() && heaps_->wake.top_key() <= now) let_go(now);
    Pick pick = serve_ready(head, now);
    if (pick.request != nullptr) return pick;
    if (head == Head::kRegular && !heaps_->later.empty() && heaps_->ready[index(head)].empty()) {
      pick = serve_later(now);
      if (pick.request != nullptr) return pick;
    }
    if (pick.until > now) return pick;
  }
}

// REQUIRES: the queue stands nowhere. Puts it where it belongs after one request less.
void Tbf::take_out(Queue& queue, Request& request, Instant now) {
  depart(queue, now);
  queue.requests.erase(request);
  part(queue, request);
  request.seat_group = nullptr;
  if (queue.has_requests()) {
    enter(queue, now);
  } else {
    become_idle(queue, now);
  }
}

void Tbf::become_busy(Queue& queue, Instant now) {
  heaps_->idle.erase(heaps_->idle.iterator_to(queue));
  heaps_->busy[index(queue.head)].push_back(queue);
  waits_.begin(queue, now);
  if (queue.extra == nullptr) return;
  groups_.become_busy(queue.extra->group, queue.head);
  queue.extra->is_later = groups_.is_set_back(queue.extra->group, queue.head);
  Share* const share = queue.extra->share;
  if (share == nullptr) return;
  if (share->busy == 0) tbf::Shares::settle_spill(*share, now);
  ++share->busy;
}

void Tbf::become_idle(Queue& queue, Instant now) {
  auto& busy = heaps_->busy[index(queue.head)];
  busy.erase(busy.iterator_to(queue));
  heaps_->idle.push_back(queue);
  if (queue.extra == nullptr) return;
  groups_.become_idle(queue.extra->group, queue.head);
  Share* const share = queue.extra->share;
  if (share == nullptr) return;
  tbf::Shares::settle_spill(*share, now);
  --share->busy;
}

void Tbf::admit(Request& request, Head head, Instant now) {
  Queue& queue = queue_of(request, head, now);
  request.seat_group = &queue;
  request.seat_turn = arrivals_++;
  const bool was_idle = !queue.has_requests();
  queue.requests.push_back(request);
  join(queue, request);
  if (!was_idle) {
    arrive(queue, now);
    return heaps_->prefetch_next(head);
  }
  if (heaps_->busy[0].empty() && heaps_->busy[1].empty()) root_.rest();
  become_busy(queue, now);
  arrive(queue, now);
  enter(queue, now);
}

void Tbf::remove(Request& request, Head /*head*/, Instant now) {
  Queue& queue = *static_cast<Queue*>(request.seat_group);
  if (&queue.requests.front() == &request) {
    leave(queue, now);
    take_out(queue, request, now);
    return;
  }
  count_stay(queue, now);
  depart(queue, now);
  queue.requests.erase(request);
  part(queue, request);
  request.seat_group = nullptr;
}

}  // namespace weir
