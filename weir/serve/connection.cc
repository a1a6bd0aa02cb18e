// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/sendfile.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/serve/dispatcher.h"
#include "weir/serve/session_check.h"

namespace weir::serve {
namespace {

// From this size on the rest of a payload is received directly into its buffer.
constexpr std::uint32_t kDirectMin = 16384;

// Beyond this size of unsent replies no more data is read, because it would have left the cache
// before it is sent.
constexpr std::uint64_t kUnsentMax = 1U << 21;

// From this size on a read is sent with separate system calls, which saves a copy.
constexpr std::uint32_t kSendFileMin = 1U << 16;
// Maximum sent per turn: a client that reads as fast as we send must not delay the others.
constexpr std::size_t kSendFileAtOnce = std::size_t{1} << 20;

// Maximum of unsent answers in the handshake.
constexpr std::size_t kAnswersMax = std::size_t{1} << 13;

static_assert(sizeof(PendingRequest) * Connection::kRequestsFree <= std::size_t{20} << 10);

template <class List, class Function>
void drain(List& list, Function function) {
  while (!list.empty()) {
    auto& one = list.front();
    list.erase(one);
    function(one);
  }
}

ServedExport& served_by(const PendingRequest& request) { return *request.opened->served; }

}  // namespace

Connection::Connection(LoopContext& context, const ProtocolKind& protocol, host::Fd socket,
                       const ClientIdentity& identity)
    : context_(context),
      protocol_(protocol),
      socket_(std::move(socket)),
      identity_(identity),
      handshake_ends_(context.now + Nanoseconds{context.server.handshake_timeout_ns.load()}),
      greeting_(std::make_unique<Greeting>()),
      session_(protocol.begin(*this)) {
  payload_.connection = this;
  alarm_.connection = this;
  receive_.connection = this;
  receive_.done = received;
  send_.connection = this;
  send_.done = sent;
  session_->greet(greeting_->out);
  mark_dirty();
  receive();  // unless a greeting must be sent first
}

Dispatcher& Connection::dispatcher_of(const PendingRequest& request) const {
  return context_.server.dispatcher_of(served_by(request));
}

Connection::~Connection() {
  WEIR_ASSERT(is_over());
  context_.io->forget(socket_.get());
  end_tls_batch();
  context_.pool.unreserve(kConnectionReserve + (tls_ != nullptr ? kTlsReserve : 0));
}

bool Connection::is_over() const {
  return state_ == State::kClosed && !receive_.is_pending && !send_.is_pending &&
         working_.empty() && called_.empty() && (upstream_ == nullptr || upstream_->is_over());
}

bool Connection::waits_for_store() const {
  return state_ == State::kClosed && !receive_.is_pending && !send_.is_pending && !working_.empty();
}

void Connection::count_working(std::map<const ServedExport*, std::uint64_t>& counts) const {
  for (const PendingRequest* one = working_.empty() ? nullptr : &working_.front(); one != nullptr;
       one = working_.behind(*one)) {
    ++counts[&served_by(*one)];
  }
}

void Connection::expire() {
  ++context_.counters.handshake_expired;
  context_.log.note(EventLog::Kind::kTimeout,
                    print_nid(identity_.nid) + ": its handshake took too long", context_.now);
  close();
}

void Connection::end() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kHandshake) return close();
  if (state_ == State::kOpen && !session_->stop()) return;
  state_ = State::kEnding;
  rest_.clear();
  if (receive_.is_pending) {
    context_.io->cancel(receive_);
  } else if (writing_ != nullptr) {
    release(end_payload());
  }
  settle();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  shutdown(socket_.get(), SHUT_RDWR);  // completes pending operations of the kernel
  rest_.clear();
  drain(queued_, [this](PendingRequest& request) { drop(request); });
  drain(parked_, [this](PendingRequest& request) { drop(request); });
  drain(kept_, [this](PendingRequest& request) {
    context_.local(served_by(request)).watch.drop(request.operation);
    drop(request);
  });
  forget_performed();
  drain(replies_, [this](PendingRequest& request) { release(request); });
  if (!send_.is_pending) drain(sending_, [this](PendingRequest& request) { release(request); });
  if (writing_ != nullptr && !receive_.is_pending) release(end_payload());
  wake_at(kNever);
  session_->closed();
  if (upstream_ != nullptr) upstream_->close();
  settle();
}

