// SPDX-License-Identifier: Apache-2.0
//
// The part of a connection between the decision to run a request and its reply: the store, or work
// of the session itself.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "weir/serve/connection.h"
#include "weir/serve/dispatcher.h"
#include "weir/serve/session_check.h"

namespace weir::serve {
namespace {

// From this size on a read is sent with separate system calls, which saves a copy.
constexpr std::uint32_t kSendFileMin = 1U << 16;

// Data up to this size is compared with zeroes, which takes about 50 us.
constexpr std::size_t kHoleMax = std::size_t{1} << 20;

// Other data takes almost no time: it differs early.
bool is_hole(std::span<const std::byte> data) {
  return !data.empty() && data.size() <= kHoleMax && data.front() == std::byte{0} &&
         std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0;
}

}  // namespace

void Connection::run(PendingRequest& request) {
  queued_.erase(request);
  run_unless_hung(request);
}

void Connection::run_unless_hung(PendingRequest& request) {
  StoreWatch& watch = context_.local(served_by(request)).watch;
  if (!watch.is_hung() || std::exchange(request.is_tried, false)) return run_at_store(request);
  defer(request);
  kept_.push_back(request);
  request.operation.owner = &request;
  watch.keep(request.operation);
}

void Connection::run_kept(PendingRequest& request) {
  kept_.erase(request);
  resume(request);
}

void Connection::try_kept(PendingRequest& request) {
  request.is_tried = true;
  run_kept(request);
}

// At once, because the store may complete it at any time.
void Connection::give_up(PendingRequest& request) {
  dispatcher_of(request).with(context_, [&](Instant now) {
    if (request.place() != Request::Place::kRunning) return;
    served_by(request).service->target.complete(request, now, Outcome::failed());
  });
}

void Connection::defer(PendingRequest& request) {
  if (request.place() != Request::Place::kRunning) return;
  dispatcher_of(request).with(
      context_, [&](Instant now) { served_by(request).service->target.defer(request, now); });
}

// An exempt request does not wait for a slot.
void Connection::resume(PendingRequest& request) {
  if (request.place() != Request::Place::kDeferred) return run_unless_hung(request);
  queued_.push_back(request);
  dispatcher_of(request).with(
      context_, [&](Instant now) { served_by(request).service->target.resume(request, now); });
}

// A running request here was decided by another loop and has not been started.
void Connection::drop(PendingRequest& request) {
  Dispatcher& dispatcher = dispatcher_of(request);
  dispatcher.with(context_, [&](Instant now) {
    Target& target = served_by(request).service->target;
    if (request.place() == Request::Place::kRunning) {
      dispatcher.forget_decided(context_, request);
      target.complete(request, now, Outcome::not_started());
    } else if (request.place() != Request::Place::kOutside) {
      target.withdraw(request, now);
    }
  });
  release(request);
}

// If its slot was given up before, the Target has already counted the request, and it ends only
// now.
void Connection::leave_slot(PendingRequest& request, const Outcome& outcome, Counted counted) {
  const bool is_counted = counted == Counted::kYes;
  if (request.place() == Request::Place::kRunning) {
    return dispatcher_of(request).complete(context_, request, outcome, is_counted);
  }
  if (!is_counted) return;
  dispatcher_of(request).with(context_, [&](Instant now) {
    served_by(request).stats.record(request.opened->stats, request.attributes.job,
                                    request.ending(now, outcome));
  });
}

void Connection::run_at_store(PendingRequest& request) {
  const Store& store = *context_.local(served_by(request)).store;
  const bool reads = !request.is_own && request.command == StoreCommand::kRead;
  if (reads && request.length >= kSendFileMin && tls_ == nullptr && !request.buffer) {
    request.operation.file =
        store.sendable(request.offset, static_cast<std::uint32_t>(request.length));
  }
  const bool needs_buffer = request.is_own
                                ? request.reply_room > 0
                                : reads && request.operation.file < 0 && store.copies_reads();
  // A deferred request already has its buffer.
  if (needs_buffer && !request.buffer && !take_reply_memory(request)) {
    defer(request);
    parked_.push_back(request);
    return wait_for_room();
  }
  request.is_own ? run_own(request) : start(request);
}

// False while too much data waits for the client.
bool Connection::take_reply_memory(PendingRequest& request) {
  if (unsent_ >= kUnsentMax) return false;
  const std::size_t bytes = request.is_own ? request.reply_room : request.length;
  request.buffer = context_.pool.take(memory_, bytes);
  if (!request.buffer) note_starved(bytes);
  return static_cast<bool>(request.buffer);
}

void Connection::start(PendingRequest& request) {
  StoreOperation& operation = request.operation;
  operation.command = request.command;
  operation.flags = request.flags;
  operation.length = request.length;
  operation.offset = request.offset;
  operation.buffer = request.buffer ? request.buffer.first(request.length) : std::span<std::byte>{};
  operation.data = {};
  operation.finished = finished;
  operation.owner = &request;
  working_.push_back(request);
  LocalExport& local = context_.local(served_by(request));
  if (local.store->start(operation, context_.now)) return finish(request);
  if (local.store->can_hang()) local.watch.started(operation, context_.now);
}

void Connection::finished(StoreOperation& operation) {
  auto& request = *static_cast<PendingRequest*>(operation.owner);
  Connection& self = *request.connection;
  if (operation.watch.is_linked()) {
    LocalExport& local = self.context_.local(served_by(request));
    local.watch.finished(operation, self.context_.now);
    local.served.note_done(self.context_.now);
  }
  self.finish(request);
}

void Connection::finish(PendingRequest& request) {
  working_.erase(request);
  StoreOperation& operation = request.operation;
  const Outcome outcome = operation.error == 0 ? Outcome{} : Outcome::failed();
  if (operation.error != 0) note_store_error(request, operation.error);
  if (state_ == State::kClosed) {
    leave_slot(request, outcome);
    release(request);
    return settle();
  }
  if (makes_durable(request)) {
    const int lost = served_by(request).sync_errors.tell(request.opened->sync_mark);
    if (operation.error == 0 && lost != 0) {
      operation.error = lost;
      note_store_error(request, lost);
    }
  }
  // A prefetch is a read that moves no data to the client, and has no counter on an OST.
  const bool is_counted = operation.error == 0 && request.command != StoreCommand::kPrefetch;
  leave_slot(request, outcome, is_counted ? Counted::kYes : Counted::kNo);
  if (operation.error != 0) return reply_error(request);
  const bool has_hole = request.takes_hole && is_hole(operation.data);
  session_->reply(request, {.error = 0, .text = {}, .is_hole = has_hole});
  if (request.command == StoreCommand::kRead && !has_hole) {
    request.payload = operation.data;
  } else {
    context_.pool.give_back(memory_, std::move(request.buffer));
    context_.freed = true;
  }
  reply(request);
}

// Sessions have a bounded time per turn; later requests wait for the next turn.
void Connection::run_own(PendingRequest& request) {
  working_.push_back(request);
  if (context_.performs.empty() && context_.effort_left > 0) return perform(request);
  context_.performs.push_back(&request);
}

void Connection::perform(PendingRequest& request) {
  if (state_ == State::kClosed) {
    working_.erase(request);
    leave_slot(request);
    release(request);
    return settle();
  }
  request.is_performed = true;
  session_->perform(
      request, request.buffer ? request.buffer.first(request.reply_room) : std::span<std::byte>{});
}

// Requests that the session performs need not complete: the session is notified, and later answers
// are ignored.
void Connection::forget_performed() {
  PendingRequest* next = nullptr;
  for (PendingRequest* one = working_.empty() ? nullptr : &working_.front(); one != nullptr;
       one = next) {
    next = working_.behind(*one);
    if (!one->is_performed) continue;
    working_.erase(*one);
    leave_slot(*one);
    session_->forget(*one);
    release(*one);
  }
}

void Connection::answer(std::uint64_t id, const OwnResult& result) {
  if (state_ == State::kClosed) return;
  PendingRequest* found = working_.empty() ? nullptr : &working_.front();
  while (found != nullptr && !(found->id == id && found->is_performed)) {
    found = working_.behind(*found);
  }
  if (found == nullptr) {
    return fault(fmt::format("answered request {}, which it does not have", id));
  }
  PendingRequest& request = *found;
  working_.erase(request);
  const Outcome outcome{.how = result.error != 0 ? Outcome::How::kFailed : Outcome::How::kDone,
                        .bytes = result.moved,
                        .operations = result.operations};
  leave_slot(request, outcome, result.is_forwarded ? Counted::kYes : Counted::kNo);
  if (result.is_forwarded) {
    release(request);
    return settle();
  }
  context_.effort_left -= std::min(context_.effort_left, result.effort);
  if (result.size > request.reply_room) {
    release(request);
    return fault(
        fmt::format("answered with {} bytes in a buffer of {}", result.size, request.reply_room));
  }
  if (result.size > 0) request.payload = request.buffer.first(result.size);
  reply(request);
}

void Connection::reply(PendingRequest& request) {
  if (!is_reply_valid(request)) [[unlikely]] {
    const std::string wrong = reply_fault(request);
    release(request);
    return fault(wrong);
  }
  unsent_ += request.payload_size();
  replies_.push_back(request);
  mark_dirty();
}

// The text is not copied, so it must be a constant.
void Connection::reply_error(PendingRequest& request) {
  context_.pool.give_back(memory_, std::move(request.buffer));
  context_.freed = true;
  request.operation.file = -1;
  const int error = request.operation.error;
  const char* const known = strerrordesc_np(error);
  session_->reply(request, {.error = error, .text = known != nullptr ? known : "unknown error"});
  reply(request);
}

// Logged and counted even if the client has disconnected.
void Connection::note_store_error(const PendingRequest& request, int error) {
  // Not an error of the store: the client asked for zeroes only if they are fast.
  if (error == EOPNOTSUPP && (request.flags & kOnlyIfFast) != 0) return;
  ++context_.counters.store_errors;
  ServedExport& served = served_by(request);
  served.log.note(EventLog::Kind::kStore, describe_store_error(served.options.name, request, error),
                  context_.now);
}

}  // namespace weir::serve
