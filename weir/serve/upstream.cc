// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/upstream.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "weir/base/assert.h"
#include "weir/serve/listen.h"
#include "weir/serve/proxy_header.h"
#include "weir/serve/send_directly.h"

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

// This port of any address of the machine.
sockaddr_storage any_address(const ServerAddress& server, std::uint16_t port) {
  sockaddr_storage address{};
  address.ss_family = server.address.ss_family;
  set_port(address, port);
  return address;
}

// More may have arrived.
constexpr std::size_t kReceivedMax = host::IoLoop::Options{}.receive_bytes;
constexpr int kNoPort = -1;  // instead of an errno value

// The port is used by another connection to the same server, or by another program.
bool is_taken(int error) { return error == EADDRINUSE || error == EADDRNOTAVAIL; }

}  // namespace

Upstream::~Upstream() {
  WEIR_ASSERT(is_over());
  if (socket_.is_open()) context_.io->forget(socket_.get());
  give_back_port();
}

void Upstream::connect(const ServerAddress& address, const UpstreamSource& source) {
  receive_.upstream = send_.upstream = this;
  receive_.done = received;
  send_.done = sent;
  server_ = address.text;
  ports_ = source.ports;
  if (const int error = begin(address, source); error != 0) return fail(error);
  if (ports_ != nullptr) {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &size);
    ports_->used(source_key(source.client), port_of(own));
  }
  send_.is_pending = true;
  context_.io->poll_room(socket_.get(), send_);
}

int Upstream::begin(const ServerAddress& address, const UpstreamSource& source) {
  switch (source.mode) {
    case SourceMode::kAny:
      break;
    case SourceMode::kReserved:
      return begin_reserved(address, source_key(source.client));
    case SourceMode::kClient:
      return begin_as_client(address, source.client);
  }
  const std::uint16_t last = ports_ == nullptr ? 0 : ports_->last_of(source_key(source.client));
  return begin_from_last(address, last);
}

int Upstream::begin_from_last(const ServerAddress& address, std::uint16_t last) {
  const sockaddr_storage from = any_address(address, last);
  if (last != 0 && try_from(address, &from, false) == 0) return 0;
  return try_from(address, nullptr, false);
}

int Upstream::begin_reserved(const ServerAddress& address, std::uint64_t client) {
  std::vector<std::uint16_t> failed;
  int error = EADDRNOTAVAIL;
  while (is_taken(error)) {
    taken_port_ = ports_->take(client);
    if (taken_port_ == 0) break;
    const sockaddr_storage from = any_address(address, taken_port_);
    error = try_from(address, &from, false);
    if (error != 0) failed.push_back(std::exchange(taken_port_, 0));
  }
  for (const std::uint16_t port : failed) ports_->give_back(port);
  return is_taken(error) ? kNoPort : error;
}

// With the port of the client too, unless it is taken.
int Upstream::begin_as_client(const ServerAddress& address, const sockaddr_storage& client) {
  sockaddr_storage from = unmapped(client);
  if (from.ss_family != address.address.ss_family) return EAFNOSUPPORT;
  const int error = try_from(address, &from, true);
  if (!is_taken(error)) return error;
  set_port(from, 0);
  return try_from(address, &from, true);
}

int Upstream::try_from(const ServerAddress& address, const sockaddr_storage* from,
                       bool is_transparent) {
  const int family = address.address.ss_family;
  socket_ = host::Fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket_.is_open()) return errno;
  tune(socket_.get());
  if (is_transparent && !set_transparent(socket_.get(), family)) return errno;
  if (from != nullptr) {
    set_option(socket_.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    const auto* const name = reinterpret_cast<const sockaddr*>(from);
    if (bind(socket_.get(), name, size_of(*from)) != 0) return errno;
  }
  const int done =
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address.address), address.size);
  return done == 0 || errno == EINPROGRESS ? 0 : errno;
}

void Upstream::give_back_port() {
  if (taken_port_ != 0) ports_->give_back(std::exchange(taken_port_, 0));
}

void Upstream::connected() {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(error);
  state_ = State::kOpen;
  receive();
  if (flush()) owner_.upstream_sent();
}

void Upstream::receive() {
  if (state_ != State::kOpen || receive_.is_pending) return;
  receive_.is_pending = true;
  polls_ = has_much_ && owner_.takes_large_pieces();
  if (polls_) return context_.io->poll_data(socket_.get(), receive_);
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
  if (self.polls_) return self.polled(completion.result);
  if (completion.result <= 0) return self.fail(-completion.result);
  const std::span<const std::byte> bytes = self.context_.io->received(completion);
  self.has_much_ = bytes.size() == kReceivedMax;
  self.owner_.upstream_received(bytes);
  self.context_.io->give_back(completion);
}

// Bytes have arrived, or the end.
void Upstream::polled(int result) {
  if (result < 0) return fail(-result);
  const auto [got, bytes] = receive_large(socket_.get(), context_.large_room, kLargePiece);
  has_much_ = bytes.size() >= kReceivedMax;
  if (got == -EAGAIN || got == -EINTR) return receive();
  if (got <= 0) return fail(-got);
  owner_.upstream_received(bytes);
}

bool Upstream::flush() {
  if (state_ != State::kOpen || send_.is_pending || out_.empty()) return false;
  const bool has_sent = send_queue(socket_.get(), out_) > 0;
  send_.is_pending = send_rest(context_, socket_.get(), out_, send_);
  return has_sent;
}

std::size_t Upstream::send_directly(std::span<const std::byte> piece) {
  if (state_ != State::kOpen || send_.is_pending) return 0;
  return serve::send_directly(socket_.get(), out_, piece);
}

void Upstream::sent(host::Operation& io, const host::Completion& completion) {
  auto& mine = static_cast<Io&>(io);
  Upstream& self = *mine.upstream;
  mine.is_pending = false;
  if (self.state_ == State::kClosed) return self.settle();
  if (self.state_ == State::kConnecting) return self.connected();
  if (completion.result == -EINTR || completion.result == -EAGAIN) {
    if (self.flush()) self.owner_.upstream_sent();
    return;
  }
  if (completion.result < 0) return self.fail(-completion.result);
  self.out_.drop(static_cast<std::size_t>(completion.result));
  self.owner_.upstream_sent();
}

void Upstream::fail(int error) {
  if (std::exchange(is_told_, true)) return;
  const std::string_view what =
      state_ == State::kConnecting ? "cannot be reached" : "has closed the connection";
  std::string text = fmt::format("server {} {}", server_, what);
  if (error == kNoPort) {
    text += ": all reserved source ports are in use";
  } else if (error != 0) {
    text += ": " + std::generic_category().message(error);
  }
  owner_.upstream_ended(text);
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
  give_back_port();
  owner_.upstream_over();
}

}  // namespace weir::serve
