// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/loop.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include <fmt/format.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/host/log.h"
#include "weir/host/mailbox.h"
#include "weir/serve/dispatcher.h"
#include "weir/serve/server.h"

namespace weir::serve {
namespace {

// Requests whose last call is on its way to the Target are checked again after this time.
constexpr Nanoseconds kCallPause = std::chrono::milliseconds{1};
constexpr int kDiedStatus = 70;  // EX_SOFTWARE

}  // namespace

Loop::Loop(ServerContext& server, std::uint8_t index, std::unique_ptr<host::IoLoop> io,
           host::Fd wake_fd)
    : context_(server, index, std::move(io), std::move(wake_fd)), end_ns_(ns_of(kNever)) {
  context_.now = host::now();
  waker_.loop = this;
  waker_.done = woken;
}

Result<std::unique_ptr<Loop>> Loop::create(ServerContext& server, std::uint8_t index,
                                           const OpenIo& open_io) {
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  if (index == 0) {
    auto io = open_io();
    if (!io) return tl::unexpected(io.error());
    return std::unique_ptr<Loop>(new Loop(server, index, std::move(*io), std::move(*wake_fd)));
  }
  std::unique_ptr<Loop> loop(new Loop(server, index, nullptr, std::move(*wake_fd)));
  std::promise<Result<void>> opened;
  auto answer = opened.get_future();
  loop->thread_ =
      std::thread([&loop = *loop, open_io, &opened] { loop.run_thread(open_io, opened); });
  if (auto done = answer.get(); !done) return tl::unexpected(done.error());
  return loop;
}

Loop::~Loop() {
  finish();
  WEIR_ASSERT(connections_.empty());
}

void Loop::run() {
  has_gone_ = true;
  go_.set_value(true);
}

void Loop::finish() {
  if (!thread_.joinable()) return;
  is_finished_ = true;
  if (!std::exchange(has_gone_, true)) go_.set_value(false);
  context_.bell.ring();
  thread_.join();
}

void Loop::run_thread(const OpenIo& open_io, std::promise<Result<void>>& opened) {
  try {
    auto go = go_.get_future();
    auto io = open_io();
    if (!io) return opened.set_value(tl::unexpected(io.error()));
    context_.io = std::move(*io);
    opened.set_value({});
    if (!go.get()) return;
    while (!is_finished_) {
      turn(kNever, [] {});
      if (is_drained_ || !is_done()) continue;
      is_drained_ = true;
      context_.server.ring(1);
    }
    bury();
  } catch (const std::exception& error) {
    die(error.what());
  }
}

void Loop::die(const char* why) const {
  EventLog::say(fmt::format("thread {} failed: {}: terminated; unacknowledged requests are lost",
                            context_.index, why));
  host::flush_log();
  _exit(kDiedStatus);
}

// ---- coming and going ----

void Loop::add(NewConnection connection) {
  ++count_;
  {
    const host::MutexLock lock(mutex_);
    arrivals_.push_back(std::move(connection));
  }
  has_arrivals_ = true;
  context_.bell.ring();
}

void Loop::take_arrivals() {
  if (!has_arrivals_.load() || !has_arrivals_.exchange(false)) return;
  std::vector<NewConnection> all;
  {
    const host::MutexLock lock(mutex_);
    std::swap(all, arrivals_);
  }
  for (NewConnection& one : all) {
    if (is_ending_) {
      context_.pool.unreserve(Connection::kConnectionReserve);
      --count_;
      continue;
    }
    auto* const connection =
        new Connection(context_, *one.protocol, std::move(one.socket), one.identity);
    connections_.push_back(*connection);
    handshakes_.push_back(*connection);
  }
}

void Loop::note_refused() {
  has_refused_ = true;
  context_.bell.ring();
}

void Loop::end(Instant until) {
  end_ns_ = ns_of(until);
  context_.bell.ring();
}

void Loop::begin_end() {
  const Instant until{Nanoseconds{end_ns_.load()}};
  if (until == kNever || is_ending_) return;
  is_ending_ = true;
  stop_at_ = until;
  Connection* next = nullptr;
  for (Connection* one = connections_.empty() ? nullptr : &connections_.front(); one != nullptr;
       one = next) {
    next = connections_.behind(*one);
    one->end();
  }
  if (!context_.server.is_shared()) has_ended_ = true;
}

// The drain timeout has expired.
void Loop::close_all() {
  stop_at_ = kNever;
  abandon_at_ = context_.now + Server::kEndPatience / 2;
  Connection* next = nullptr;
  for (Connection* one = connections_.empty() ? nullptr : &connections_.front(); one != nullptr;
       one = next) {
    next = connections_.behind(*one);
    one->close();
  }
  bury();
}

void Loop::count_working(std::map<const ServedExport*, std::uint64_t>& counts) const {
  for (const Connection* one = connections_.empty() ? nullptr : &connections_.front();
       one != nullptr; one = connections_.behind(*one)) {
    one->count_working(counts);
  }
}

bool Loop::is_done() const {
  if (!is_ending_) return false;
  if (context_.now >= abandon_at_) return true;
  if (!context_.performs.empty() || has_arrivals_) return false;
  if (abandon_at_ == kNever) return connections_.empty();
  for (const Connection* one = connections_.empty() ? nullptr : &connections_.front();
       one != nullptr; one = connections_.behind(*one)) {
    if (!one->waits_for_store()) return false;
  }
  return true;
}

void Loop::bury() {
  if (context_.over.empty()) return;
  for (Connection* const connection : std::exchange(context_.over, {})) {
    connections_.erase(*connection);
    if (connection->handshake_link.is_linked()) handshakes_.erase(*connection);
    std::erase(context_.waiting, connection);
    std::erase(context_.dirty, connection);
    context_.intake.forget(*connection);
    delete connection;
    --count_;
  }
}

// ---- a turn ----

void Loop::woken(host::Operation& io, const host::Completion& /*completion*/) {
  static_cast<Waker&>(io).loop->is_awaited_ = false;
}

// First tells the bell that this loop sleeps, then looks for work: so no work that was left before
// a ring is missed.
void Loop::sleep(Instant until) {
  if (!needs_bell()) {
    // A quiet turn has changed no time.
    armed_ = std::min(until, was_quiet_ ? armed_ : wakes_at());
    return context_.io->wait(armed_, context_.now);
  }
  armed_ = Instant::min();  // other threads may have left work: no turn is quiet
  if (!std::exchange(is_awaited_, true)) context_.io->await_wake(context_.bell.fd(), waker_);
  context_.bell.fall_asleep();
  const bool is_left = has_arrivals_ || has_refused_ || is_finished_ ||
                       context_.handshakes.has_done() ||
                       (!context_.waiting.empty() && context_.server.freed != freed_seen_);
  const Instant at = is_left ? context_.now : std::min(until, wakes_at());
  context_.io->wait(std::max(at, context_.now), context_.now);
  context_.bell.wake_up();
}

void Loop::begin_turn(Instant until) {
  sleep(until);
  context_.outgoing_used = 0;
  context_.now = host::now();
  start_decided();
  context_.intake.begin_turn();
  context_.quiet_sends = 0;
  completed_ = context_.io->reap();
  take_arrivals();
  end_handshakes();
  begin_end();
}

// Whether end_turn() would find nothing to do: nothing is due, and nothing has happened but sends
// that freed memory which no connection waits for. Not twice in a row, so that the time of a turn
// is exact enough.
bool Loop::is_quiet() {
  const bool is_idle = context_.dirty.empty() && context_.waiting.empty() &&
                       context_.over.empty() && !is_ending_ && !has_refused_;
  was_quiet_ =
      !was_quiet_ && is_idle && completed_ == context_.quiet_sends && context_.now < armed_;
  if (was_quiet_) ++context_.stats.turns;
  return was_quiet_;
}

void Loop::end_turn() {
  expire_handshakes();
  wake_sessions();
  wake_stores();
  perform_waiting();
  free_called();
  resume_waiting();
  check_payloads();
  read_on();
  dispatch();
  flush();
  bury();
  if (context_.now >= stop_at_) close_all();
  if (is_ending_ && !has_ended_) {
    has_ended_ = true;
    context_.server.ring(1);
  }
  share_memory_state();
  note_turn();
}

void Loop::note_turn() {
  const Nanoseconds time = host::thread_time();
  const auto taken = static_cast<std::uint64_t>((time - thread_time_).count());
  // The time before the first turn is that of the start.
  if (context_.stats.turns.get() > 0 && taken > context_.stats.longest_turn_ns.get()) {
    context_.stats.longest_turn_ns.set(taken);
  }
  thread_time_ = time;
  ++context_.stats.turns;
}

void Loop::expire_handshakes() {
  while (!handshakes_.empty()) {
    Connection& oldest = handshakes_.front();
    if (oldest.is_shaking_hands() && oldest.handshake_ends() > context_.now) return;
    handshakes_.erase(oldest);
    if (oldest.is_shaking_hands()) oldest.expire();
  }
}

void Loop::wake_sessions() {
  while (!context_.alarms.empty() && context_.alarms.top_key() <= context_.now) {
    context_.alarms.pop().connection->wake();
  }
}

void Loop::check_payloads() {
  if (context_.waiting.empty()) context_.is_starved = false;
  const bool is_refused = has_refused_.load() && has_refused_.exchange(false);
  const bool is_short = context_.is_starved || is_refused || context_.server.starved != 0;
  while (is_short && !context_.payloads.empty()) {
    const IncomingPayload& oldest = context_.payloads.front();
    if (oldest.marked + Connection::kPayloadTime > context_.now) return;
    oldest.connection->check_payload();
  }
}

void Loop::wake_stores() {
  for (const auto& local : context_.exports) {
    if (local->store->wakes_at() <= context_.now) local->store->wake(context_.now);
    watch_store(*local);
  }
}

void Loop::watch_store(LocalExport& local) {
  const auto request_of = [](StoreOperation& operation) -> PendingRequest& {
    return *static_cast<PendingRequest*>(operation.owner);
  };
  StoreWatch& watch = local.watch;
  if (context_.server.is_shared()) watch.heard(local.served.done_at());
  if (watch.check(context_.now)) {
    while (StoreOperation* const one = watch.give_up()) {
      PendingRequest& request = request_of(*one);
      request.connection->give_up(request);
    }
    local.served.log.note(
        EventLog::Kind::kHung,
        fmt::format("export {}: its store has completed none of {} requests for {}; check the "
                    "device or file server below it; other exports are not affected",
                    quote(local.served.options.name), watch.given_up(),
                    print_duration(StoreWatch::kHungAfter)),
        context_.now);
    if (StoreOperation* const one = watch.try_one()) {
      PendingRequest& request = request_of(*one);
      request.connection->try_kept(request);
    }
  }
  while (StoreOperation* const one = watch.resume()) {
    PendingRequest& request = request_of(*one);
    request.connection->run_kept(request);
  }
  LocalExport::Hung& hung = local.hung;
  if (!watch.is_hung() && !hung.is_hung) return;
  hung.unfinished = watch.unfinished();
  hung.kept = watch.kept();
  hung.silent_ns = watch.is_hung() ? watch.silence(context_.now).count() : 0;
  hung.is_hung = watch.is_hung();
}

void Loop::perform_waiting() {
  context_.effort_left = LoopContext::kEffortOfTurn;
  while (!context_.performs.empty() && context_.effort_left > 0) {
    PendingRequest& request = *context_.performs.front();
    context_.performs.pop_front();
    request.connection->perform(request);
  }
}

void Loop::free_called() {
  if (context_.calling.empty()) return;
  for (Connection* const connection : std::exchange(context_.calling, {})) {
    connection->free_called();
  }
}

void Loop::resume_waiting() {
  if (context_.waiting.empty()) return;
  const std::uint64_t freed = context_.server.freed;
  if (!context_.freed && freed == freed_seen_) return;
  freed_seen_ = freed;
  context_.freed = false;
  context_.is_starved = false;  // set again by connections that still lack memory
  const std::vector<Connection*> waiting = std::exchange(context_.waiting, {});
  for (Connection* const connection : waiting) connection->resume();
}

void Loop::read_on() {
  if (!context_.intake.has_line()) return;
  context_.intake.begin_line();
  while (Connection* const connection = context_.intake.next()) connection->go_on_reading();
}

void Loop::start_decided() {
  if (!context_.server.is_shared()) return;
  for (const auto& dispatcher : context_.server.dispatchers) dispatcher->start_decided(context_);
}

void Loop::dispatch() {
  for (const auto& dispatcher : context_.server.dispatchers) dispatcher->dispatch(context_);
}

// Connections for which this turn has no room are first in the next one.
void Loop::flush() {
  if (context_.dirty.empty()) return;
  context_.send_left = LoopContext::kSendOfTurn;
  std::size_t done = 0;
  for (; done < context_.dirty.size() && context_.send_left > 0; ++done) {
    context_.dirty[done]->flush();
  }
  context_.dirty.erase(context_.dirty.begin(),
                       context_.dirty.begin() + static_cast<std::ptrdiff_t>(done));
}

void Loop::end_handshakes() {
  if (!context_.handshakes.has_done()) return;
  for (const TlsJob* const job : context_.handshakes.take_done()) job->connection->shaken();
}

// Whether other threads leave work for it.
bool Loop::needs_bell() const {
  return context_.server.is_shared() || context_.options.tls.mode != TlsOptions::Mode::kOff;
}

// Memory that this loop has freed may be what a connection of another loop waits for, and memory
// that a connection of this loop waits for may be held by a client of another loop.
void Loop::share_memory_state() {
  ServerContext& server = context_.server;
  if (!server.is_shared()) return;
  const auto set = [this](std::atomic<std::uint64_t>& bits, bool is_set) {
    const bool was_set = (bits.load(std::memory_order_relaxed) & context_.bit()) != 0;
    if (was_set == is_set) return false;
    is_set ? bits.fetch_or(context_.bit()) : bits.fetch_and(~context_.bit());
    return is_set;
  };
  set(server.waiting, !context_.waiting.empty());
  if (set(server.starved, context_.is_starved)) server.ring(~context_.bit());
  if (!context_.freed) return;
  // Connections of this loop are served in its next turn.
  if (context_.waiting.empty()) context_.freed = false;
  ++server.freed;
  if (const std::uint64_t others = server.waiting & ~context_.bit(); others != 0) {
    server.ring(others);
  }
}

Instant Loop::wakes_at() const {
  if (!is_ending_ && end_ns_ != ns_of(kNever)) return context_.now;
  // Replies sent at the end of this turn may have freed room for another connection.
  if (context_.freed && !context_.waiting.empty()) return context_.now;
  if (!context_.performs.empty() || context_.intake.has_line()) return context_.now;
  if (!context_.dirty.empty()) return context_.now;
  Instant at = std::min(stop_at_, abandon_at_);
  for (const auto& dispatcher : context_.server.dispatchers) {
    at = std::min(at, dispatcher->wakes_at(context_));
  }
  for (const auto& local : context_.exports) {
    at = std::min({at, local->store->wakes_at(), local->watch.wakes_at()});
  }
  if (!handshakes_.empty()) at = std::min(at, handshakes_.front().handshake_ends());
  if (!context_.calling.empty()) at = std::min(at, context_.now + kCallPause);
  if (!context_.alarms.empty()) at = std::min(at, context_.alarms.top_key());
  const bool is_short = context_.is_starved || context_.server.starved != 0;
  if (is_short && !context_.payloads.empty()) {
    at = std::min(at, context_.payloads.front().marked + Connection::kPayloadTime);
  }
  return at;
}

}  // namespace weir::serve
