// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/dispatcher.h"

#include <algorithm>
#include <chrono>

#include "weir/base/assert.h"
#include "weir/host/clock.h"
#include "weir/serve/connection.h"

namespace weir::serve {
namespace {

// Maximum requests of a service dispatched at once: more than a turn reads, so that none pile up.
constexpr std::uint32_t kRunOfTurn = 1024;
// Entries in a row on behalf of other loops; then this loop does a turn of its own.
constexpr int kEntriesInARow = 4;
// Entries in a turn: cached reads complete at once and let others run.
constexpr int kEntriesOfTurn = 16;
constexpr Nanoseconds kPaceDepth = std::chrono::milliseconds{10};

Service& service_of(const PendingRequest& request) { return *served_by(request).service; }

// The oldest first.
PendingRequest* reverse(PendingRequest* newest) {
  PendingRequest* oldest = nullptr;
  while (newest != nullptr) {
    PendingRequest* const next = std::exchange(newest->next, oldest);
    oldest = std::exchange(newest, next);
  }
  return oldest;
}

void count(const PendingRequest& request, const RequestRecord& record) {
  served_by(request).stats.record(request.opened->stats, request.attributes.job, record);
}

}  // namespace

Dispatcher::Dispatcher(std::vector<Service*> services, std::size_t loops, TraceFile* trace)
    : services_(std::move(services)), trace_(trace) {
  for (std::size_t i = 0; i < loops; ++i) sides_.push_back(std::make_unique<Side>());
}

// ---- calls ----

void Dispatcher::admit(LoopContext& loop, PendingRequest& request) {
  if (!is_shared()) return service_of(request).target.admit(request, Head::kRegular, loop.now);
  call(loop, request, PendingRequest::Call::kAdmit);
}

void Dispatcher::complete(LoopContext& loop, PendingRequest& request, const Outcome& outcome,
                          bool is_counted) {
  if (!is_shared()) {
    const RequestRecord record = service_of(request).target.complete(request, loop.now, outcome);
    if (is_counted) count(request, record);
    return;
  }
  request.outcome = outcome;
  request.is_counted = is_counted;
  call(loop, request, PendingRequest::Call::kComplete);
}

void Dispatcher::call(LoopContext& loop, PendingRequest& request, PendingRequest::Call what) {
  Side& side = *sides_[loop.index];
  request.call = what;
  request.is_called.store(true, std::memory_order_relaxed);
  request.next = side.batch;
  if (side.batch == nullptr) side.batch_end = &request;
  side.batch = &request;
}

// Afterwards its loop may free it.
void Dispatcher::make(PendingRequest& request) {
  Target& target = service_of(request).target;
  if (request.call == PendingRequest::Call::kAdmit) {
    target.admit(request, Head::kRegular, last_);
  } else {
    const RequestRecord record = target.complete(request, last_, request.outcome);
    if (request.is_counted) count(request, record);
  }
  request.is_called.store(false, std::memory_order_release);
}

void Dispatcher::make_all(PendingRequest* newest) {
  PendingRequest* request = reverse(newest);
  while (request != nullptr) {
    PendingRequest* const next = request->next;
    make(*request);
    request = next;
  }
}

// The calls of other loops as found, then those of this loop.
void Dispatcher::make_calls(LoopContext& loop) {
  is_wanted_.store(false);
  PendingRequest* const left = inbox_.exchange(nullptr);
  last_ = std::max({last_, loop.now, Instant{Nanoseconds{left_ns_.load()}}});
  make_all(left);
  make_all(std::exchange(sides_[loop.index]->batch, nullptr));
}

// Leaves the calls of this loop to the holder of the lock, with the time, so that the holder also
// makes the decision that a timer of this loop was for.
void Dispatcher::hand_over(Side& side, Instant now) {
  const std::int64_t ns = ns_of(now);
  std::int64_t latest = left_ns_.load();
  while (latest < ns && !left_ns_.compare_exchange_weak(latest, ns)) {
  }
  if (side.wakes_at <= now) side.wakes_at = kNever;
  if (side.batch == nullptr) return is_wanted_.store(true);
  PendingRequest* const newest = std::exchange(side.batch, nullptr);
  side.batch_end->next = inbox_.load();
  while (!inbox_.compare_exchange_weak(side.batch_end->next, newest)) {
  }
}

// ---- commands ----

void Dispatcher::lock_and_wait(LoopContext& loop) {
  if (lock_.try_lock()) return;
  ++loop.stats.lock_busy;
  const Instant began = host::now();
  lock_.lock();
  loop.stats.lock_wait_ns += static_cast<std::uint64_t>((host::now() - began).count());
}

void Dispatcher::lock(LoopContext& loop) {
  if (!is_shared()) return lock_.assert_alone();
  lock_and_wait(loop);
  make_calls(loop);
}

// The loop enters again in this turn or the next, for the calls that were made and for those that
// other loops have left meanwhile.
void Dispatcher::unlock(LoopContext& loop) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!is_shared()) return;  // lock() has locked nothing
  last_ = std::max(last_, loop.now);
  sides_[loop.index]->needs_entry = true;
  lock_.unlock();
}

