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
#include "weir/serve/session_check.h"

namespace weir::serve {
namespace {

// A rest of payload that is worth a receive of its own, straight to its place.
constexpr std::uint32_t kDirectMin = 16384;

// Replies beyond this wait for the client, so their data is not read before some were taken: it
// would have left the cache when its turn comes.
constexpr std::uint64_t kUnsentMax = 1U << 21;

// From here on a read is worth system calls of its own, if they save its copy.
constexpr std::uint32_t kSendFileMin = 1U << 16;
// And so much of it goes out in a turn: a client that reads as fast as we send must not keep the
// others waiting.
constexpr std::size_t kSendFileAtOnce = std::size_t{1} << 20;

// Of answers in the handshake, before the client has to take some.
constexpr std::size_t kAnswersMax = std::size_t{1} << 13;

static_assert(sizeof(Exchange) * Connection::kRequestsFree <= std::size_t{20} << 10);

template <class List, class Function>
void drain(List& list, Function function) {
  while (!list.empty()) {
    auto& one = list.front();
    list.erase(one);
    function(one);
  }
}

ServedExport& served_by(const Exchange& exchange) { return *exchange.opened->served; }

}  // namespace

Connection::Connection(Plane& plane, const ProtocolKind& protocol, host::Fd socket,
                       const Peer& peer)
    : plane_(plane),
      protocol_(protocol),
      socket_(std::move(socket)),
      peer_(peer),
      handshake_ends_(plane.now + plane.options.limits.handshake_timeout),
      greeting_(std::make_unique<Greeting>()),
      session_(protocol.begin(*this)) {
  payload_.connection = this;
  receive_.connection = this;
  receive_.done = received;
  send_.connection = this;
  send_.done = sent;
  session_->greet(greeting_->out);
  mark_dirty();
  receive();  // unless it has to take a greeting first
}

Connection::~Connection() {
  WEIR_ASSERT(is_over());
  end_tls_batch();
  plane_.pool.unreserve(kConnectionReserve + (tls_ != nullptr ? kTlsReserve : 0));
}

bool Connection::is_over() const {
  return state_ == State::kClosed && !receive_.is_pending && !send_.is_pending && working_.empty();
}

bool Connection::waits_for_store() const {
  return state_ == State::kClosed && !receive_.is_pending && !send_.is_pending && !working_.empty();
}

void Connection::count_working(std::map<const ServedExport*, std::uint64_t>& counts) const {
  for (const Exchange* one = working_.empty() ? nullptr : &working_.front(); one != nullptr;
       one = working_.behind(*one)) {
    ++counts[&served_by(*one)];
  }
}

void Connection::expire() {
  ++plane_.counters.handshake_expired;
  plane_.log.note(EventLog::Kind::kTimeout, print_nid(peer_.nid) + ": its handshake took too long",
                  plane_.now);
  close();
}

void Connection::end() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kHandshake) return close();
  state_ = State::kEnding;
  rest_.clear();
  if (receive_.is_pending) {
    plane_.uring->cancel(receive_);
  } else if (writing_ != nullptr) {
    release(end_payload());
  }
  settle();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  shutdown(socket_.get(), SHUT_RDWR);  // ends what the kernel waits for
  rest_.clear();
  drain(queued_, [this](Exchange& exchange) { drop(exchange); });
  drain(parked_, [this](Exchange& exchange) { drop(exchange); });
  drain(kept_, [this](Exchange& exchange) {
    served_by(exchange).watch.drop(exchange.operation);
    drop(exchange);
  });
  forget_performed();
  drain(replies_, [this](Exchange& exchange) { release(exchange); });
  if (!send_.is_pending) drain(sending_, [this](Exchange& exchange) { release(exchange); });
  if (writing_ != nullptr && !receive_.is_pending) release(end_payload());
  settle();
}

void Connection::settle() {
  if (state_ == State::kEnding && unanswered_ == 0 && !send_.is_pending && greeting_ == nullptr) {
    if (tls_ == nullptr) return close();
    if (!std::exchange(has_said_end_, true)) tls_->end();
    return tls_->has_output() ? mark_dirty() : close();
  }
  if (!is_over() || is_told_over_) return;
  is_told_over_ = true;
  plane_.over.push_back(this);
}

