// SPDX-License-Identifier: Apache-2.0
//
// The part of a connection that only gateways use: their server, and bytes that are not replies to
// a request.
#include <utility>

#include <fmt/format.h>

#include "weir/serve/connection.h"
#include "weir/serve/send_directly.h"

namespace weir::serve {

Ends Connection::ends() const {
  if (ends_ != nullptr) return *ends_;
  Ends ends;
  socklen_t size = sizeof ends.client;
  getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&ends.client), &size);
  size = sizeof ends.server;
  getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&ends.server), &size);
  return ends;
}

void Connection::set_ends(const Ends& ends) {
  ends_ = std::make_unique<Ends>(ends);
  identity_ = {.nid = nid_of(ends.client), .is_local = is_loopback(ends.client)};
}

void Connection::connect(const ServerAddress& server, const UpstreamSource& source) {
  Upstream::Owner& owner = *this;
  upstream_ = std::make_unique<Upstream>(context_, owner, *session_->to_server());
  upstream_->connect(server, source);
}

void Connection::upstream_received(std::span<const std::byte> bytes) {
  session_->from_server(bytes);
  if (state_ == State::kClosed) return;
  mark_dirty();  // which also requests more
}

void Connection::upstream_sent() {
  session_->transferred();
  mark_dirty();
  receive();
}

void Connection::upstream_ended(const std::string& reason) {
  if (state_ != State::kClosed) session_->server_ended(reason);
}

void Connection::flush_gateway() {
  const bool has_sent = upstream_->flush();
  if (flush_to_client() || has_sent) session_->transferred();
  if (hangs_up_ && !send_.is_pending) return close();
  if (session_->takes_from_server()) upstream_->receive();
  receive();
  settle();
}

// Whether bytes were sent. What the socket does not take at once is left to the kernel.
bool Connection::flush_to_client() {
  ByteQueue& out = *session_->to_client();
  if (send_.is_pending || out.empty()) return false;
  const bool has_sent = send_queue(socket_.get(), out) > 0;
  send_.is_pending = send_rest(context_, socket_.get(), out, send_);
  return has_sent;
}

// More of a message that is forwarded while it arrives.
void Connection::receive_streamed() {
  if (state_ != State::kOpen || !rest_.empty()) return receive();
  const std::size_t most = session_->streamed_from_client();
  if (most == 0) return receive();
  const auto [got, bytes] = receive_large(socket_.get(), context_.large_room, most);
  if (got <= 0 && got != -EAGAIN && got != -EINTR) return close();
  if (!bytes.empty()) use(bytes);
  receive();
}

std::size_t Connection::send_to_client(std::span<const std::byte> piece) {
  if (state_ == State::kClosed || send_.is_pending) return 0;
  return send_directly(socket_.get(), *session_->to_client(), piece);
}

std::size_t Connection::send_to_server(std::span<const std::byte> piece) {
  return upstream_ == nullptr ? 0 : upstream_->send_directly(piece);
}

bool Connection::hold(std::size_t bytes) {
  return has_room(bytes) && context_.pool.charge(memory_, bytes);
}

// The request that is being read needs room too.
bool Connection::has_room(std::size_t bytes) const {
  return context_.pool.has_room(memory_, bytes + sizeof(PendingRequest));
}

void Connection::release(std::size_t bytes) {
  context_.pool.discharge(memory_, bytes);
  context_.freed = true;
}

void Connection::wake_at(Instant when) {
  const bool is_set = context_.alarms.contains(alarm_);
  if (when == kNever) {
    if (is_set) context_.alarms.erase(alarm_);
  } else if (is_set) {
    context_.alarms.update(alarm_, when);
  } else {
    context_.alarms.push(alarm_, when);
  }
}

void Connection::wake() {
  if (state_ != State::kClosed) session_->wake();
}

void Connection::note(std::string_view text) {
  context_.log.note(EventLog::Kind::kGateway, fmt::format("{}: {}", print_nid(identity_.nid), text),
                    context_.now);
}

void Connection::hang_up() {
  if (state_ == State::kClosed) return;
  if (hangs_up_ || session_->to_client()->empty()) return close();
  hangs_up_ = true;
  mark_dirty();
}

}  // namespace weir::serve
