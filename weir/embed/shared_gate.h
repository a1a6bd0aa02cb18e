// SPDX-License-Identifier: Apache-2.0
//
// A Gate for multi-threaded servers: one lock, one clock, and a timer that wakes threads that wait
// for tokens.
//
//   worker:    gate.get_next(serve, this);        serve(request, this) is called when one may run:
//                                                 at once, by the caller, if one is ready
//   receiver:  gate.incoming(request);            never fails, never waits for a slot
//   worker:    gate.complete(request);
//   worker:    gate.turn(done, arrived, serve, this);     all of these under one lock, for speed
//
// Callbacks run without the lock, in the thread whose call made the request ready: a get_next, an
// incoming, a complete, a command, or the gate's own timer thread. They must not block, and may
// call the gate. A request is handed out once, to one callback. After shutdown() queued requests
// are handed out without waiting for limits; then every get_next, waiting or new, is answered
// with nullptr.
//
// The clock is read before the lock is taken. A request that waits for tokens is handed out within
// the kernel's wake-up latency after its tokens arrive, well below 1 ms on an idle core.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "weir/base/result.h"
#include "weir/host/mailbox.h"
#include "weir/host/mutex.h"
#include "weir/host/timer_fd.h"
#include "weir/schedule/gate.h"

namespace weir::embed {

class SharedGate {
 public:
  using Callback = void (*)(Request* request, void* argument);

  // Fails if no timer or thread can be created.
  static Result<std::unique_ptr<SharedGate>> create(const Gate::Options& options);
  // REQUIRES: shut down, nothing queued or running, no call in progress.
  ~SharedGate();
  SharedGate(const SharedGate&) = delete;
  SharedGate& operator=(const SharedGate&) = delete;

  // REQUIRES: shutdown() has not been called.
  void incoming(Request& request, Head head = Head::kRegular);
  void get_next(Callback callback, void* argument);
  void complete(Request& request);
  // The whole turn of a worker under one lock: complete, incoming, get_next; the first two only if
  // given. The same request may be both.
  void turn(Request* done, Request* arrived, Callback callback, void* argument);
  // Withdraws a request that is still queued; false if it was handed out.
  bool withdraw(Request& request);
  void promote(Request& request);
  void shutdown();

  Result<void> start_policy(std::string_view name, std::string_view argument, Heads heads);
  Result<void> apply_rule(std::string_view text);

 private:
  struct Waiter {
    Callback callback;
    void* argument;
  };
  struct Answer {
    Waiter waiter;
    Request* request;
  };

  // State shared by all threads.
  struct State {
    Gate gate;
    std::vector<Waiter> waiters;  // last in, first out: the newest is still in cache
    Instant armed_for = kNever;
  };

  SharedGate(const Gate::Options& options, host::TimerFd timer, host::Wake stop);
  // Applies `change` to the state under the lock, then hands out requests that may run.
  template <class Change>
  auto with_gate(Change change) ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls back, without the lock, until no waiter is left or no request may run.
  void hand_out(Instant time) ABSL_UNLOCK_FUNCTION(mutex_);
  // Collects answers for up to `most` waiters; arms the timer when no more requests may run.
  std::size_t collect(Instant now, Answer* answers, std::size_t most)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run_timer();

  host::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  host::TimerFd timer_;
  host::Wake stop_;  // set when the timer thread must stop
  std::thread timer_thread_;
};

}  // namespace weir::embed
