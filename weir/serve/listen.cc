// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/listen.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/holder.h"
#include "weir/host/machine.h"
#include "weir/serve/source_ports.h"

namespace weir::serve {
namespace {

constexpr int kBacklog = 512;
constexpr rlim_t kFilesMax = rlim_t{1} << 20;
constexpr int kSocketKind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
// A killed server keeps its sockets until the kernel has released its ring, some time after the
// process has exited: a server that is restarted at once waits for that (holder.h). For a running
// holder it waits this long, since TCP does not say whether it runs.
constexpr std::chrono::milliseconds kInUse{1000};
constexpr long kUnknownHolder = 1;  // init, which always runs

constexpr const char* kTransparentHint =
    "addresses of clients need CAP_NET_ADMIN: start as root, or with "
    "AmbientCapabilities=CAP_NET_ADMIN of systemd";

// Whether it is a stale socket of a server: other files must not be removed, nor a socket whose
// server is only busy.
bool is_left_behind(const sockaddr_un& address) {
  struct stat there {};
  if (lstat(address.sun_path, &there) != 0 || !S_ISSOCK(there.st_mode)) return false;
  const host::Fd probe(socket(AF_UNIX, kSocketKind, 0));
  return probe.is_open() &&
         connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

// The process that listens on a Unix socket, or listened there when it ended; kUnknownHolder if the
// socket does not say.
long listener_of(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());
  const host::Fd probe(socket(AF_UNIX, kSocketKind, 0));
  ucred who{};
  socklen_t size = sizeof who;
  const bool is_known =
      probe.is_open() &&
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 &&
      getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
  return is_known ? who.pid : kUnknownHolder;
}

// The remedy for a path that is in use.
const char* in_use_hint(const char* path) {
  struct stat there {};
  const bool is_socket = lstat(path, &there) == 0 && S_ISSOCK(there.st_mode);
  return is_socket ? "another server listens there"
                   : "the file there is not a socket; name another path";
}

Result<host::Fd> listen_unix(const ListenAddress& address) {
  const std::string where = print_listen(address);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address.path.data(), address.path.size());
  host::Fd fd(socket(AF_UNIX, kSocketKind, 0));
  if (!fd.is_open()) return fail_errno(errno, where);
  const auto bind_it = [&] {
    const auto* const to = reinterpret_cast<const sockaddr*>(&name);
    return bind(fd.get(), to, sizeof name) == 0 ? 0 : errno;
  };
  int error = bind_it();
  if (error == EADDRINUSE && is_left_behind(name)) {
    unlink(name.sun_path);
    error = bind_it();
  }
  if (error != 0) {
    return fail_errno(error, where, error == EADDRINUSE ? in_use_hint(name.sun_path) : "");
  }
  if (::listen(fd.get(), kBacklog) != 0) return fail_errno(errno, where);
  return fd;
}

// An empty host means all addresses, IPv6 and IPv4.
socklen_t fill(const ListenAddress& address, sockaddr_storage& to) {
  if (address.host.find(':') != std::string::npos || address.host.empty()) {
    auto& six = reinterpret_cast<sockaddr_in6&>(to);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(address.port);
    if (!address.host.empty()) inet_pton(AF_INET6, address.host.c_str(), &six.sin6_addr);
    return sizeof six;
  }
  auto& four = reinterpret_cast<sockaddr_in&>(to);
  four.sin_family = AF_INET;
  four.sin_port = htons(address.port);
  inet_pton(AF_INET, address.host.c_str(), &four.sin_addr);
  return sizeof four;
}

Result<host::Fd> listen_tcp(ListenAddress& address) {
  const std::string where = print_listen(address);
  sockaddr_storage name{};
  socklen_t size = fill(address, name);
  host::Fd fd(socket(name.ss_family, kSocketKind, 0));
  if (!fd.is_open()) return fail_errno(errno, where);
  const int on = 1;
  const int off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.host.empty()) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (address.is_transparent && !set_transparent(fd.get(), name.ss_family)) {
    return fail_errno(errno, where, kTransparentHint);
  }
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) {
    return fail_errno(errno, where,
                      errno == EADDRINUSE ? "another server listens there; use another port" : "");
  }
  if (::listen(fd.get(), kBacklog) != 0) return fail_errno(errno, where);
  size = sizeof name;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size);
  address.port = ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                                  : reinterpret_cast<sockaddr_in&>(name).sin_port);
  return fd;
}

}  // namespace