void Connection::settle() {
  const bool is_done = unanswered_ == 0 && session_->is_settled();
  if (state_ == State::kEnding && is_done && !send_.is_pending && greeting_ == nullptr) {
    if (ByteQueue* const out = session_->to_client(); out != nullptr && !out->empty()) return;
    if (tls_ == nullptr) return close();
    if (!std::exchange(has_said_end_, true)) tls_->end();
    return tls_->has_output() ? mark_dirty() : close();
  }
  if (!is_over() || is_told_over_) return;
  is_told_over_ = true;
  context_.over.push_back(this);
}

// The spare request, as filled in by the session.
PendingRequest& Connection::new_request() {
  PendingRequest& request = context_.requests.take();
  request.connection = this;
  request.loop = context_.index;
  request.id = ++began_;
  request.operation.file = -1;
  request.is_performed = false;
  request.is_tried = false;
  if (++unanswered_ > kRequestsFree) {
    const bool charged = context_.pool.charge(memory_, sizeof(PendingRequest));
    WEIR_ASSERT(charged, unanswered_);  // has_room_for_request() said so
  }
  return request;
}

void Connection::release(PendingRequest& request) {
  context_.pool.give_back(memory_, std::move(request.buffer));
  if (request.is_called.load(std::memory_order_acquire)) {
    if (called_.empty()) context_.calling.push_back(this);
    called_.push_back(request);
    return;
  }
  context_.requests.give_back(request);
  if (unanswered_-- > kRequestsFree) context_.pool.discharge(memory_, sizeof(PendingRequest));
  context_.freed = true;
  if (std::exchange(is_stalled_, false) && state_ != State::kClosed) mark_waiting();
}

void Connection::free_called() {
  PendingRequestList all;
  std::swap(all, called_);
  drain(all, [this](PendingRequest& request) { release(request); });
  settle();
}

void Connection::mark_dirty() {
  if (is_dirty_) return;
  is_dirty_ = true;
  context_.dirty.push_back(this);
}

void Connection::mark_waiting() {
  if (is_waiting_) return;
  is_waiting_ = true;
  count_wait();
  context_.waiting.push_back(this);
}

void Connection::mark_stalled() {
  if (is_waiting_) return;
  is_stalled_ = true;
  count_wait();
}

void Connection::count_wait() {
  if (!std::exchange(is_wait_counted_, true)) ++context_.counters.memory_waits;
}

void Connection::wait_for_room() {
  const bool waits_for_client =
      unanswered_ >= context_.server.connection_requests || unsent_ >= kUnsentMax;
  waits_for_client ? mark_stalled() : mark_waiting();
}

// ---- bytes in ----

void Connection::receive() {
  if (receive_.is_pending || !rest_.empty() || lacks_memory_) return;
  if (state_ != State::kOpen && state_ != State::kHandshake) return;
  // A client that does not read its answers gets no more.
  if (state_ == State::kHandshake && !(greeting_->out.empty() && greeting_->sending.empty()))
    return;
  if (state_ == State::kHandshake && tls_ != nullptr && tls_->has_output()) return;
  if (writing_ == nullptr && !has_room_for_request()) return wait_for_room();
  receive_.is_pending = true;
  const std::uint32_t left = writing_ != nullptr ? payload_left_ : 0;
  is_direct_ = left >= kDirectMin && tls_ == nullptr;
  if (is_direct_) {
    const std::uint32_t have = writing_->length - left;
    context_.io->receive_into(socket_.get(), {writing_->buffer.data() + have, left}, receive_);
  } else {
    context_.io->receive(socket_.get(), receive_);
  }
}

void Connection::received(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Connection& self = *mine.connection;
  mine.is_pending = false;
  const bool reads = self.state_ == State::kOpen || self.state_ == State::kHandshake;
  if (!reads) {  // the connection has ended meanwhile
    self.context_.io->give_back(completion);
    if (self.writing_ != nullptr) self.release(self.end_payload());
    self.settle();
    return;
  }
  if (completion.result == -ENOBUFS || completion.result == -EINTR) return self.receive();
  const bool is_counted = std::exchange(self.is_counted_, false);
  if (is_counted && completion.result == -ECANCELED) return self.judge_payload();
  if (completion.result <= 0) return self.close();
  if (self.is_direct_) {
    self.payload_left_ -= static_cast<std::uint32_t>(completion.result);
    if (self.payload_left_ == 0) {
      self.admit(self.end_payload());
    } else if (is_counted) {
      return self.judge_payload();
    }
    self.receive();
    return;
  }
  self.feed(self.context_.io->received(completion));
  self.context_.io->give_back(completion);
  self.receive();
}