// The spare one, as the session has filled it in.
Exchange& Connection::new_exchange() {
  Exchange& exchange = plane_.exchanges.take();
  exchange.connection = this;
  exchange.id = ++began_;
  exchange.operation.file = -1;
  exchange.is_performed = false;
  exchange.is_tried = false;
  if (++unanswered_ > kRequestsFree) {
    const bool charged = plane_.pool.charge(memory_, sizeof(Exchange));
    WEIR_ASSERT(charged, unanswered_);  // has_room_for_request() said so
  }
  return exchange;
}

void Connection::release(Exchange& exchange) {
  plane_.pool.give_back(memory_, std::move(exchange.buffer));
  plane_.exchanges.give_back(exchange);
  if (unanswered_-- > kRequestsFree) plane_.pool.discharge(memory_, sizeof(Exchange));
  plane_.freed = true;
  if (std::exchange(is_stalled_, false) && state_ != State::kClosed) mark_hungry();
}

void Connection::mark_dirty() {
  if (is_dirty_) return;
  is_dirty_ = true;
  plane_.dirty.push_back(this);
}

void Connection::mark_hungry() {
  if (is_hungry_) return;
  is_hungry_ = true;
  count_wait();
  plane_.hungry.push_back(this);
}

void Connection::mark_stalled() {
  if (is_hungry_) return;
  is_stalled_ = true;
  count_wait();
}

void Connection::count_wait() {
  if (!std::exchange(is_wait_counted_, true)) ++plane_.counters.memory_waits;
}

void Connection::wait_for_room() {
  const bool waits_for_client =
      unanswered_ >= plane_.options.limits.connection_requests || unsent_ >= kUnsentMax;
  waits_for_client ? mark_stalled() : mark_hungry();
}

// ---- bytes in ----

void Connection::receive() {
  if (receive_.is_pending || !rest_.empty() || lacks_memory_) return;
  if (state_ != State::kOpen && state_ != State::kHandshake) return;
  // A client that does not take its answers gets no further ones.
  if (state_ == State::kHandshake && !(greeting_->out.empty() && greeting_->sending.empty()))
    return;
  if (state_ == State::kHandshake && tls_ != nullptr && tls_->has_output()) return;
  if (writing_ == nullptr && !has_room_for_request()) return wait_for_room();
  receive_.is_pending = true;
  const std::uint32_t left = writing_ != nullptr ? payload_left_ : 0;
  is_direct_ = left >= kDirectMin && tls_ == nullptr;
  if (is_direct_) {
    const std::uint32_t have = writing_->length - left;
    plane_.uring->receive_into(socket_.get(), {writing_->buffer.data() + have, left}, receive_);
  } else {
    plane_.uring->receive(socket_.get(), receive_);
  }
}

void Connection::received(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Connection& self = *mine.connection;
  mine.is_pending = false;
  const bool reads = self.state_ == State::kOpen || self.state_ == State::kHandshake;
  if (!reads) {  // it has ended meanwhile
    self.plane_.uring->give_back(completion);
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
  self.feed(self.plane_.uring->received(completion));
  self.plane_.uring->give_back(completion);
  self.receive();
}

void Connection::feed(Input in) { tls_ != nullptr ? decrypt(in) : use(in); }

// What the client has said.
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
  // Nothing had to be said, so nothing stands before the replies.
  if (state_ == State::kOpen && greeting_->sending.empty()) greeting_.reset();
}

const ExportFacts& Connection::export_at(std::size_t index) const {
  WEIR_ASSERT(index < plane_.exports.size(), index);
  return plane_.exports[index]->facts;
}

const ExportFacts* Connection::find_export(std::string_view name) const {
  const ServedExport* const served = plane_.find_export(name);
  return served == nullptr ? nullptr : &served->facts;
}

void Connection::open(const ExportFacts& facts, OpenedExport& opened) {
  ServedExport* const served = plane_.find_export(facts.name);
  WEIR_ASSERT(served != nullptr && &served->facts == &facts);
  opened.facts = &facts;
  opened.served = served;
  opened.sync_mark = served->sync_errors.begin();
}

Result<Attributes> Connection::identify(const Claims& claims) {
  auto attributes = attributes_of(peer_, claims, plane_.options.claims, plane_.options.nodemaps);
  if (!attributes) {
    ++plane_.counters.claims_refused;
    plane_.log.note(EventLog::Kind::kClaim, attributes.error().message(), plane_.now);
  }
  return attributes;
}

