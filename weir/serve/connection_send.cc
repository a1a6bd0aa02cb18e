// SPDX-License-Identifier: Apache-2.0
//
// The part of a connection that sends greetings and replies.
#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/sendfile.h>
#include <sys/socket.h>

#include "weir/serve/connection.h"

namespace weir::serve {
namespace {

// Maximum sent per turn: a client that reads as fast as we send must not delay the others.
constexpr std::size_t kSendFileAtOnce = std::size_t{1} << 20;

}  // namespace

void Connection::flush() {
  is_dirty_ = false;
  if (state_ == State::kClosed) return;
  if (upstream_ != nullptr) return flush_gateway();
  if (send_.is_pending) return;
  if (greeting_ != nullptr && !greeting_->sending.empty()) return send_greeting();
  if (is_shaking_tls_) return;
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
  std::size_t total = 0;
  std::size_t skip = sent_of_first_;
  const auto add = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped);
    if (bytes.empty()) return;
    total += bytes.size();
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
  context_.spend(total);
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
      if (sent > 0) {
        budget -= static_cast<std::size_t>(sent);
        context_.spend(static_cast<std::uint64_t>(sent));
      }
      // 0: the file has just been truncated. The header is already on its way.
      if (sent == 0 || (sent < 0 && errno == EIO)) {
        note_store_error(first, EIO);
        return close();
      }
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return await_room();
    if (sent <= 0) return close();  // the client has disconnected
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
    self.release_all(self.sending_);
    self.close();
    return self.settle();
  }
  self.drop_sent(static_cast<std::size_t>(completion.result));
  if (self.hangs_up_ && self.session_->to_client()->empty()) return self.close();
  if (self.has_more_to_send()) {
    self.mark_dirty();
  } else {
    ++self.context_.quiet_sends;
  }
  self.go_on_shaking();
  self.receive();
  self.settle();
}

// Replies may have become ready meanwhile.
bool Connection::has_more_to_send() const {
  if (!sending_.empty() || !replies_.empty()) return true;
  return greeting_ != nullptr || tls_ != nullptr || upstream_ != nullptr;
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

// This many bytes were sent, counted from the start of the first reply.
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