void Dispatcher::assert_locked() const {
  if (is_shared()) return lock_.assert_taken();
  lock_.assert_alone();
}

void Dispatcher::set_pace(std::optional<std::uint32_t> per_second, Instant now) {
  assert_locked();
  pace_shape_.reset();
  if (!per_second) return;
  const Rate rate = Rate::per_second(*per_second);
  pace_shape_.emplace(rate, std::max(Tokens{1}, tokens_in(rate, kPaceDepth)));
  pace_ = TokenBucket::empty(now);
}

// ---- decisions ----

// nullptr: none until service.wakes_at.
PendingRequest* Dispatcher::decide(Service& service, Instant now) {
  if (pace_shape_ && !pace_.can_take(Tokens{1}, *pace_shape_, now)) {
    const bool is_idle = service.target.queued() == 0;
    service.wakes_at = is_idle ? kNever : pace_.ready_at(Tokens{1}, *pace_shape_);
    return nullptr;
  }
  const Decision decision = service.next(now);
  if (decision.kind() != Decision::Kind::kRun) {
    service.wakes_at = decision.until();
    return nullptr;
  }
  if (pace_shape_) pace_.take(Tokens{1}, *pace_shape_, now);
  return &static_cast<PendingRequest&>(decision.request());
}

template <class Run>
void Dispatcher::decide_all(Instant now, Run run) {
  const std::size_t count = services_.size();
  // Services take turns at being first, so that none gets the whole pace.
  if (pace_shape_) first_served_ = (first_served_ + 1) % count;
  std::size_t at = first_served_;
  for (std::size_t i = 0; i < count; ++i) {
    Service& service = *services_[at];
    at = at + 1 == count ? 0 : at + 1;
    std::uint32_t ran = 0;
    for (; ran < kRunOfTurn; ++ran) {
      PendingRequest* const request = decide(service, now);
      if (request == nullptr) break;
      run(*request);
    }
    if (ran == kRunOfTurn) service.wakes_at = now;
  }
}

// When a decision or a block of the trace is due.
Instant Dispatcher::due() const {
  Instant at = trace_ != nullptr ? trace_->wakes_at() : kNever;
  for (const Service* const service : services_) at = std::min(at, service->wakes_at);
  return at;
}

void Dispatcher::deliver(const LoopContext& loop, PendingRequest& request) {
  Side& side = *sides_[request.loop];
  if (request.loop == loop.index) {
    request.next = nullptr;
    (side.decided == nullptr ? side.decided : side.decided_end->next) = &request;
    side.decided_end = &request;
    return;
  }
  request.next = side.mailbox.load(std::memory_order_relaxed);
  while (!side.mailbox.compare_exchange_weak(request.next, &request)) {
  }
  mail_ |= std::uint64_t{1} << request.loop;
}