Nanoseconds Connection::expected_wait(const IoRequest& request) const {
  return request.opened->served->service->target.expected_wait(request, Head::kRegular, plane_.now);
}

void Connection::extents(const OpenedExport& opened, std::uint64_t offset, std::uint64_t length,
                         const Store::ExtentVisitor& visit) const {
  opened.served->store->extents(offset, length, visit);
}

// The client has taken its answers.
void Connection::go_on_shaking() {
  if (state_ != State::kHandshake || !greeting_->out.empty() || !greeting_->sending.empty()) return;
  if (tls_ != nullptr && (!tls_->is_open() || tls_->has_output())) return;
  const std::vector<std::byte> had = std::exchange(rest_, {});
  use(had);
}

void Connection::broken() {
  ++plane_.counters.broken;
  plane_.log.note(EventLog::Kind::kBreak,
                  fmt::format("{}: {}", print_nid(peer_.nid), session_->problem()), plane_.now);
  close();
}

void Connection::fault(std::string_view what) {
  ++plane_.counters.session_faults;
  plane_.log.note(EventLog::Kind::kFault,
                  fmt::format("{}: disconnected: internal error: the {} session {}; "
                              "report this; other connections are not affected",
                              print_nid(peer_.nid), protocol_.name, what),
                  plane_.now);
  close();
}

// Uses what it can; what is left of `in` has to wait.
void Connection::read_requests(Input& in) {
  const std::uint32_t most = plane_.intake.allowance();
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
      plane_.intake.wait(*this);
      break;
    }
    if (!take_event(in)) break;
  }
  plane_.intake.took(static_cast<std::uint32_t>(began_ - before));
}

// False when there is nothing more to take from what has come.
bool Connection::take_event(Input& in) {
  using Event = Session::Event;
  Exchange& spare = plane_.exchanges.spare();
  spare.clear();
  switch (session_->next(in, spare)) {
    case Event::kNeedBytes:
      if (!in.empty()) fault("asked for more bytes without consuming all it had");
      return false;
    case Event::kRequest:
      return begin_request(new_exchange());
    case Event::kRefused:
      ++plane_.counters.requests_refused;
      reply(new_exchange());
      return true;
    case Event::kEnd:
      end();
      return false;
    case Event::kBreak:
      broken();
      return false;
  }
  return false;
}

bool Connection::begin_request(Exchange& exchange) {
  ++plane_.counters.requests;
  if (const std::string wrong = request_fault(exchange); !wrong.empty()) [[unlikely]] {
    release(exchange);
    fault(wrong);
    return false;
  }
  if (exchange.is_own || exchange.command != StoreCommand::kWrite) {
    admit(exchange);
    return true;
  }
  writing_ = &exchange;
  payload_left_ = exchange.length;
  return give_payload_memory();
}

bool Connection::has_room_for_request() const {
  if (unanswered_ >= plane_.options.limits.connection_requests) return false;
  return unanswered_ < kRequestsFree || plane_.pool.has_room(memory_, sizeof(Exchange));
}

bool Connection::give_payload_memory() {
  writing_->buffer = plane_.pool.take(memory_, writing_->length);
  lacks_memory_ = !writing_->buffer;
  if (lacks_memory_) {
    note_starved(writing_->length);
    mark_hungry();
  } else if (writing_->buffer.size() > BufferPool::kGuaranteed) {
    plane_.payloads.push_back(payload_);
    mark_payload();
  }
  return !lacks_memory_;
}

void Connection::note_starved(std::size_t bytes) {
  plane_.is_starved = plane_.is_starved || plane_.pool.is_refused_by_others(memory_, bytes);
}

void Connection::mark_payload() {
  payload_.marked = plane_.now;
  payload_.left = payload_left_;
}

Exchange& Connection::end_payload() {
  if (payload_.link.is_linked()) plane_.payloads.erase(payload_);
  return *std::exchange(writing_, nullptr);
}

// The ring tells of a large rest when all of it has come. So a receive that goes on for long is
// cancelled, which tells how much that was.
void Connection::check_payload() {
  plane_.payloads.erase(payload_);
  plane_.payloads.push_back(payload_);
  if (state_ == State::kOpen && !(receive_.is_pending && is_direct_)) return judge_payload();
  payload_.marked = plane_.now;  // it is judged when that is told
  is_counted_ = true;
  plane_.uring->cancel(receive_);
}