Result<host::Fd> listen_on(ListenAddress& address) {
  const bool is_unix = address.kind == ListenAddress::Kind::kUnix;
  std::optional<Result<host::Fd>> socket;
  long holder = kUnknownHolder;
  host::wait_until_free(
      [&] {
        socket = is_unix ? listen_unix(address) : listen_tcp(address);
        return *socket || socket->error().code != std::errc::address_in_use;
      },
      [&] {
        // It is asked once: clients fill the backlog of a server that has ended, and then its
        // socket says nothing.
        if (is_unix && holder == kUnknownHolder) holder = listener_of(address.path);
        return host::is_alive(holder) ? holder : 0L;
      },
      print_listen(address), kInUse);
  return *std::move(socket);
}

bool set_transparent(int socket, int family) {
  const int on = 1;
  const bool is_six = family == AF_INET6;
  return setsockopt(socket, is_six ? IPPROTO_IPV6 : IPPROTO_IP,
                    is_six ? IPV6_TRANSPARENT : IP_TRANSPARENT, &on, sizeof on) == 0;
}

Result<void> check_source(SourceMode mode) {
  if (mode == SourceMode::kAny) return {};
  const std::string where = "source " + print_source(mode);
  const host::Fd probe(socket(AF_INET, kSocketKind, 0));
  if (!probe.is_open()) return fail_errno(errno, where);
  if (mode == SourceMode::kClient) {
    if (set_transparent(probe.get(), AF_INET)) return {};
    return fail_errno(errno, where, kTransparentHint);
  }
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(SourcePorts::kLast);
  if (bind(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return {};
  if (errno == EADDRINUSE) return {};
  return fail_errno(errno, where,
                    "reserved ports need CAP_NET_BIND_SERVICE: start as root, or with "
                    "AmbientCapabilities=CAP_NET_BIND_SERVICE of systemd");
}

Result<std::uint32_t> room_for_connections(std::uint32_t wanted, std::uint32_t others) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t needed = rlim_t{wanted} + others;
  // As many as possible, because other connections, such as those of the lock service, have no
  // other bound.
  if (files.rlim_cur < std::min(files.rlim_max, kFilesMax)) {
    files.rlim_cur = std::min(files.rlim_max, kFilesMax);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (files.rlim_cur >= needed) return wanted;
  if (files.rlim_cur <= others) {
    return fail(std::errc::too_many_files_open, "limit of open files",
                fmt::format("{} are too few for a connection", files.rlim_cur),
                "raise it (ulimit -n)");
  }
  return static_cast<std::uint32_t>(files.rlim_cur - others);
}

Result<void> check_memory(Bytes payload) {
  const std::uint64_t memory = host::machine_memory().count();
  if (memory == 0 || payload.count() <= memory / 2) return {};
  return fail(std::errc::not_enough_memory, "limit of memory",
              fmt::format("{} of payload is more than half of this machine's {}",
                          print_size(payload), about_size(Bytes{memory})),
              "lower it");
}

Result<void> become_user(const std::string& user) {
  const std::string where = "user " + quote(user);
  const passwd* const entry = getpwnam(user.c_str());
  if (entry == nullptr) {
    return fail(std::errc::invalid_argument, where, "does not exist", "name a user of this system");
  }
  if (entry->pw_uid == geteuid()) return {};
  if (geteuid() != 0) {
    return fail(std::errc::operation_not_permitted, where, "only root can change the user",
                "start as root, or omit the user");
  }
  if (initgroups(user.c_str(), entry->pw_gid) != 0 || setgid(entry->pw_gid) != 0 ||
      setuid(entry->pw_uid) != 0) {
    return fail_errno(errno, where);
  }
  return {};
}

}  // namespace weir::serve
