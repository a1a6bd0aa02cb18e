// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/shared_gate.h"

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include <poll.h>

#include "weir/base/assert.h"
#include "weir/host/clock.h"

namespace weir::embed {
namespace {

// Maximum number of answers collected under one lock.
constexpr std::size_t kBatch = 16;

}  // namespace

SharedGate::SharedGate(const Gate::Options& options, host::TimerFd timer, host::Wake stop)
    : state_{.gate = Gate(options), .waiters = {}},
      timer_(std::move(timer)),
      stop_(std::move(stop)) {}

Result<std::unique_ptr<SharedGate>> SharedGate::create(const Gate::Options& options) {
  auto timer = host::TimerFd::create();
  if (!timer) return tl::unexpected(timer.error());
  auto stop = host::make_wake_fd();
  if (!stop) return tl::unexpected(stop.error());
  std::unique_ptr<SharedGate> gate(
      new SharedGate(options, std::move(*timer), host::Wake(std::move(*stop))));
  try {
    gate->timer_thread_ = std::thread([raw = gate.get()] { raw->run_timer(); });
  } catch (const std::system_error& error) {
    return fail_errno(error.code().value(), "timer thread", "raise the limit of processes");
  }
  return gate;
}

SharedGate::~SharedGate() {
  if (!timer_thread_.joinable()) return;
  stop_.set();
  timer_thread_.join();
}

std::size_t SharedGate::collect(Instant now, Answer* answers, std::size_t most) {
  std::size_t count = 0;
  Gate& gate = state_.gate;
  std::vector<Waiter>& waiters = state_.waiters;
  while (count < most && !waiters.empty()) {
    const Decision decision = gate.next(now);
    if (decision.kind() == Decision::Kind::kRun) {
      answers[count++] = {waiters.back(), &decision.request()};
    } else if (gate.is_shut_down() && gate.queued() == 0) {
      answers[count++] = {waiters.back(), nullptr};
    } else {
      // kNever, for idle, disarms.
      if (decision.until() != state_.armed_for) timer_.arm(state_.armed_for = decision.until());
      return count;
    }
    waiters.pop_back();
  }
  return count;
}

template <class Change>
auto SharedGate::with_gate(Change change) {
  const Instant time = host::now();
  mutex_.lock();
  if constexpr (std::is_void_v<std::invoke_result_t<Change, State&, Instant>>) {
    change(state_, time);
    hand_out(time);
  } else {
    auto result = change(state_, time);
    hand_out(time);
    return result;
  }
}

// If a callback calls the gate, the outer call hands out the requests, so that a worker that asks
// for the next request in its callback does not recurse.
void SharedGate::hand_out(Instant time) {
  struct Inside {
    const SharedGate* gate = nullptr;
    bool called = false;  // the gate, by a callback
  };
  thread_local Inside inside;
  if (inside.gate == this) {
    inside.called = true;
    mutex_.unlock();
    return;
  }
  const Inside outer = std::exchange(inside, Inside{this});
  std::array<Answer, kBatch> answers;
  while (const std::size_t count = collect(time, answers.data(), answers.size())) {
    mutex_.unlock();
    inside.called = false;
    for (std::size_t i = 0; i < count; ++i) {
      answers[i].waiter.callback(answers[i].request, answers[i].waiter.argument);
    }
    if (count < kBatch && !inside.called) {  // no more answers
      inside = outer;
      return;
    }
    time = host::now();
    mutex_.lock();
  }
  mutex_.unlock();
  inside = outer;
}

void SharedGate::incoming(Request& request, Head head) {
  with_gate([&](State& state, Instant time) { state.gate.admit(request, head, time); });
}

void SharedGate::get_next(Callback callback, void* argument) {
  with_gate([&](State& state, Instant) { state.waiters.push_back({callback, argument}); });
}

void SharedGate::complete(Request& request) {
  with_gate([&](State& state, Instant time) { state.gate.complete(request, time); });
}

void SharedGate::turn(Request* done, Request* arrived, Callback callback, void* argument) {
  with_gate([&](State& state, Instant time) {
    if (done != nullptr) state.gate.complete(*done, time);
    if (arrived != nullptr) state.gate.admit(*arrived, Head::kRegular, time);
    state.waiters.push_back({callback, argument});
  });
}

bool SharedGate::withdraw(Request& request) {
  return with_gate([&](State& state, Instant time) {
    if (request.place() != Request::Place::kQueued) return false;
    state.gate.withdraw(request, time);
    return true;
  });
}

void SharedGate::promote(Request& request) {
  with_gate([&](State& state, Instant time) {
    if (request.place() == Request::Place::kQueued) state.gate.promote(request, time);
  });
}

void SharedGate::shutdown() {
  with_gate([&](State& state, Instant time) { state.gate.shutdown(time); });
}

Result<void> SharedGate::start_policy(std::string_view name, std::string_view argument,
                                      Heads heads) {
  return with_gate(
      [&](State& state, Instant) { return state.gate.start_policy(name, argument, heads); });
}

Result<void> SharedGate::apply_rule(std::string_view text) {
  return with_gate([&](State& state, Instant time) { return state.gate.write_rule(text, time); });
}

void SharedGate::run_timer() {
  std::array<pollfd, 2> wait{pollfd{timer_.fd(), POLLIN, 0}, pollfd{stop_.fd(), POLLIN, 0}};
  for (;;) {
    const int ready = poll(wait.data(), wait.size(), -1);
    WEIR_ASSERT(ready > 0 || errno == EINTR, errno);
    if (ready < 0) continue;
    if (wait[1].revents != 0) return;
    with_gate([&](State& state, Instant) {
      if (timer_.acknowledge()) state.armed_for = kNever;
    });
  }
}

}  // namespace weir::embed