// Takes over the timer if its own time is earlier, or if it already has the timer.
void Dispatcher::leave(LoopContext& loop) {
  Side& side = *sides_[loop.index];
  if (trace_ != nullptr) trace_->turn(last_);
  const Instant at = due();
  if (at < due_ || due_loop_ == loop.index || due_ <= last_) {
    due_ = at;
    due_loop_ = loop.index;
    side.wakes_at = at;
  } else {
    side.wakes_at = kNever;
  }
  if (component_ == nullptr) return;
  const std::int64_t component_at = ns_of(component_->wakes_at());
  if (component_at < component_ns_.exchange(component_at) && loop.index != 0) mail_ |= 1;
}

void Dispatcher::visit(LoopContext& loop) {
  make_calls(loop);
  decide_all(last_, [&](PendingRequest& request) {
    lock_.assert_taken();
    deliver(loop, request);
  });
  leave(loop);
}

bool Dispatcher::needs_entry(const LoopContext& loop) const {
  const Side& side = *sides_[loop.index];
  return side.batch != nullptr || side.needs_entry || side.wakes_at <= loop.now;
}

void Dispatcher::enter(LoopContext& loop) {
  Side& side = *sides_[loop.index];
  side.needs_entry = false;
  if (!lock_.try_lock()) {
    ++loop.stats.lock_busy;
    hand_over(side, loop.now);
    if (!lock_.try_lock()) return;
  }
  for (int entries = 1;; ++entries) {
    visit(loop);
    const std::uint64_t mail = std::exchange(mail_, 0);
    lock_.unlock();
    if (mail != 0) loop.server.ring(mail);
    if (!is_wanted()) return;
    if (entries == kEntriesInARow) {
      side.needs_entry = true;
      return;
    }
    if (!lock_.try_lock()) return;
  }
}

// ---- turns ----

PendingRequest* Dispatcher::take_decided(Side& side) {
  if (side.decided == nullptr) {
    if (side.mailbox.load(std::memory_order_relaxed) == nullptr) return nullptr;
    side.decided_end = side.mailbox.exchange(nullptr);
    side.decided = reverse(side.decided_end);
  }
  return std::exchange(side.decided, side.decided->next);
}

void Dispatcher::forget_decided(const LoopContext& loop, PendingRequest& request) {
  Side& side = *sides_[loop.index];
  PendingRequest* mailed_end = side.mailbox.exchange(nullptr);
  if (PendingRequest* const mailed = reverse(mailed_end); mailed != nullptr) {
    (side.decided == nullptr ? side.decided : side.decided_end->next) = mailed;
    side.decided_end = mailed_end;
  }
  PendingRequest** at = &side.decided;
  PendingRequest* before = nullptr;
  while (*at != nullptr && *at != &request) {
    before = *at;
    at = &before->next;
  }
  WEIR_ASSERT(*at == &request);
  *at = request.next;
  if (side.decided_end == &request) side.decided_end = before;
}

void Dispatcher::start_decided(LoopContext& loop) {
  Side& side = *sides_[loop.index];
  while (PendingRequest* const request = take_decided(side)) request->connection->run(*request);
}

void Dispatcher::dispatch(LoopContext& loop) {
  if (!is_shared()) {
    lock_.assert_alone();
    decide_all(loop.now, [](PendingRequest& request) { request.connection->run(request); });
    if (trace_ != nullptr) trace_->turn(loop.now);
    sides_[0]->wakes_at = due();
    return;
  }
  for (int entries = 0; entries < kEntriesOfTurn; ++entries) {
    start_decided(loop);
    if (!needs_entry(loop)) return;
    enter(loop);
  }
  start_decided(loop);
}

Instant Dispatcher::wakes_at(const LoopContext& loop) const {
  const Side& side = *sides_[loop.index];
  const bool is_due = side.needs_entry || side.batch != nullptr || side.decided != nullptr ||
                      side.mailbox.load() != nullptr;
  return is_due ? Instant::min() : side.wakes_at;
}

}  // namespace weir::serve