void Connection::feed(Input in) { tls_ != nullptr ? decrypt(in) : use(in); }

// Uses received bytes.
void Connection::use(Input in) {
  if (state_ == State::kHandshake && rest_.empty()) {
    const bool was_plain = tls_ == nullptr;
    shake(in);
    if (was_plain && tls_ != nullptr) return decrypt(in);
  }
  if (state_ == State::kOpen && rest_.empty()) read_requests(in);
  if (state_ == State::kOpen || state_ == State::kHandshake) {
    rest_.insert(rest_.end(), in.begin(), in.end());
  }
}

void Connection::shake(Input& in) {
  using Step = Session::Step;
  while (state_ == State::kHandshake && greeting_->out.size() < kAnswersMax) {
    const Step step = session_->negotiate(in, greeting_->out);
    if (step == Step::kNeedBytes) {
      if (!in.empty()) fault("asked for more bytes without consuming all it had");
      break;
    }
    if (step == Step::kStartTls) return begin_tls();
    if (step == Step::kBreak) broken();
    if (step == Step::kEnd) state_ = State::kEnding;
    if (step == Step::kOpen) state_ = State::kOpen;
  }
  if (greeting_ == nullptr) return;
  if (!greeting_->out.empty()) return mark_dirty();
  // No greeting was needed, so nothing precedes the replies.
  if (state_ == State::kOpen && greeting_->sending.empty()) greeting_.reset();
}

std::size_t Connection::export_count() const {
  return static_cast<std::size_t>(
      std::count_if(context_.server.exports.begin(), context_.server.exports.end(),
                    [this](const auto& served) { return is_visible(*served); }));
}

const ExportFacts& Connection::export_at(std::size_t index) const {
  for (const auto& served : context_.server.exports) {
    if (is_visible(*served) && index-- == 0) return served->facts;
  }
  WEIR_ASSERT(false, index);
  return context_.server.exports.front()->facts;
}

const ExportFacts* Connection::find_export(std::string_view name) const {
  for (const auto& served : context_.server.exports) {
    const bool is_named = name.empty() || served->options.name == name;
    if (is_named && is_visible(*served)) return &served->facts;
  }
  return nullptr;
}

// Gateways forward, others serve stores.
bool Connection::is_visible(const ServedExport& served) const {
  return served.options.store.is_remote() == protocol_.is_gateway;
}

void Connection::open(const ExportFacts& facts, OpenedExport& opened) {
  ServedExport* const served = context_.server.find_export(facts.name);
  WEIR_ASSERT(served != nullptr && &served->facts == &facts);
  opened.facts = &facts;
  opened.served = served;
  opened.sync_mark = served->sync_errors.begin();
}

Result<Attributes> Connection::identify(const Claims& claims) {
  auto attributes =
      attributes_of(identity_, claims, context_.options.claims, context_.options.nodemaps);
  if (!attributes) {
    ++context_.counters.claims_refused;
    context_.log.note(EventLog::Kind::kClaim, attributes.error().message(), context_.now);
  }
  return attributes;
}

Nanoseconds Connection::expected_wait(const IoRequest& request) const {
  const ServedExport& served = *request.opened->served;
  return context_.server.dispatcher_of(served).with(context_, [&](Instant now) {
    return served.service->target.expected_wait(request, Head::kRegular, now);
  });
}

void Connection::extents(const OpenedExport& opened, std::uint64_t offset, std::uint64_t length,
                         const Store::ExtentVisitor& visit) const {
  context_.local(*opened.served).store->extents(offset, length, visit);
}

// The client has read its answers.
void Connection::go_on_shaking() {
  if (state_ != State::kHandshake || !greeting_->out.empty() || !greeting_->sending.empty()) return;
  if (tls_ != nullptr && (!tls_->is_open() || tls_->has_output())) return;
  const std::vector<std::byte> had = std::exchange(rest_, {});
  use(had);
}

