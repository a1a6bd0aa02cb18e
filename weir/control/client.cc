// SPDX-License-Identifier: Apache-2.0
#include "weir/control/client.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/control/control.h"
#include "weir/host/fd.h"

namespace weir::control {
namespace {

constexpr timeval kTimeout{60, 0};
constexpr std::size_t kAnswerMax = std::size_t{1} << 28;

// There is no server to ask, whatever the system calls it.
tl::unexpected<Error> unreachable(int errno_value, const std::string& path) {
  auto failed =
      fail_errno(errno_value, "control socket " + quote(path),
                 "is a server running there? name its socket with --control or WEIR_SOCKET");
  failed.value().code = std::errc::not_connected;
  return failed;
}

Result<host::Fd> connect_to(const std::string& path) {
  if (path.empty()) {
    return fail(std::errc::not_connected, "control socket", "is not named",
                "use --control PATH or set WEIR_SOCKET");
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return unreachable(ENAMETOOLONG, path);
  std::memcpy(address.sun_path, path.data(), path.size());
  host::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return fail_errno(errno, "socket");
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof kTimeout);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return unreachable(errno, path);
  }
  return socket;
}

// The value of a header in a head, whose names are in any case.
std::string header_of(std::string_view head, std::string_view name) {
  std::string lower(head);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::size_t at = lower.find(fmt::format("\r\n{}:", name));
  if (at == std::string::npos) return {};
  const std::size_t begin = head.find_first_not_of(" \t", at + name.size() + 3);
  return std::string(head.substr(begin, head.find("\r\n", begin) - begin));
}

Result<ControlAnswer> read_answer(int socket, const std::string& path) {
  std::string all;
  char buffer[65536];
  for (;;) {
    const ssize_t got = recv(socket, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno == EAGAIN ? ETIMEDOUT : errno, quote(path));
    if (got == 0) break;
    all.append(buffer, static_cast<std::size_t>(got));
    if (all.size() > kAnswerMax) return fail_errno(EFBIG, quote(path));
  }
  const std::size_t end = all.find("\r\n\r\n");
  ControlAnswer answer;
  const std::string_view line = std::string_view(all).substr(0, all.find("\r\n"));
  if (end == std::string::npos || !line.starts_with("HTTP/1.1 ") || line.size() < 12) {
    return fail(std::errc::protocol_error, quote(path), "the answer is not HTTP");
  }
  std::from_chars(line.data() + 9, line.data() + 12, answer.status);
  const std::string_view head = std::string_view(all).substr(0, end + 2);
  answer.etag = header_of(head, "etag");
  const std::string taken = header_of(head, "weir-time-ns");
  std::from_chars(taken.data(), taken.data() + taken.size(), answer.time_ns);
  answer.body = all.substr(end + 4);
  return answer;
}

}  // namespace

std::string control_socket_of(const std::string& option) {
  if (!option.empty()) return option;
  if (const char* const set = std::getenv("WEIR_SOCKET"); set != nullptr && *set != '\0')
    return set;
  return default_control_socket();
}

std::string url_text(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '_';
    if (plain) {
      shown += c;
    } else {
      shown += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return shown;
}

Result<ControlAnswer> ControlClient::send(std::string_view method, std::string_view target,
                                          std::string_view body, std::string_view if_match) const {
  const auto socket = connect_to(path_);
  if (!socket) return tl::unexpected(socket.error());
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n", method, target);
  if (!body.empty()) {
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  if (!if_match.empty()) text += fmt::format("If-Match: {}\r\n", if_match);
  text += "\r\n";
  text += body;
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket->get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;  // it may have answered before it had all
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return read_answer(socket->get(), path_);
}

Result<ControlAnswer> ControlClient::ask(std::string_view method, std::string_view target,
                                         std::string_view body) const {
  auto answer = send(method, target, body);
  if (!answer || answer->status == 200) return answer;
  const auto json = nlohmann::json::parse(answer->body, nullptr, false);
  if (!json.is_object()) {
    return fail(std::errc::protocol_error, quote(target),
                fmt::format("the server answered {}", answer->status));
  }
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  const int code = json.contains("errno") && json["errno"].is_number_integer()
                       ? json["errno"].get<int>()
                       : (answer->status == 404 ? ENOENT : EINVAL);
  return fail(static_cast<std::errc>(code), text("where"), text("error"), text("hint"));
}

}  // namespace weir::control
