// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"

namespace weir::nbd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kDefaultPort = "10809";
constexpr std::size_t kReceiveBytes = 262'144;
constexpr auto kConnectTime = seconds{10};
constexpr auto kLastReplies = seconds{10};
constexpr auto kProgressEvery = milliseconds{100};

// ---- addresses ----

// "a%20b" is "a b". None: a % without two hexadecimal digits.
std::optional<std::string> decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || read.ptr != digits.data() + 2) return std::nullopt;
    plain += static_cast<char>(value);
    i += 2;
  }
  return plain;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

Result<Address> parse_unix(std::string_view rest, std::string_view whole) {
  constexpr std::string_view kSocket = "?socket=";
  const std::size_t question = rest.find(kSocket);
  const auto name = decoded(rest.substr(0, question));
  const auto path =
      question == rest.npos ? std::nullopt : decoded(rest.substr(question + kSocket.size()));
  if (!name || !path || path->empty()) {
    return fail(std::errc::invalid_argument, quote(whole), "does not name a socket",
                "write nbd+unix:///EXPORT?socket=PATH");
  }
  return Address{.host = {}, .port = {}, .socket_path = *path, .export_name = *name};
}

Result<Address> parse_tcp(std::string_view rest, std::string_view whole) {
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  const auto name = slash == rest.npos ? std::string() : decoded(rest.substr(slash + 1));
  std::string_view host = authority, port = kDefaultPort;
  const std::size_t colon = authority.rfind(':');
  if (colon != authority.npos && authority.find(']', colon) == authority.npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!name || host.empty() || port.empty() || port.find_first_not_of("0123456789") != port.npos) {
    return fail(std::errc::invalid_argument, quote(whole), "does not name a server",
                "write nbd://HOST[:PORT]/EXPORT");
  }
  return Address{.host = std::string(host),
                 .port = std::string(port),
                 .socket_path = {},
                 .export_name = *name};
}

// ---- sockets ----

Result<host::Fd> connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(std::errc::filename_too_long, quote(path), "is too long for a Unix socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  host::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fail_errno(errno, "server");
  }
  return fd;
}

Result<host::Fd> connect_tcp(const Address& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found); error != 0) {
    return fail(std::errc::host_unreachable, "server", gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  int error = EHOSTUNREACH;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    host::Fd fd(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    if (fd.is_open() && ::connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0) {
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return fd;
    }
    error = errno;
  }
  return fail_errno(error, "server");
}

// When the request with this number is due.
Nanoseconds due_after(Rate rate, std::uint64_t number) {
  const auto wide = static_cast<unsigned __int128>(rate.time_ns()) * number;
  return Nanoseconds{static_cast<std::int64_t>(wide / rate.tokens())};
}

}  // namespace

Result<Address> parse_uri(std::string_view text) {
  std::string_view rest = text;
  auto parsed = [&]() -> Result<Address> {
    if (take_prefix(rest, "nbd+unix:///")) return parse_unix(rest, text);
    if (take_prefix(rest, "nbd://")) return parse_tcp(rest, text);
    return fail(std::errc::invalid_argument, quote(text), "is not an address of this command",
                "write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH");
  }();
  if (parsed && parsed->export_name.size() > kStringMax) {
    return fail(std::errc::invalid_argument, quote(text), "has an export name that is too long");
  }
  return parsed;
}

// ---- a connection ----

class Load::Connection {
 public:
  Connection(host::Fd fd, std::uint32_t depth) : fd_(std::move(fd)), slots_(depth) {
    for (std::uint32_t i = depth; i > 0; --i) free_.push_back(i - 1);
  }

  Result<Session> open(const std::string& export_name);

  int fd() const { return fd_.get(); }
  bool has_room() const { return !free_.empty(); }
  bool has_output() const { return sent_ < out_.size(); }
  std::size_t in_progress() const { return slots_.size() - free_.size(); }

  void start(const Request& request, std::span<const std::byte> payload, Instant due);
  Result<void> send_some();
  // Records the replies that have arrived.
  Result<void> receive(LoadResult& result);

 private:
  struct Slot {
    Instant due{};
    std::uint32_t size = 0;
    bool is_read = false;
    bool is_used = false;
  };

  Result<std::size_t> receive_some(int flags);
  Result<void> read(std::span<const std::byte> in, LoadResult& result);
  Result<void> read_head();
  void record(LoadResult& result);