void Connection::judge_payload() {
  const std::uint32_t left = payload_left_;
  if (payload_.left - left >= kPayloadMin) {
    mark_payload();
    return receive();
  }
  ++plane_.counters.stalled;
  plane_.log.note(
      EventLog::Kind::kTimeout,
      fmt::format("{}: disconnected: other clients wait for memory, and of a write of {} bytes "
                  "the client has sent {}, {} of them in the last {}",
                  print_nid(peer_.nid), writing_->length, writing_->length - left,
                  payload_.left - left, print_duration(kPayloadTime)),
      plane_.now);
  close();
}

void Connection::take_payload(Input& in) {
  const std::size_t bytes = std::min<std::size_t>(payload_left_, in.size());
  std::memcpy(writing_->buffer.data() + (writing_->length - payload_left_), in.data(), bytes);
  in = in.subspan(bytes);
  payload_left_ -= static_cast<std::uint32_t>(bytes);
  if (payload_left_ == 0) admit(end_payload());
}

void Connection::admit(Exchange& exchange) {
  if (exchange.is_exempt) {
    served_by(exchange).service->target.charge(exchange, Head::kRegular, plane_.now);
    return run_unless_hung(exchange);
  }
  queued_.push_back(exchange);
  served_by(exchange).service->target.admit(exchange, Head::kRegular, plane_.now);
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
  is_hungry_ = false;
  while (state_ != State::kClosed && !parked_.empty()) {
    Exchange& exchange = parked_.front();
    if (!take_reply_memory(exchange)) return wait_for_room();
    is_wait_counted_ = false;
    parked_.erase(exchange);
    resume(exchange);
  }
  if (state_ != State::kOpen) return;
  if (lacks_memory_ && !give_payload_memory()) return;
  if (writing_ == nullptr && !has_room_for_request()) return wait_for_room();
  is_wait_counted_ = false;
  if (!is_in_line_) use_rest();
}

// ---- through the store ----

void Connection::run(Exchange& exchange) {
  queued_.erase(exchange);
  run_unless_hung(exchange);
}

void Connection::run_unless_hung(Exchange& exchange) {
  StoreWatch& watch = served_by(exchange).watch;
  if (!watch.is_hung() || std::exchange(exchange.is_tried, false)) return run_at_store(exchange);
  defer(exchange);
  kept_.push_back(exchange);
  exchange.operation.owner = &exchange;
  watch.keep(exchange.operation);
}

void Connection::run_kept(Exchange& exchange) {
  kept_.erase(exchange);
  resume(exchange);
}

void Connection::try_kept(Exchange& exchange) {
  exchange.is_tried = true;
  run_kept(exchange);
}

void Connection::give_up(Exchange& exchange) { leave_slot(exchange, Outcome::failed()); }

void Connection::defer(Exchange& exchange) {
  if (exchange.place() == Request::Place::kRunning) {
    served_by(exchange).service->target.defer(exchange, plane_.now);
  }
}

// One that is exempt has no slot to wait for.
void Connection::resume(Exchange& exchange) {
  if (exchange.place() != Request::Place::kDeferred) return run_unless_hung(exchange);
  queued_.push_back(exchange);
  served_by(exchange).service->target.resume(exchange, plane_.now);
}

void Connection::drop(Exchange& exchange) {
  if (exchange.place() != Request::Place::kOutside) {
    served_by(exchange).service->target.withdraw(exchange, plane_.now);
  }
  release(exchange);
}

// One whose slot was given up before is counted by the Target already, and ends only now.
RequestRecord Connection::leave_slot(Exchange& exchange, const Outcome& outcome) {
  if (exchange.place() != Request::Place::kRunning) return exchange.ending(plane_.now, outcome);
  return served_by(exchange).service->target.complete(exchange, plane_.now, outcome);
}

