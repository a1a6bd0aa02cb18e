// SPDX-License-Identifier: Apache-2.0
//
// Where the loops of a server meet the Targets of its services. With one loop it passes calls on.
// With several, a Target is entered by one loop at a time, under a lock that no loop waits for on
// the path of a request:
//
//   loop 1  admit, complete --> batch --enter--> lock taken? --no--> [inbox, batch, next() ...]
//                                                    |                  |            |
//   loop 2  admit, complete --> batch --enter--> yes: to the inbox      |  loop 1: started now
//                                                                       '--> mailbox of loop 2
//
// The loop inside empties the inbox, makes its own calls, and asks next() until it waits; decisions
// for requests of another loop go to the mailbox of that loop, which is woken if it sleeps. Then it
// unlocks and looks into the inbox once more, so that nothing is left behind: if a loop finds the
// lock taken, the holder checks the inbox after that moment. The order of calls inside is the only
// order, so limits and shares are exact, whatever the number of loops, and a trace of it can be
// replayed.
//
// `now` never steps back inside: it is the later of the loop's turn and the last call. A stale time
// is safe, because tokens are counted late, never early.
//
// A request is free, queued in the Target, decided, started or done. Its loop frees it, never while
// a call of it is in a batch or inbox (PendingRequest::is_called), nor while it is queued or
// decided. Calls that are rare and need an answer (withdraw, defer, resume, charge, commands) wait
// for the lock: with().
//
// The loop that leaves with the earliest time at which a decision is due arms its own timer; an
// earlier timer of another loop costs that loop one useless entry.
//
// Each service has its own dispatcher, so they share no lock. With a trace or in a cluster, all
// services share one, because a trace is one sequence of calls and a member of a cluster acts on
// all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weir/base/time.h"
#include "weir/host/entry_lock.h"
#include "weir/pace/token_bucket.h"
#include "weir/serve/loop_component.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/service.h"
#include "weir/serve/trace_file.h"

namespace weir::serve {

class Dispatcher {
 public:
  // REQUIRES: all outlive it.
  Dispatcher(std::vector<Service*> services, std::size_t loops, TraceFile* trace);

  // ---- calls of a request, on its loop ----

  void admit(LoopContext& loop, PendingRequest& request);
  // REQUIRES: it is running.
  void complete(LoopContext& loop, PendingRequest& request, const Outcome& outcome,
                bool is_counted);
  // Calls function(now) when all earlier calls of this loop have been made. Not on the path of a
  // request: waits for the lock.
  template <class Function>
  auto with(LoopContext& loop, Function function);
  // Removes a decided request that has not been started. REQUIRES: inside with().
  void forget_decided(const LoopContext& loop, PendingRequest& request);

  // ---- turns of a loop ----

  // Starts the requests of this loop that were decided.
  void start_decided(LoopContext& loop);
  // Makes the calls and decisions of this turn, and starts what was decided.
  void dispatch(LoopContext& loop);
  // When the loop must call dispatch() again; Instant::min(): at once.
  Instant wakes_at(const LoopContext& loop) const;

  // ---- commands: all calls are made between these two ----

  // With one loop there is nothing to lock.
  void lock(LoopContext& loop) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock_);
  void unlock(LoopContext& loop) ABSL_UNLOCK_FUNCTION(lock_);
  // The time of the last call.
  Instant last() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) { return last_; }

  // Limits all of its services together to this many operations per second; none: no such limit.
  // REQUIRES: locked.
  void set_pace(std::optional<std::uint32_t> per_second, Instant now);
  // Its time is checked after each entry. REQUIRES: no loop runs.
  void set_component(const LoopComponent& component) { component_ = &component; }
  Instant component_wakes_at() const { return Instant{Nanoseconds{component_ns_.load()}}; }

 private:
  // Of each loop, on its own cache line.
  struct alignas(64) Side {
    // Only its loop uses these: calls, the newest first; decisions, the oldest first.
    PendingRequest* batch = nullptr;
    PendingRequest* batch_end = nullptr;  // the oldest
    PendingRequest* decided = nullptr;
    PendingRequest* decided_end = nullptr;
    bool needs_entry = false;
    Instant wakes_at = kNever;
    // Decisions of other loops, the newest first.
    std::atomic<PendingRequest*> mailbox = nullptr;
  };

  class ABSL_SCOPED_LOCKABLE Entry {
   public:
    Entry(Dispatcher& dispatcher, LoopContext& loop) ABSL_EXCLUSIVE_LOCK_FUNCTION(dispatcher.lock_)
        : dispatcher_(dispatcher), loop_(loop) {
      dispatcher.lock(loop);
    }
    ~Entry() ABSL_UNLOCK_FUNCTION() { dispatcher_.unlock(loop_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Dispatcher& dispatcher_;
    LoopContext& loop_;
  };

  bool is_shared() const { return sides_.size() > 1; }
  void call(LoopContext& loop, PendingRequest& request, PendingRequest::Call what);
  // Tells clang what its callers ensure.
  void assert_locked() const ABSL_ASSERT_EXCLUSIVE_LOCK(lock_);
  void make(PendingRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void make_all(PendingRequest* newest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void make_calls(LoopContext& loop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void hand_over(Side& side, Instant now);
  bool is_wanted() const { return inbox_.load() != nullptr || is_wanted_.load(); }
  bool needs_entry(const LoopContext& loop) const;
  void enter(LoopContext& loop);
  void visit(LoopContext& loop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void deliver(const LoopContext& loop, PendingRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void leave(LoopContext& loop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  PendingRequest* take_decided(Side& side);
  PendingRequest* decide(Service& service, Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  template <class Run>
  void decide_all(Instant now, Run run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void lock_and_wait(LoopContext& loop) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock_);
  Instant due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  std::vector<Service*> services_;
  TraceFile* trace_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::atomic<PendingRequest*> inbox_ = nullptr;  // calls, the newest first
  std::atomic<bool> is_wanted_ = false;           // a loop needed an entry and had no calls
  std::atomic<std::int64_t> left_ns_ = 0;         // the latest time of a loop that left either
  // Also guards the Targets of the services, and the trace.
  host::EntryLock lock_;
  Instant last_ ABSL_GUARDED_BY(lock_){};             // time of the last call
  std::uint64_t mail_ ABSL_GUARDED_BY(lock_) = 0;     // loops with new decisions, one bit each
  Instant due_ ABSL_GUARDED_BY(lock_) = kNever;       // when the next decision is due, and
  std::uint8_t due_loop_ ABSL_GUARDED_BY(lock_) = 0;  // the loop that has a timer for it
  std::optional<BucketShape> pace_shape_ ABSL_GUARDED_BY(lock_);
  TokenBucket pace_ ABSL_GUARDED_BY(lock_) = TokenBucket::empty(Instant{});
  // Service that is served first while there is a pace.
  std::size_t first_served_ ABSL_GUARDED_BY(lock_) = 0;
  const LoopComponent* component_ = nullptr;  // set before loops run
  std::atomic<std::int64_t> component_ns_ = 0;
};

template <class Function>
auto Dispatcher::with(LoopContext& loop, Function function) {
  if (!is_shared()) return function(loop.now);
  const Entry entry(*this, loop);
  return function(last_);
}

}  // namespace weir::serve
