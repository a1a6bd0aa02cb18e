// SPDX-License-Identifier: Apache-2.0
//
// The other programs of bench/nfs in one executable:
//
//   nfs_peer server PORT                        a server that answers GETATTR, READ and WRITE of
//                                               NFS 3 at once, from memory
//   nfs_peer floor PORT SERVER_PORT             the minimum work of a gateway: it forwards bytes
//                                               while it walks the record marks of both sides,
//                                               reads the header of each call and keeps a table of
//                                               xids; no queue, no limit, one thread
//   nfs_peer load PORT OP SIZE DEPTH SECONDS [UID]
//                                               DEPTH calls of OP (getattr, read, write) in flight
//                                               on one connection; results as JSON, with the
//                                               replies of each 10 ms from began_s on, a time of
//                                               the monotonic clock
//
// All of them on 127.0.0.1. Errors end the program: it is only for measurements.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir/base/big_endian.h"
#include "weir/nfs/codec/call.h"
#include "weir/nfs/codec/message_writer.h"
#include "weir/nfs/codec/record.h"
#include "weir/nfs/codec/v3.h"

namespace weir::nfs {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kRead = std::size_t{256} << 10;
constexpr std::uint32_t kLast = 1U << 31;
constexpr auto kSlice = std::chrono::milliseconds{10};

void need(bool is_true, const char* what) {
  if (is_true) return;
  std::perror(what);
  std::exit(1);
}

sockaddr_in here(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int listen_on(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = here(port);
  need(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "bind");
  need(listen(fd, 64) == 0, "listen");
  return fd;
}

int connect_to(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = here(port);
  need(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
  no_delay(fd);
  return fd;
}

// False: the peer has closed.
bool send_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// Messages of a stream, in one fragment each: the first bytes of each are kept, the rest is
// counted.
class Messages {
 public:
  // Calls visit(head, length) for each message that is complete.
  template <class Visit>
  void add(const char* data, std::size_t size, const Visit& visit) {
    while (size > 0) {
      if (length_ == 0) {
        const std::size_t part = std::min(size, 4 - mark_.size());
        mark_.append(data, part);
        data += part;
        size -= part;
        if (mark_.size() < 4) return;
        length_ = load_be<std::uint32_t>(reinterpret_cast<const std::byte*>(mark_.data())) & ~kLast;
        mark_.clear();
        head_.clear();
        got_ = 0;
        continue;
      }
      const std::size_t part = std::min(size, length_ - got_);
      head_.append(data, std::min(part, kHead - std::min(head_.size(), kHead)));
      got_ += part;
      data += part;
      size -= part;
      if (got_ < length_) return;
      visit(head_, std::exchange(length_, 0));
    }
  }

 private:
  static constexpr std::size_t kHead = 512;
  std::string mark_;
  std::string head_;
  std::size_t length_ = 0;
  std::size_t got_ = 0;
};

// ---- server ----

void answer(const std::string& head, std::size_t length, std::string& out) {
  const MessageView message{std::as_bytes(std::span(head)), length};
  const Call call = read_call(message);
  XdrWriter reply = success_header(call.header.xid);
  switch (static_cast<Proc3>(call.header.procedure)) {
    case Proc3::kRead: {
      const std::uint32_t count = call.v3 ? call.v3->asked : 0;
      reply.u32(0).u32(0).u32(count).u32(0).u32(count).zeros(count);
      break;
    }
    case Proc3::kWrite:
      reply.u32(0).u32(0).u32(0).u32(static_cast<std::uint32_t>(length)).u32(2).zeros(8);
      break;
    default:
      reply.u32(0).zeros(84);
  }
  out += reply.record();
}

void serve_one(int fd) {
  std::vector<char> buffer(kRead);
  Messages calls;
  std::string out;
  for (;;) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    out.clear();
    calls.add(buffer.data(), static_cast<std::size_t>(got),
              [&](const std::string& head, std::size_t length) { answer(head, length, out); });
    if (!send_all(fd, out.data(), out.size())) break;
  }
  close(fd);
}

void serve(std::uint16_t port) {
  const int listener = listen_on(port);
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    need(fd >= 0, "accept");
    no_delay(fd);
    std::thread(serve_one, fd).detach();
  }
}

// ---- floor ----

struct Side {
  int fd = -1;
  Side* other = nullptr;
  Messages messages;
  std::string unsent;  // for this side
  absl::flat_hash_map<std::uint32_t, std::size_t>* calls = nullptr;
  bool is_client = false;
};

void watch(int epoll, Side& side, int how) {
  const bool reads = side.other->unsent.empty();
  epoll_event event{};
  event.events = (reads ? EPOLLIN : 0U) | (side.unsent.empty() ? 0U : EPOLLOUT);
  event.data.ptr = &side;
  epoll_ctl(epoll, how, side.fd, &event);
}

// False: the connection is over.
bool flush_side(Side& side) {
  while (!side.unsent.empty()) {
    const ssize_t sent =
        send(side.fd, side.unsent.data(), side.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN;
    side.unsent.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

void look(Side& side, const std::string& head, std::size_t length) {
  const MessageView message{std::as_bytes(std::span(head)), length};
  if (side.is_client) {
    const CallHeader header = read_call_header(message);
    (*side.calls)[header.xid] = length;
  } else {
    side.calls->erase(read_reply_header(message).xid);
  }
}

bool pass_on(Side& side, std::vector<char>& buffer) {
  const ssize_t got = recv(side.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN;
  if (got == 0) return false;
  const auto size = static_cast<std::size_t>(got);
  side.messages.add(buffer.data(), size,
                    [&](const std::string& head, std::size_t length) { look(side, head, length); });
  const ssize_t sent = send(side.other->fd, buffer.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN) return false;
  const auto done = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  side.other->unsent.append(buffer.data() + done, size - done);
  return true;
}

void floor_of(std::uint16_t port, std::uint16_t server_port) {
  const int listener = listen_on(port);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  std::vector<char> buffer(kRead);
  for (;;) {
    const int count = epoll_wait(epoll, &event, 1, -1);
    if (count < 1) continue;
    auto* const side = static_cast<Side*>(event.data.ptr);
    if (side == nullptr) {
      auto* const client = new Side;  // freed when the program ends
      auto* const server = new Side;
      client->fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      need(client->fd >= 0, "accept");
      no_delay(client->fd);
      server->fd = connect_to(server_port);
      client->other = server;
      server->other = client;
      client->is_client = true;
      client->calls = server->calls = new absl::flat_hash_map<std::uint32_t, std::size_t>;
      for (Side* one : {client, server}) watch(epoll, *one, EPOLL_CTL_ADD);
      continue;
    }
    const bool was_full = !side->unsent.empty() || !side->other->unsent.empty();
    bool goes_on = true;
    if ((event.events & EPOLLOUT) != 0) goes_on = flush_side(*side);
    if (goes_on && (event.events & (EPOLLIN | EPOLLHUP)) != 0) goes_on = pass_on(*side, buffer);
    if (!goes_on) {
      for (const Side* one : {side, side->other}) {
        epoll_ctl(epoll, EPOLL_CTL_DEL, one->fd, nullptr);
        shutdown(one->fd, SHUT_RDWR);
      }
      continue;
    }
    if (was_full || !side->other->unsent.empty()) {
      for (Side* one : {side, side->other}) watch(epoll, *one, EPOLL_CTL_MOD);
    }
  }
}

// ---- load ----

std::string call_of(const std::string& op, std::uint32_t xid, std::uint32_t size,
                    std::uint32_t uid) {
  const bool reads = op == "read";
  const Proc3 procedure = reads ? Proc3::kRead : op == "write" ? Proc3::kWrite : Proc3::kGetAttr;
  XdrWriter call = sys_call(xid, kNfsVersion3, static_cast<std::uint32_t>(procedure), uid);
  call.opaque("a file handle of 32 bytes, about");
  if (reads) call.u64(0).u32(size);
  if (op == "write") call.u64(0).u32(size).u32(0).opaque(std::string(size, 'w'));
  return call.record();
}

void load(std::uint16_t port, const std::string& op, std::uint32_t size, std::uint32_t depth,
          double seconds, std::uint32_t uid) {
  const int fd = connect_to(port);
  std::vector<std::string> calls;  // of each place; the xid is the place
  for (std::uint32_t xid = 0; xid < depth; ++xid) calls.push_back(call_of(op, xid, size, uid));
  std::vector<Clock::time_point> sent(depth);
  std::vector<std::uint32_t> due(depth);
  for (std::uint32_t xid = 0; xid < depth; ++xid) due[xid] = xid;
  std::vector<double> waits;
  std::vector<std::uint32_t> each(static_cast<std::size_t>(seconds * 100) + 1000);  // 10 ms
  waits.reserve(std::size_t{1} << 22);
  std::vector<char> buffer(kRead);
  std::string out;
  Messages replies;
  const auto began = Clock::now();
  const auto end = began + std::chrono::duration<double>(seconds);
  auto now = began;
  while (now < end) {
    out.clear();
    for (const std::uint32_t xid : due) {
      out += calls[xid];
      sent[xid] = now;
    }
    due.clear();
    need(send_all(fd, out.data(), out.size()), "send");
    while (due.empty()) {
      const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
      need(got > 0, "recv");
      now = Clock::now();
      replies.add(buffer.data(), static_cast<std::size_t>(got),
                  [&](const std::string& head, std::size_t) {
                    const auto xid =
                        load_be<std::uint32_t>(reinterpret_cast<const std::byte*>(head.data()));
                    need(xid < depth, "xid");
                    waits.push_back(std::chrono::duration<double>(now - sent[xid]).count());
                    const auto at = static_cast<std::size_t>((now - began) / kSlice);
                    ++each[std::min(at, each.size() - 1)];
                    due.push_back(xid);
                  });
    }
  }
  const double took = std::chrono::duration<double>(now - began).count();
  std::sort(waits.begin(), waits.end());
  const auto at = [&](std::size_t percent) { return 1e6 * waits[waits.size() * percent / 100]; };
  std::printf("{\"calls\": %zu, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, ",
              waits.size(), took, at(50), at(99));
  std::printf("\"began_s\": %.6f, \"each_10ms\": [",
              std::chrono::duration<double>(began.time_since_epoch()).count());
  for (std::size_t i = 0; i <= static_cast<std::size_t>((now - began) / kSlice); ++i) {
    std::printf("%s%u", i == 0 ? "" : ",", each[std::min(i, each.size() - 1)]);
  }
  std::puts("]}");
  close(fd);
}

}  // namespace
}  // namespace weir::nfs

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto port = [&](std::size_t at) {
    return static_cast<std::uint16_t>(std::stoul(words[at]));
  };
  if (words.size() == 2 && words[0] == "server") weir::nfs::serve(port(1));
  if (words.size() == 3 && words[0] == "floor") weir::nfs::floor_of(port(1), port(2));
  if ((words.size() == 6 || words.size() == 7) && words[0] == "load") {
    const auto number = [&](std::size_t at) {
      return static_cast<std::uint32_t>(std::stoul(words[at]));
    };
    weir::nfs::load(port(1), words[2], number(3), number(4), std::stod(words[5]),
                    words.size() == 7 ? number(6) : 1000);
    return 0;
  }
  std::fputs("usage: nfs_peer server|floor|load ...; see bench/nfs\n", stderr);
  return 64;
}