void Connection::run_at_store(Exchange& exchange) {
  const Store& store = *served_by(exchange).store;
  const bool reads = !exchange.is_own && exchange.command == StoreCommand::kRead;
  if (reads && exchange.length >= kSendFileMin && tls_ == nullptr && !exchange.buffer) {
    exchange.operation.file = store.sendable(exchange.offset, exchange.length);
  }
  const bool needs_buffer = exchange.is_own
                                ? exchange.reply_room > 0
                                : reads && exchange.operation.file < 0 && store.copies_reads();
  // One that was deferred comes with its buffer.
  if (needs_buffer && !exchange.buffer && !take_reply_memory(exchange)) {
    defer(exchange);
    parked_.push_back(exchange);
    return wait_for_room();
  }
  exchange.is_own ? run_own(exchange) : start(exchange);
}

// None while too much waits for the client already.
bool Connection::take_reply_memory(Exchange& exchange) {
  if (unsent_ >= kUnsentMax) return false;
  const std::size_t bytes = exchange.is_own ? exchange.reply_room : exchange.length;
  exchange.buffer = plane_.pool.take(memory_, bytes);
  if (!exchange.buffer) note_starved(bytes);
  return static_cast<bool>(exchange.buffer);
}

void Connection::start(Exchange& exchange) {
  StoreOperation& operation = exchange.operation;
  operation.command = exchange.command;
  operation.flags = exchange.flags;
  operation.length = exchange.length;
  operation.offset = exchange.offset;
  operation.buffer =
      exchange.buffer ? exchange.buffer.first(exchange.length) : std::span<std::byte>{};
  operation.data = {};
  operation.finished = finished;
  operation.owner = &exchange;
  working_.push_back(exchange);
  ServedExport& served = served_by(exchange);
  if (served.store->start(operation, plane_.now)) return finish(exchange);
  if (served.store->can_hang()) served.watch.started(operation, plane_.now);
}

void Connection::finished(StoreOperation& operation) {
  auto& exchange = *static_cast<Exchange*>(operation.owner);
  Connection& self = *exchange.connection;
  if (operation.watch.is_linked()) {
    served_by(exchange).watch.finished(operation, self.plane_.now);
  }
  self.finish(exchange);
}

void Connection::finish(Exchange& exchange) {
  working_.erase(exchange);
  StoreOperation& operation = exchange.operation;
  const RequestRecord record =
      leave_slot(exchange, operation.error == 0 ? Outcome{} : Outcome::failed());
  ServedExport& served = served_by(exchange);
  if (operation.sync_failed) served.sync_errors.failed(operation.error);
  if (state_ == State::kClosed) {
    release(exchange);
    return settle();
  }
  if (makes_durable(exchange)) {
    const int lost = served.sync_errors.tell(exchange.opened->sync_mark);
    if (operation.error == 0) operation.error = lost;
  }
  if (operation.error != 0) return reply_error(exchange);
  // A prefetch is a read that moves no data to the client, and has no counter on an OST.
  if (exchange.command != StoreCommand::kPrefetch) {
    served.stats.record(exchange.opened->stats, exchange.attributes.job, record);
  }
  session_->reply(exchange, {});
  if (exchange.command == StoreCommand::kRead) {
    exchange.payload = operation.data;
  } else {
    plane_.pool.give_back(memory_, std::move(exchange.buffer));
    plane_.freed = true;
  }
  reply(exchange);
}

// A turn lets sessions work for so long; those that come after that wait for the next one.
void Connection::run_own(Exchange& exchange) {
  working_.push_back(exchange);
  if (plane_.performs.empty() && plane_.effort_left > 0) return perform(exchange);
  plane_.performs.push_back(&exchange);
}

void Connection::perform(Exchange& exchange) {
  if (state_ == State::kClosed) {
    working_.erase(exchange);
    leave_slot(exchange);
    release(exchange);
    return settle();
  }
  exchange.is_performed = true;
  session_->perform(exchange, exchange.buffer ? exchange.buffer.first(exchange.reply_room)
                                              : std::span<std::byte>{});
}

