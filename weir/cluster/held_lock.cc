// SPDX-License-Identifier: Apache-2.0
//
// The calls of a client that wait for an answer.
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "weir/cluster/lock_client.h"
#include "weir/host/clock.h"
#include "weir/host/mutex.h"

namespace weir::lock {

using EventKind = LockClient::Event::Kind;

struct HeldLock::State : Listener {
  void lock_event(const LockClient::Event& event) override {
    const host::MutexLock lock(mutex);
    if (event.kind == EventKind::kLost) {
      is_lost = true;
    } else if (event.number != conversions) {
      return;  // the answer to a conversion that has been withdrawn
    }
    answer = event;
    answered.notify_all();
  }

  // None: not within the timeout.
  std::optional<LockClient::Event> wait(std::optional<Nanoseconds> timeout) {
    const Instant begin = host::now();
    const host::MutexLock lock(mutex);
    for (;;) {
      const Nanoseconds waited = host::now() - begin;
      if (answer || (timeout && waited >= *timeout)) return std::exchange(answer, std::nullopt);
      timeout ? answered.wait_for(lock, *timeout - waited) : answered.wait(lock);
    }
  }
  // Call before each conversion.
  void expect_conversion() {
    const host::MutexLock lock(mutex);
    ++conversions;
    answer.reset();
  }

  Client* client = nullptr;
  Client::Ticket ticket = 0;
  std::atomic<std::uint64_t> fence = 0;
  Mode mode = Mode::kExclusive;
  std::string name;
  std::atomic<bool> is_lost = false;
  host::Mutex mutex;
  host::Condition answered;
  std::uint32_t conversions ABSL_GUARDED_BY(mutex) = 0;
  std::optional<LockClient::Event> answer ABSL_GUARDED_BY(mutex);
};

HeldLock::HeldLock(std::unique_ptr<State> state) : state_(std::move(state)) {}
HeldLock::HeldLock(HeldLock&&) noexcept = default;
HeldLock& HeldLock::operator=(HeldLock&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
HeldLock::~HeldLock() { release(); }

std::uint64_t HeldLock::fence() const { return state_->fence; }
bool HeldLock::is_lost() const { return state_->is_lost; }

void HeldLock::release() {
  if (state_ == nullptr) return;
  state_->client->release(state_->ticket);
  state_.reset();
}

namespace {

tl::unexpected<Error> refusal(std::string_view name, Refusal why) {
  switch (why) {
    case Refusal::kWouldWait:
      return fail(std::errc::resource_unavailable_try_again, name, "is held by another client");
    case Refusal::kBadName:
      return fail(std::errc::invalid_argument, name.substr(0, 32), "is not a valid lock name",
                  "expected 1 to 255 bytes");
    case Refusal::kUnsupported:
      return fail(std::errc::not_supported, name, "the server knows only shared and exclusive",
                  "update weir serve --lock");
    case Refusal::kInUse:
      return fail(std::errc::device_or_resource_busy, name,
                  "cannot be converted: other users of this client share it");
    case Refusal::kUnknown:
      return fail(std::errc::no_lock_available, name, "is lost");
    case Refusal::kDeadlock:
    case Refusal::kWithdrawn:
    case Refusal::kTooMany:
      break;
  }
  return fail(std::errc::no_buffer_space, name, "too many lock requests are waiting");
}

tl::unexpected<Error> deadlock(std::string_view name, const std::vector<Cycle::Step>& cycle) {
  return fail(std::errc::resource_deadlock_would_occur, name,
              "cannot be converted: " + cycle_text(cycle),
              "release it, or convert it to a mode that excludes less, and try again");
}

}  // namespace

std::string cycle_text(const std::vector<Cycle::Step>& cycle) {
  std::string text;
  for (const Cycle::Step& step : cycle) {
    text += fmt::format("{}client {:x} holds {} and wants {}", text.empty() ? "" : ", ",
                        step.client, mode_name(step.held), mode_name(step.wanted));
  }
  return text + "; each would wait for the next, and the last for the first";
}

Result<HeldLock> Client::take(std::string_view name, Mode mode,
                              std::optional<Nanoseconds> timeout) {
  return wait_for(name, mode, OrWait::kWait, timeout);
}

Result<HeldLock> Client::try_take(std::string_view name, Mode mode) {
  return wait_for(name, mode, OrWait::kTry, std::nullopt);
}

Result<HeldLock> Client::wait_for(std::string_view name, Mode mode, OrWait or_wait,
                                  std::optional<Nanoseconds> timeout) {
  auto state = std::make_unique<HeldLock::State>();
  HeldLock::State& waits = *state;
  waits.name = name;
  waits.mode = mode;
  const LockClient::Acquired acquired = acquire(name, mode, or_wait, waits);
  waits.client = this;
  waits.ticket = acquired.ticket;
  waits.fence = acquired.fence;
  if (acquired.is_held) return HeldLock(std::move(state));
  const std::optional<LockClient::Event> answer = waits.wait(timeout);
  if (answer && answer->kind == EventKind::kHeld) {
    waits.fence = answer->fence;
    return HeldLock(std::move(state));
  }
  release(acquired.ticket);
  if (answer) return refusal(name, answer->why);
  return fail(std::errc::timed_out, name, "was not granted within the timeout");
}

// ---- conversions ----

Result<void> HeldLock::convert(Mode mode, std::optional<Nanoseconds> timeout) {
  return convert(mode, LockTable::OrWait::kWait, timeout);
}

Result<void> HeldLock::try_convert(Mode mode) {
  return convert(mode, LockTable::OrWait::kTry, std::nullopt);
}

Result<void> HeldLock::convert(Mode mode, LockTable::OrWait or_wait,
                               std::optional<Nanoseconds> timeout) {
  State& state = *state_;
  state.expect_conversion();
  if (state.is_lost) return refusal(state.name, Refusal::kUnknown);
  const LockClient::Converted converted = state.client->convert(state.ticket, mode, or_wait);
  std::optional<LockClient::Event> answer;
  if (converted.is_done) {
    answer = LockClient::Event{EventKind::kConverted, state.ticket, converted.fence};
  } else {
    answer = state.wait(timeout);
  }
  if (!answer) {  // keeps the mode that it has, even if the lock was converted just now
    state.expect_conversion();
    state.client->convert(state.ticket, state.mode, LockTable::OrWait::kTry);
    return fail(std::errc::timed_out, state.name, "was not converted within the timeout");
  }
  if (answer->kind == EventKind::kLost) return refusal(state.name, Refusal::kUnknown);
  if (answer->kind == EventKind::kNotConverted) {
    if (answer->why != Refusal::kDeadlock) return refusal(state.name, answer->why);
    return deadlock(state.name, state.client->cycle(state.ticket));
  }
  state.fence = answer->fence;
  state.mode = mode;
  return {};
}

}  // namespace weir::lock