  host::Fd fd_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;  // bytes of out_
  std::vector<std::byte> in_ = std::vector<std::byte>(kReceiveBytes);
  std::array<std::byte, kReplyBytes> head_{};
  std::size_t head_size_ = 0;
  SimpleReply answer_;         // the reply that is being received
  std::size_t data_left_ = 0;  // of it
};

Result<std::size_t> Load::Connection::receive_some(int flags) {
  const ssize_t got = recv(fd_.get(), in_.data(), in_.size(), flags);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::size_t{0};
  if (got < 0) return fail_errno(errno, "server");
  return fail(std::errc::connection_reset, "server", "closed the connection");
}

Result<Session> Load::Connection::open(const std::string& export_name) {
  const timeval patience{.tv_sec = kConnectTime.count(), .tv_usec = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ClientHandshake handshake(export_name);
  for (;;) {
    const auto got = receive_some(0);
    if (!got) return tl::unexpected(got.error());
    if (*got == 0) return fail(std::errc::timed_out, "server", "did not answer within 10 s");
    std::span<const std::byte> in(in_.data(), *got);
    const auto state = handshake.next(in, out_);
    if (state == ClientHandshake::State::kFailed) {
      return fail(std::errc::protocol_error, "server", handshake.error());
    }
    if (auto sent = send_some(); !sent) return tl::unexpected(sent.error());
    if (state == ClientHandshake::State::kReady) return handshake.session();
  }
}

void Load::Connection::start(const Request& request, std::span<const std::byte> payload,
                             Instant due) {
  Request numbered = request;
  numbered.cookie = free_.back();
  slots_[free_.back()] = {.due = due,
                          .size = static_cast<std::uint32_t>(request.length),
                          .is_read = request.command == Command::kRead,
                          .is_used = true};
  free_.pop_back();
  append_request(numbered, out_);
  out_.insert(out_.end(), payload.begin(), payload.end());
}

Result<void> Load::Connection::send_some() {
  while (has_output()) {
    const ssize_t sent =
        send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return {};
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return fail_errno(errno, "server");
    sent_ += static_cast<std::size_t>(sent);
  }
  out_.clear();
  sent_ = 0;
  return {};
}

Result<void> Load::Connection::receive(LoadResult& result) {
  for (;;) {
    const auto got = receive_some(MSG_DONTWAIT);
    if (!got) return tl::unexpected(got.error());
    if (auto taken = read({in_.data(), *got}, result); !taken) return taken;
    if (*got < in_.size()) return {};
  }
}

Result<void> Load::Connection::read(std::span<const std::byte> in, LoadResult& result) {
  while (!in.empty()) {
    if (data_left_ == 0) {
      const std::size_t taken = std::min(head_.size() - head_size_, in.size());
      std::memcpy(head_.data() + head_size_, in.data(), taken);
      head_size_ += taken;
      in = in.subspan(taken);
      if (head_size_ < head_.size()) return {};
      if (auto checked = read_head(); !checked) return checked;
    }
    const std::size_t skipped = std::min(data_left_, in.size());
    data_left_ -= skipped;
    in = in.subspan(skipped);
    if (data_left_ == 0) record(result);
  }
  return {};
}

// Which request it answers, and how much data follows.
Result<void> Load::Connection::read_head() {
  head_size_ = 0;
  const auto reply = read_reply(head_);
  if (!reply || reply->cookie >= slots_.size() || !slots_[reply->cookie].is_used) {
    return fail(std::errc::protocol_error, "server", "answered a request that was not sent");
  }
  answer_ = *reply;
  const Slot& slot = slots_[answer_.cookie];
  data_left_ = slot.is_read && answer_.error == ErrorCode::kNone ? slot.size : 0;
  return {};
}

void Load::Connection::record(LoadResult& result) {
  Slot& slot = slots_[answer_.cookie];
  LoadResult::Kind& kind = slot.is_read ? result.reads : result.writes;
  if (answer_.error == ErrorCode::kNone) {
    const std::int64_t took = (host::now() - slot.due).count();
    kind.latency.record(static_cast<std::uint64_t>(std::max<std::int64_t>(took, 0)));
  } else {
    ++kind.errors;
  }
  slot.is_used = false;
  free_.push_back(static_cast<std::uint32_t>(answer_.cookie));
}

// ---- the load ----

Load::Load(const LoadPlan& plan) : plan_(plan), rng_(1), payload_(plan.size) {
  for (std::byte& byte : payload_) byte = static_cast<std::byte>(rng_.next());
}
Load::~Load() = default;

Result<void> Load::check_export(const Session& session) const {
  const std::string size = print_size(Bytes{plan_.size});
  if (session.size < plan_.size) {
    return fail(std::errc::invalid_argument, "export",
                fmt::format("is smaller than a request of {}", size), "give a smaller --size");
  }
  if (plan_.size % session.blocks.minimum != 0 || plan_.size > session.blocks.maximum) {
    return fail(std::errc::invalid_argument, "export",
                fmt::format("does not accept requests of {}; it accepts multiples of {} up to {}",
                            size, session.blocks.minimum, session.blocks.maximum),
                "give another --size");
  }
  if (plan_.read_percent < 100 && (session.flags & kReadOnly) != 0) {
    return fail(std::errc::read_only_file_system, "export", "is read-only", "give --read 100");
  }
  return {};
}

Result<void> Load::connect(const Address& address) {
  for (std::uint32_t i = 0; i < plan_.connections; ++i) {
    auto fd =
        address.socket_path.empty() ? connect_tcp(address) : connect_unix(address.socket_path);
    if (!fd) return tl::unexpected(fd.error());
    auto connection = std::make_unique<Connection>(*std::move(fd), plan_.depth);
    const auto session = connection->open(address.export_name);
    if (!session) return tl::unexpected(session.error());
    if (auto checked = check_export(*session); !checked) return checked;
    blocks_ = session->size / plan_.size;
    connections_.push_back(std::move(connection));
  }
  return {};
}

Load::Connection* Load::with_room() {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& one = *connections_[next_++ % connections_.size()];
    if (one.has_room()) return &one;
  }
  return nullptr;
}