void Connection::broken() {
  ++context_.counters.broken;
  context_.log.note(EventLog::Kind::kBreak,
                    fmt::format("{}: {}", print_nid(identity_.nid), session_->problem()),
                    context_.now);
  close();
}

void Connection::fault(std::string_view what) {
  ++context_.counters.session_faults;
  context_.log.note(EventLog::Kind::kFault,
                    fmt::format("{}: disconnected: internal error: the {} session {}; "
                                "report this; other connections are not affected",
                                print_nid(identity_.nid), protocol_.name, what),
                    context_.now);
  close();
}

// Uses as much as possible; the rest of `in` has to wait.
void Connection::read_requests(Input& in) {
  const std::uint32_t most = context_.intake.allowance();
  const std::uint64_t before = began_;
  while (state_ == State::kOpen) {
    if (lacks_memory_ && !give_payload_memory()) break;
    if (writing_ != nullptr) {
      if (in.empty()) break;
      take_payload(in);
      continue;
    }
    if (!has_room_for_request()) {
      if (!in.empty()) wait_for_room();
      break;
    }
    if (began_ - before == most && !in.empty()) {
      is_in_line_ = true;
      context_.intake.wait(*this);
      break;
    }
    if (!take_event(in)) break;
  }
  context_.intake.took(static_cast<std::uint32_t>(began_ - before));
}

// False if nothing more can be used of the received bytes.
bool Connection::take_event(Input& in) {
  using Event = Session::Event;
  PendingRequest& spare = context_.requests.spare();
  spare.clear();
  switch (session_->next(in, spare)) {
    case Event::kNeedBytes:
      if (!in.empty()) fault("asked for more bytes without consuming all it had");
      return false;
    case Event::kRequest:
      return begin_request(new_request());
    case Event::kRefused:
      ++context_.counters.requests_refused;
      reply(new_request());
      return true;
    case Event::kEnd:
      end();
      return false;
    case Event::kBreak:
      broken();
      return false;
    case Event::kNoRoom:
      mark_waiting();
      return false;
  }
  return false;
}

bool Connection::begin_request(PendingRequest& request) {
  ++context_.counters.requests;
  if (const std::string wrong = request_fault(request); !wrong.empty()) [[unlikely]] {
    release(request);
    fault(wrong);
    return false;
  }
  if (request.is_own || request.command != StoreCommand::kWrite) {
    admit(request);
    return true;
  }
  writing_ = &request;
  payload_left_ = request.length;
  return give_payload_memory();
}

bool Connection::has_room_for_request() const {
  if (unanswered_ >= context_.server.connection_requests) return false;
  return unanswered_ < kRequestsFree || context_.pool.has_room(memory_, sizeof(PendingRequest));
}

bool Connection::give_payload_memory() {
  writing_->buffer = context_.pool.take(memory_, writing_->length);
  lacks_memory_ = !writing_->buffer;
  if (lacks_memory_) {
    note_starved(writing_->length);
    mark_waiting();
  } else if (writing_->buffer.size() > BufferPool::kGuaranteed) {
    context_.payloads.push_back(payload_);
    mark_payload();
  }
  return !lacks_memory_;
}

void Connection::note_starved(std::size_t bytes) {
  context_.is_starved = context_.is_starved || context_.pool.is_refused_by_others(memory_, bytes);
}

void Connection::mark_payload() {
  payload_.marked = context_.now;
  payload_.left = payload_left_;
}

PendingRequest& Connection::end_payload() {
  if (payload_.link.is_linked()) context_.payloads.erase(payload_);
  return *std::exchange(writing_, nullptr);
}

// The IoLoop reports a large receive only when it is complete. So a long receive is cancelled,
// which shows how much has arrived.
void Connection::check_payload() {
  context_.payloads.erase(payload_);
  context_.payloads.push_back(payload_);
  if (state_ == State::kOpen && !(receive_.is_pending && is_direct_)) return judge_payload();
  payload_.marked = context_.now;  // it is checked when the result arrives
  is_counted_ = true;
  context_.io->cancel(receive_);
}

