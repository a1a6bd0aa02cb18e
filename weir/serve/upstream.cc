// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/upstream.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "weir/base/assert.h"

namespace weir::serve {
namespace {

void set_option(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);
}

// An unreachable server is detected after 3 attempts, about 7 s; a failed one within two minutes.
void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_SYNCNT, 2);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
}

}  // namespace

Upstream::~Upstream() {
  WEIR_ASSERT(is_over());
  if (socket_.is_open()) context_.io->forget(socket_.get());
}

void Upstream::connect(const ServerAddress& address) {
  receive_.upstream = send_.upstream = this;
  receive_.done = received;
  send_.done = sent;
  server_ = address.text;
  socket_ = host::Fd(
      socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket_.is_open()) return fail(errno);
  tune(socket_.get());
  const int done =
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address.address), address.size);
  if (done != 0 && errno != EINPROGRESS) return fail(errno);
  send_.is_pending = true;
  context_.io->poll_room(socket_.get(), send_);
}

void Upstream::connected() {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(error);
  state_ = State::kOpen;
  receive();
  flush();
}

void Upstream::receive() {
  if (state_ != State::kOpen || receive_.is_pending) return;
  receive_.is_pending = true;
  context_.io->receive(socket_.get(), receive_);
}

void Upstream::received(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Upstream& self = *mine.upstream;
  mine.is_pending = false;
  if (self.state_ == State::kClosed) {
    self.context_.io->give_back(completion);
    return self.settle();
  }
  if (completion.result == -ENOBUFS || completion.result == -EINTR) return self.receive();
  if (completion.result <= 0) return self.fail(-completion.result);
  self.owner_.upstream_received(self.context_.io->received(completion));
  self.context_.io->give_back(completion);
}

void Upstream::flush() {
  if (state_ != State::kOpen || send_.is_pending || out_.empty()) return;
  Outgoing& outgoing = context_.next_outgoing();
  outgoing.message = {};
  outgoing.message.msg_iov = outgoing.parts.data();
  outgoing.message.msg_iovlen = out_.parts(outgoing.parts);
  send_.is_pending = true;
  context_.io->send(socket_.get(), outgoing.message, send_);
}

void Upstream::sent(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Upstream& self = *mine.upstream;
  mine.is_pending = false;
  if (self.state_ == State::kClosed) return self.settle();
  if (self.state_ == State::kConnecting) return self.connected();
  if (completion.result == -EINTR || completion.result == -EAGAIN) return self.flush();
  if (completion.result < 0) return self.fail(-completion.result);
  self.out_.drop(static_cast<std::size_t>(completion.result));
  self.owner_.upstream_sent();
}

void Upstream::fail(int error) {
  if (std::exchange(is_told_, true)) return;
  const std::string_view what =
      state_ == State::kConnecting ? "cannot be reached" : "has closed the connection";
  owner_.upstream_ended(error == 0 ? fmt::format("server {} {}", server_, what)
                                   : fmt::format("server {} {}: {}", server_, what,
                                                 std::generic_category().message(error)));
}

void Upstream::close() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return;
  is_told_ = true;
  if (socket_.is_open()) {
    const linger now{1, 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    // No shutdown(2), which would end the connection in the usual way and keep its port in use.
    if (receive_.is_pending) context_.io->cancel(receive_);
    if (send_.is_pending) context_.io->cancel(send_);
  }
  settle();
}

void Upstream::settle() {
  if (state_ != State::kClosed || !is_over()) return;
  if (socket_.is_open()) {
    context_.io->forget(socket_.get());
    socket_ = host::Fd();
  }
  owner_.upstream_over();
}

}  // namespace weir::serve
