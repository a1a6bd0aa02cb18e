// SPDX-License-Identifier: Apache-2.0
#include "weir/control/client.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/un.h>
#include <unistd.h>

#include "weir/base/quote.h"

namespace weir::control {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Stream = beast::basic_stream<asio::local::stream_protocol>;
using Parser = http::response_parser<http::string_body>;

constexpr std::chrono::seconds kTimeout{60};  // of each step
constexpr std::size_t kAnswerMax = std::size_t{1} << 28;

// No server answers, whatever the errno.
tl::unexpected<Error> unreachable(int errno_value, const std::string& path) {
  const std::string_view hint =
      errno_value == EACCES
          ? "run as root or as a member of the socket's group"
          : "check that the server runs, or name its socket with --control or WEIR_SOCKET";
  auto failed = fail_errno(errno_value, "control socket " + quote(path), hint);
  failed.value().code = std::errc::not_connected;
  return failed;
}

Result<void> connect_to(const std::string& path, Stream& stream) {
  if (path.empty()) {
    return fail(std::errc::not_connected, "control socket", "is not given",
                "use --control PATH or set WEIR_SOCKET");
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) return unreachable(ENAMETOOLONG, path);
  error_code error;
  stream.socket().connect(asio::local::stream_protocol::endpoint(path), error);
  if (error) return unreachable(error.value(), path);
  return {};
}

Error error_of(const error_code& error, const std::string& path) {
  if (error == beast::error::timeout) return fail_errno(ETIMEDOUT, quote(path)).value();
  if (error == http::error::body_limit) return fail_errno(EFBIG, quote(path)).value();
  if (error.category() == make_error_code(http::error::bad_version).category()) {
    return {std::errc::protocol_error, quote(path), "the response is not HTTP", {}};
  }
  return fail_errno(error.value(), quote(path)).value();
}

// A server may answer before it has received the whole request, so errors of writing are ignored.
error_code exchange(asio::io_context& io, Stream& stream,
                    const http::request<http::string_body>& request, Parser& parser) {
  error_code failed;
  beast::flat_buffer buffer;
  stream.expires_after(kTimeout);
  http::async_write(stream, request, [&](error_code, std::size_t) {
    stream.expires_after(kTimeout);
    http::async_read(stream, buffer, parser,
                     [&](error_code error, std::size_t) { failed = error; });
  });
  io.run();
  return failed;
}

template <class Head>
std::string field(const Head& head, beast::string_view name) {
  const beast::string_view value = head[name];
  return {value.data(), value.size()};
}

}  // namespace

std::string default_control_socket() {
  if (geteuid() == 0) return "/run/weir.sock";
  const char* const folder = std::getenv("XDG_RUNTIME_DIR");
  return folder == nullptr || *folder == '\0' ? "" : std::string(folder) + "/weir.sock";
}

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
  asio::io_context io{1};
  Stream stream(io);
  if (auto connected = connect_to(path_, stream); !connected) {
    return tl::unexpected(connected.error());
  }
  http::request<http::string_body> request;
  request.version(11);
  request.method_string({method.data(), method.size()});
  request.target({target.data(), target.size()});
  request.set(http::field::host, "weir");
  request.keep_alive(false);
  if (!body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = body;
    request.prepare_payload();
  }
  if (!if_match.empty()) request.set(http::field::if_match, {if_match.data(), if_match.size()});
  Parser parser;
  parser.body_limit(kAnswerMax);
  parser.skip(method == "HEAD");
  const error_code failed = exchange(io, stream, request, parser);
  if (failed) return tl::unexpected(error_of(failed, path_));
  ControlAnswer answer{.status = parser.get().result_int(),
                       .etag = field(parser.get(), "ETag"),
                       .time_ns = 0,
                       .body = std::move(parser.get().body())};
  const std::string taken = field(parser.get(), "Weir-Time-Ns");
  std::from_chars(taken.data(), taken.data() + taken.size(), answer.time_ns);
  return answer;
}

Result<ControlAnswer> ControlClient::ask(std::string_view method, std::string_view target,
                                         std::string_view body) const {
  auto answer = send(method, target, body);
  if (!answer || answer->status == 200) return answer;
  const auto json = nlohmann::json::parse(answer->body, nullptr, false);
  if (!json.is_object()) {
    return fail(std::errc::protocol_error, quote(target),
                fmt::format("the server returned status {}", answer->status));
  }
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  const int code = json.contains("errno") && json["errno"].is_number_integer()
                       ? json["errno"].get<int>()
                       : (answer->status == 404 ? ENOENT : EINVAL);
  return fail(static_cast<std::errc>(code), text("where"), text("detail"), text("hint"));
}

}  // namespace weir::control