void Connection::judge_payload() {
  const std::uint32_t left = payload_left_;
  if (payload_.left - left >= kPayloadMin) {
    mark_payload();
    return receive();
  }
  ++context_.counters.stalled;
  context_.log.note(
      EventLog::Kind::kTimeout,
      fmt::format("{}: disconnected: other clients wait for memory, and of a write of {} bytes "
                  "the client has sent {}, {} of them in the last {}",
                  print_nid(identity_.nid), writing_->length, writing_->length - left,
                  payload_.left - left, print_duration(kPayloadTime)),
      context_.now);
  close();
}

void Connection::take_payload(Input& in) {
  const std::size_t bytes = std::min<std::size_t>(payload_left_, in.size());
  std::memcpy(writing_->buffer.data() + (writing_->length - payload_left_), in.data(), bytes);
  in = in.subspan(bytes);
  payload_left_ -= static_cast<std::uint32_t>(bytes);
  if (payload_left_ == 0) admit(end_payload());
}

void Connection::admit(PendingRequest& request) {
  if (request.is_exempt) {
    dispatcher_of(request).with(context_, [&](Instant now) {
      served_by(request).service->target.charge(request, Head::kRegular, now);
    });
    return run_unless_hung(request);
  }
  queued_.push_back(request);
  dispatcher_of(request).admit(context_, request);
}

void Connection::go_on_reading() {
  is_in_line_ = false;
  use_rest();
}

void Connection::use_rest() {
  const std::vector<std::byte> had = std::exchange(rest_, {});
  use(had);
  receive();
}

void Connection::resume() {
  is_waiting_ = false;
  while (state_ != State::kClosed && !parked_.empty()) {
    PendingRequest& request = parked_.front();
    if (!take_reply_memory(request)) return wait_for_room();
    is_wait_counted_ = false;
    parked_.erase(request);
    resume(request);
  }
  if (state_ != State::kOpen) return;
  if (lacks_memory_ && !give_payload_memory()) return;
  if (writing_ == nullptr && !has_room_for_request()) return wait_for_room();
  is_wait_counted_ = false;
  if (!is_in_line_) use_rest();
}

// ---- through the store ----

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

// One that is running was decided by another loop and has not been started.
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

