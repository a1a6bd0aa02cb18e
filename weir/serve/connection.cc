// SPDX-License-Identifier: Apache-2.0
//
// The life of a connection and of its requests: how they begin, wait and end. Its other parts:
//   connection_receive.cc   bytes become requests     connection_store.cc    requests run
//   connection_payload.cc   data of writes arrives    connection_send.cc     replies are sent
//   connection_port.cc      answers to its session    connection_tls.cc, connection_gateway.cc
#include "weir/serve/connection.h"

#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include "weir/base/assert.h"
#include "weir/serve/dispatcher.h"

namespace weir::serve {
namespace {

static_assert(sizeof(PendingRequest) * Connection::kRequestsFree <= std::size_t{20} << 10);

template <class List, class Function>
void drain(List& list, Function function) {
  while (!list.empty()) {
    auto& one = list.front();
    list.erase(one);
    function(one);
  }
}

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
         !is_shaking_tls_ && working_.empty() && called_.empty() &&
         (upstream_ == nullptr || upstream_->is_over());
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
  release_all(replies_);
  if (!send_.is_pending) release_all(sending_);
  if (writing_ != nullptr && !receive_.is_pending) release(end_payload());
  wake_at(kNever);
  session_->closed();
  if (upstream_ != nullptr) upstream_->close();
  settle();
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

void Connection::settle() {
  if (state_ == State::kOpen || state_ == State::kHandshake) return;
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

// The spare request, as filled in by the session. REQUIRES: read_requests() has charged it.
PendingRequest& Connection::new_request() {
  PendingRequest& request = context_.requests.take();
  request.connection = this;
  request.loop = context_.index;
  request.id = ++began_;
  request.operation.file = -1;
  request.is_performed = false;
  request.is_tried = false;
  ++unanswered_;
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

void Connection::release_all(PendingRequestList& requests) {
  drain(requests, [this](PendingRequest& request) { release(request); });
}

void Connection::free_called() {
  PendingRequestList all;
  std::swap(all, called_);
  release_all(all);
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

}  // namespace weir::serve