// What the session performs needs nobody to wait for: it is told, and its answers count no more.
void Connection::forget_performed() {
  Exchange* next = nullptr;
  for (Exchange* one = working_.empty() ? nullptr : &working_.front(); one != nullptr; one = next) {
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
  Exchange* found = working_.empty() ? nullptr : &working_.front();
  while (found != nullptr && !(found->id == id && found->is_performed)) {
    found = working_.behind(*found);
  }
  if (found == nullptr) {
    return fault(fmt::format("answered request {}, which it does not have", id));
  }
  Exchange& exchange = *found;
  working_.erase(exchange);
  leave_slot(exchange, {.how = result.error != 0 ? Outcome::How::kFailed : Outcome::How::kDone,
                        .bytes = result.moved});
  plane_.effort_left -= std::min(plane_.effort_left, result.effort);
  if (result.size > exchange.reply_room) {
    release(exchange);
    return fault(
        fmt::format("answered with {} bytes in a buffer of {}", result.size, exchange.reply_room));
  }
  if (result.size > 0) exchange.payload = exchange.buffer.first(result.size);
  reply(exchange);
}

void Connection::reply(Exchange& exchange) {
  if (const std::string wrong = reply_fault(exchange); !wrong.empty()) [[unlikely]] {
    release(exchange);
    return fault(wrong);
  }
  unsent_ += exchange.payload_size();
  replies_.push_back(exchange);
  mark_dirty();
}

// The text is sent from where it is, so it has to be there for ever.
void Connection::reply_error(Exchange& exchange) {
  plane_.pool.give_back(memory_, std::move(exchange.buffer));
  plane_.freed = true;
  exchange.operation.file = -1;
  const int error = exchange.operation.error;
  const char* const known = strerrordesc_np(error);
  session_->reply(exchange, {.error = error, .text = known != nullptr ? known : "unknown error"});
  // A client that asks for zeroes only if they are quick has asked, and was told.
  if (error != EOPNOTSUPP || (exchange.flags & kOnlyIfFast) == 0) {
    ++plane_.counters.store_errors;
    plane_.log.note(EventLog::Kind::kStore,
                    describe_store_error(served_by(exchange).options.name, exchange, error),
                    plane_.now);
  }
  reply(exchange);
}

// ---- bytes out ----

void Connection::flush() {
  is_dirty_ = false;
  if (state_ == State::kClosed || send_.is_pending) return;
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
  Outgoing& outgoing = plane_.next_outgoing();
  outgoing.parts[0] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  outgoing.message = {};
  outgoing.message.msg_iov = outgoing.parts.data();
  outgoing.message.msg_iovlen = 1;
  send_.is_pending = true;
  plane_.uring->send(socket_.get(), outgoing.message, send_);
}

void Connection::send_replies() {
  if (sending_.front().sends_file()) return send_files();
  Outgoing& outgoing = plane_.next_outgoing();
  std::size_t parts = 0;
  std::size_t skip = sent_of_first_;
  const auto add = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped);
    if (bytes.empty()) return;
    outgoing.parts[parts++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  for (const Exchange* one = &sending_.front();
       one != nullptr && !one->sends_file() && parts + 2 <= Outgoing::kPartsMax;
       one = sending_.behind(*one)) {
    add({one->head.data(), one->head_size});
    add(one->payload);
  }
  outgoing.message = {};
  outgoing.message.msg_iov = outgoing.parts.data();
  outgoing.message.msg_iovlen = parts;
  send_.is_pending = true;
  plane_.uring->send(socket_.get(), outgoing.message, send_);
}

// As far as the socket has room, and it is this client's turn. The ring could do it only with a
// thread for each.
void Connection::send_files() {
  std::size_t budget = kSendFileAtOnce;
  while (!sending_.empty() && sending_.front().sends_file()) {
    if (budget == 0) return await_room();
    const Exchange& first = sending_.front();
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
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return await_room();
    // 0: somebody has just made the file shorter, and its head is on the way already.
    if (sent <= 0) return close();
    release_sent(sent_of_first_ + static_cast<std::size_t>(sent));
  }
  mark_dirty();  // others may be behind them
  settle();
}

// Goes on in a later turn, the next one if there is room already.
void Connection::await_room() {
  send_.is_pending = true;
  awaits_room_ = true;
  plane_.uring->poll_room(socket_.get(), send_);
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
    drain(self.sending_, [&](Exchange& exchange) { self.release(exchange); });
    self.close();
    return self.settle();
  }
  self.drop_sent(static_cast<std::size_t>(completion.result));
  self.mark_dirty();  // what came while it was under way
  self.go_on_shaking();
  self.receive();
  self.settle();
}

void Connection::drop_sent(std::size_t bytes) {
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

// So much of the first replies has left, counted from the start of the first.
void Connection::release_sent(std::size_t bytes) {
  while (!sending_.empty()) {
    Exchange& first = sending_.front();
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