// Requests that are due, as far as there is room.
void Load::issue(Instant now) {
  while (Connection* const connection = with_room()) {
    Instant due = now;
    if (plan_.rate) {
      due = start_ + due_after(*plan_.rate, issued_);
      if (due > now) {
        due_ = due;
        return;
      }
    }
    issue_on(*connection, due);
  }
  due_ = kNever;
}

void Load::issue_on(Connection& connection, Instant due) {
  const bool is_read = rng_.below(100) < plan_.read_percent;
  const Request request{.cookie = 0,
                        .offset = rng_.below(blocks_) * plan_.size,
                        .length = plan_.size,
                        .command = is_read ? Command::kRead : Command::kWrite};
  connection.start(request, is_read ? std::span<const std::byte>{} : payload_, due);
  ++issued_;
}

std::uint64_t Load::in_progress() const {
  std::uint64_t all = 0;
  for (const auto& connection : connections_) all += connection->in_progress();
  return all;
}

Result<void> Load::wait(Instant until) {
  std::vector<pollfd> polled;
  polled.reserve(connections_.size());
  for (const auto& connection : connections_) {
    const int events = POLLIN | (connection->has_output() ? POLLOUT : 0);
    polled.push_back({connection->fd(), static_cast<short>(events), 0});
  }
  const Nanoseconds left = until - host::now();
  const timespec time{.tv_sec = 0,
                      .tv_nsec = std::clamp<std::int64_t>(left.count(), 0, 100'000'000)};
  if (ppoll(polled.data(), polled.size(), &time, nullptr) < 0 && errno != EINTR) {
    return fail_errno(errno, "poll");
  }
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    if (auto received = connections_[i]->receive(result_); !received) return received;
  }
  return {};
}

Result<void> Load::turn(Instant until) {
  for (const auto& connection : connections_) {
    if (auto sent = connection->send_some(); !sent) return sent;
  }
  return wait(until);
}

Result<LoadResult> Load::run(const std::atomic<bool>& stop,
                             const std::function<void(const LoadResult&)>& progress) {
  start_ = host::now();
  const Instant end = start_ + plan_.time;
  Instant shown_at = start_ + kProgressEvery;
  for (Instant now = start_; now < end && !stop; now = host::now()) {
    issue(now);
    if (auto done = turn(std::min({end, due_, shown_at})); !done) {
      return tl::unexpected(done.error());
    }
    result_.elapsed = host::now() - start_;
    if (host::now() < shown_at) continue;
    shown_at += kProgressEvery;
    progress(result_);
  }
  LoadResult result = result_;  // without replies that arrive later
  const Instant last = host::now() + kLastReplies;
  while (in_progress() != 0 && host::now() < last) {
    if (auto done = turn(last); !done) return tl::unexpected(done.error());
  }
  result.unanswered = in_progress();
  return result;
}

}  // namespace weir::nbd
