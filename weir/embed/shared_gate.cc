// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/shared_gate.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/host/clock.h"

namespace weir::embed {
namespace {

// Answers that are collected under one lock.
constexpr std::size_t kBatch = 16;

}  // namespace

SharedGate::SharedGate(const Gate::Options& options, host::TimerFd timer, host::Fd stop)
    : gate_(options), timer_(std::move(timer)), stop_(std::move(stop)) {}

Result<std::unique_ptr<SharedGate>> SharedGate::create(const Gate::Options& options) {
  auto timer = host::TimerFd::create();
  if (!timer) return tl::unexpected(timer.error());
  host::Fd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.is_open()) return fail_errno(errno, "eventfd", "raise the limit of open files");
  std::unique_ptr<SharedGate> gate(new SharedGate(options, std::move(*timer), std::move(stop)));
  try {
    gate->timer_thread_ = std::thread([raw = gate.get()] { raw->run_timer(); });
  } catch (const std::system_error& error) {
    return fail_errno(error.code().value(), "timer thread", "raise the limit of processes");
  }
  return gate;
}

SharedGate::~SharedGate() {
  if (!timer_thread_.joinable()) return;
  const std::uint64_t one = 1;
  const ssize_t wrote = write(stop_.get(), &one, sizeof one);
  WEIR_ASSERT(wrote == sizeof one, errno);
  timer_thread_.join();
}

std::size_t SharedGate::collect(Instant now, Answer* answers, std::size_t most) {
  std::size_t count = 0;
  while (count < most && !waiters_.empty()) {
    const Decision decision = gate_.next(now);
    if (decision.kind() == Decision::Kind::kRun) {
      answers[count++] = {waiters_.back(), &decision.request()};
    } else if (gate_.is_shut_down() && gate_.queued() == 0) {
      answers[count++] = {waiters_.back(), nullptr};
    } else {
      // kNever, for idle, disarms.
      if (decision.until() != armed_for_) timer_.arm(armed_for_ = decision.until());
      return count;
    }
    waiters_.pop_back();
  }
  return count;
}

template <class Change>
auto SharedGate::with_gate(Change change) {
  Instant time = host::now();
  std::unique_lock<std::mutex> lock(mutex_);
  if constexpr (std::is_void_v<decltype(change(time))>) {
    change(time);
    hand_out(lock, time);
  } else {
    auto result = change(time);
    hand_out(lock, time);
    return result;
  }
}

// A callback that calls the gate leaves the handing out to the call it was made from, so that a
// worker who asks for the next from inside the last does not go deeper with each request.
void SharedGate::hand_out(std::unique_lock<std::mutex>& lock, Instant time) {
  struct Inside {
    const SharedGate* gate = nullptr;
    bool called = false;  // the gate, by a callback
  };
  thread_local Inside inside;
  if (inside.gate == this) {
    inside.called = true;
    return;
  }
  const Inside outer = std::exchange(inside, Inside{this});
  std::array<Answer, kBatch> answers;
  while (const std::size_t count = collect(time, answers.data(), answers.size())) {
    lock.unlock();
    inside.called = false;
    for (std::size_t i = 0; i < count; ++i) {
      answers[i].waiter.callback(answers[i].request, answers[i].waiter.argument);
    }
    if (count < kBatch && !inside.called) break;  // all there was
    time = host::now();
    lock.lock();
  }
  inside = outer;
}

void SharedGate::incoming(Request& request, Head head) {
  with_gate([&](Instant time) { gate_.admit(request, head, time); });
}

void SharedGate::get_next(Callback callback, void* argument) {
  with_gate([&](Instant) { waiters_.push_back({callback, argument}); });
}

void SharedGate::complete(Request& request) {
  with_gate([&](Instant time) { gate_.complete(request, time); });
}

void SharedGate::turn(Request* done, Request* arrived, Callback callback, void* argument) {
  with_gate([&](Instant time) {
    if (done != nullptr) gate_.complete(*done, time);
    if (arrived != nullptr) gate_.admit(*arrived, Head::kRegular, time);
    waiters_.push_back({callback, argument});
  });
}

bool SharedGate::withdraw(Request& request) {
  return with_gate([&](Instant time) {
    if (request.place() != Request::Place::kQueued) return false;
    gate_.withdraw(request, time);
    return true;
  });
}

void SharedGate::promote(Request& request) {
  with_gate([&](Instant time) {
    if (request.place() == Request::Place::kQueued) gate_.promote(request, time);
  });
}

void SharedGate::shutdown() {
  with_gate([&](Instant time) { gate_.shutdown(time); });
}

Result<void> SharedGate::start_policy(std::string_view name, std::string_view argument,
                                      Heads heads) {
  return with_gate([&](Instant) { return gate_.start_policy(name, argument, heads); });
}

Result<void> SharedGate::apply_rule(std::string_view text) {
  return with_gate([&](Instant time) { return gate_.write_rule(text, time); });
}

void SharedGate::run_timer() {
  std::array<pollfd, 2> wait{pollfd{timer_.fd(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
  for (;;) {
    const int ready = poll(wait.data(), wait.size(), -1);
    WEIR_ASSERT(ready > 0 || errno == EINTR, errno);
    if (ready < 0) continue;
    if (wait[1].revents != 0) return;
    with_gate([&](Instant) {
      if (timer_.acknowledge()) armed_for_ = kNever;
    });
  }
}

}  // namespace weir::embed