// One whose slot was given up before is counted by the Target already, and ends only now.
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
    request.operation.file = store.sendable(request.offset, request.length);
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
  session_->reply(request, {});
  if (request.command == StoreCommand::kRead) {
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
                        .bytes = result.moved};
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
  if (const std::string wrong = reply_fault(request); !wrong.empty()) [[unlikely]] {
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

// Whether its client is still there to be told or not.
void Connection::note_store_error(const PendingRequest& request, int error) {
  // A client that asks for zeroes only if they are quick has asked, and was told.
  if (error == EOPNOTSUPP && (request.flags & kOnlyIfFast) != 0) return;
  ++context_.counters.store_errors;
  ServedExport& served = served_by(request);
  served.log.note(EventLog::Kind::kStore, describe_store_error(served.options.name, request, error),
                  context_.now);
}

// ---- bytes out ----

void Connection::flush() {
  is_dirty_ = false;
  if (state_ == State::kClosed) return;
  if (upstream_ != nullptr) return flush_gateway();
  if (send_.is_pending) return;
  if (greeting_ != nullptr && !greeting_->sending.empty()) return send_greeting();
  if (tls_ != nullptr) return send_encrypted();
  if (greeting_ != nullptr) return send_greeting();
  if (sending_.empty()) std::swap(sending_, replies_);
  if (!sending_.empty()) send_replies();
}

void Connection::send_greeting() {
  if (greeting_->sending.empty()) std::swap(greeting_->sending, greeting_->out);
  if (greeting_->sending.empty()) return;
  send_one(std::span(greeting_->sending).subspan(sent_of_first_));
}

void Connection::send_one(std::span<const std::byte> bytes) {
  Outgoing& outgoing = context_.next_outgoing();
  outgoing.parts[0] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  outgoing.message = {};
  outgoing.message.msg_iov = outgoing.parts.data();
  outgoing.message.msg_iovlen = 1;
  send_.is_pending = true;
  context_.io->send(socket_.get(), outgoing.message, send_);
}

void Connection::send_replies() {
  if (sending_.front().sends_file()) return send_files();
  Outgoing& outgoing = context_.next_outgoing();
  std::size_t parts = 0;
  std::size_t skip = sent_of_first_;
  const auto add = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped);
    if (bytes.empty()) return;
    outgoing.parts[parts++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  for (const PendingRequest* one = &sending_.front();
       one != nullptr && !one->sends_file() && parts + 2 <= Outgoing::kPartsMax;
       one = sending_.behind(*one)) {
    add({one->head.data(), one->head_size});
    add(one->payload);
  }
  outgoing.message = {};
  outgoing.message.msg_iov = outgoing.parts.data();
  outgoing.message.msg_iovlen = parts;
  send_.is_pending = true;
  context_.io->send(socket_.get(), outgoing.message, send_);
}

// Sends as much as the socket accepts within this client's turn. io_uring could do it only with a
// thread for each client.
void Connection::send_files() {
  std::size_t budget = kSendFileAtOnce;
  while (!sending_.empty() && sending_.front().sends_file()) {
    if (budget == 0) return await_room();
    const PendingRequest& first = sending_.front();
    ssize_t sent = 0;
    if (sent_of_first_ < first.head_size) {
      sent = ::send(socket_.get(), first.head.data() + sent_of_first_,
                    first.head_size - sent_of_first_, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
    } else {
      const std::uint32_t done = sent_of_first_ - first.head_size;
      auto offset = static_cast<off_t>(first.offset + done);
      const std::size_t bytes = std::min<std::size_t>(first.length - done, budget);
      sent = sendfile(socket_.get(), first.operation.file, &offset, bytes);
      if (sent > 0) budget -= static_cast<std::size_t>(sent);
      // 0: somebody has just made the file shorter. Its head is on the way already.
      if (sent == 0 || (sent < 0 && errno == EIO)) {
        note_store_error(first, EIO);
        return close();
      }
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return await_room();
    if (sent <= 0) return close();  // the client has gone
    release_sent(sent_of_first_ + static_cast<std::size_t>(sent));
  }
  mark_dirty();  // other replies may follow
  settle();
}

// Continues in a later turn, the next one if there is already room.
void Connection::await_room() {
  send_.is_pending = true;
  awaits_room_ = true;
  context_.io->poll_room(socket_.get(), send_);
}

void Connection::sent(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Connection& self = *mine.connection;
  mine.is_pending = false;
  const bool has_room = std::exchange(self.awaits_room_, false);
  if (has_room && self.state_ != State::kClosed) return self.mark_dirty();
  if (self.state_ == State::kClosed || completion.result < 0) {
    const bool again = completion.result == -EINTR || completion.result == -EAGAIN;
    if (self.state_ != State::kClosed && again) return self.mark_dirty();
    drain(self.sending_, [&](PendingRequest& request) { self.release(request); });
    self.close();
    return self.settle();
  }
  self.drop_sent(static_cast<std::size_t>(completion.result));
  if (self.hangs_up_ && self.session_->to_client()->empty()) return self.close();
  self.mark_dirty();  // replies that became ready meanwhile
  self.go_on_shaking();
  self.receive();
  self.settle();
}

void Connection::drop_sent(std::size_t bytes) {
  if (upstream_ != nullptr) {
    session_->to_client()->drop(bytes);
    return session_->transferred();
  }
  const bool plain = greeting_ != nullptr && !greeting_->sending.empty();
  if (tls_ != nullptr && !plain) return tls_->sent(bytes);
  bytes += sent_of_first_;
  sent_of_first_ = 0;
  if (greeting_ != nullptr) {
    if (bytes < greeting_->sending.size()) {
      sent_of_first_ = static_cast<std::uint32_t>(bytes);
      return;
    }
    greeting_->sending.clear();
    if (state_ != State::kHandshake && greeting_->out.empty()) greeting_.reset();
    return;
  }
  release_sent(bytes);
}

// So many bytes were sent, counted from the start of the first reply.
void Connection::release_sent(std::size_t bytes) {
  while (!sending_.empty()) {
    PendingRequest& first = sending_.front();
    const std::size_t size = first.head_size + first.payload_size();
    if (bytes < size) break;
    bytes -= size;
    unsent_ -= first.payload_size();
    sending_.erase(first);
    release(first);
  }
  sent_of_first_ = static_cast<std::uint32_t>(bytes);
}

}  // namespace weir::serve
