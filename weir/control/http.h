// SPDX-License-Identifier: Apache-2.0
//
// An HTTP server for a few administrators and many readers, in its own thread: a Unix socket, and
// optionally TCP, where every request except for the files of the page needs a bearer token
// (tokens.h) and a Host that is this machine. TCP beyond loopback is always encrypted
// (http_keys.h). Only http.cc, http_stream.h and client.cc use Boost.Beast.
//
//   auto http = HttpServer::create(options, answer);     bound; answers no request yet
//   std::thread thread([&] { http->run(); });
//   http->stop();  thread.join();
//
// `answer` is called in that thread and responds through a Reply, at once or later, from the same
// thread (use post() from others). A response with is_stream stays open: everything passed to
// publish() is sent to it as server-sent events. A slow reader gets the newest event and skips
// older ones.
//
// Bounds: kConnectionsMax connections on the Unix socket and as many on TCP, kStreamsMax streams of
// each, requests of kHeadMax and kBodyMax bytes that must arrive within kRequestTime; idle
// connections are closed after kIdleTime. Requests beyond a bound are answered with 431, 413, 408
// or 503, or closed, and affect no other client.
//
// Memory is bounded for TCP and for the Unix socket: bodies of requests that are not answered yet
// take at most kBodiesMax, responses that have not been read at most kRepliesMax; beyond that a
// request is answered with 503 at once. A body without the token is not read at all.
//
// TCP and the Unix socket have separate bounds, so that TCP clients never block an administrator on
// the Unix socket. When one is full, its longest idle connection is closed to admit the next; when
// descriptors run out, a TCP connection is closed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/control/http_keys.h"
#include "weir/control/tokens.h"

namespace weir::control {

struct HttpRequest {
  std::string method;
  std::string path;  // decoded, without the query
  std::vector<std::pair<std::string, std::string>> query;
  std::string body;
  std::string if_match;  // without quotes; empty: not given
  Access access = Access::kWrite;
  std::string who;  // "uid 0 pid 4711", or the name of the token; for the log

  // The first value of that name.
  std::optional<std::string_view> find(std::string_view name) const;
};

struct HttpResponse {
  unsigned status = 200;
  std::string body = {};
  std::string type = "application/json";
  std::string etag = {};                  // empty: none
  std::string allow = {};                 // methods of the path, for 405; empty: none
  std::uint64_t time_ns = 0;              // time of the data, since 1970; 0: none
  std::optional<std::size_t> count = {};  // entries on all pages of a list
  bool is_stream = false;                 // `body` is then the first event
};

struct HttpOptions {
  std::string socket_path;    // empty: none
  std::string tcp;            // "127.0.0.1:9090"; empty: none. Loopback only, or with keys
  std::vector<Token> tokens;  // required on TCP
  HttpKeys::Ptr keys = {};    // encrypts TCP; nullptr: plain text
};

// EINVAL: a TCP address that is not loopback and has no keys, or TCP without a token. Opens
// nothing.
Result<void> check(const HttpOptions& options);

// Splits "/a%20b?x=1"; false if it is not a path.
bool split_target(std::string_view target, HttpRequest& request);
// The name or address in the header Host, without a port.
std::string_view name_in_host(std::string_view host);
// Whether the header Host names this machine by address or as localhost. A page of another site
// whose name resolves to this machine (DNS rebinding) sends its own name.
bool is_local_host(std::string_view host);

class HttpServer {
 public:
  static constexpr std::size_t kConnectionsMax = 640;  // on each of the Unix socket and TCP
  static constexpr std::size_t kStreamsMax = 512;
  static constexpr std::size_t kHeadMax = 8192;
  static constexpr std::size_t kBodyMax = std::size_t{1} << 20;
  static constexpr std::size_t kBodiesMax = 16 * kBodyMax;
  static constexpr std::size_t kRepliesMax = std::size_t{64} << 20;
  static constexpr std::chrono::seconds kRequestTime{10};
  static constexpr std::chrono::seconds kIdleTime{60};

  using Reply = std::function<void(HttpResponse)>;
  using Answer = std::function<void(const HttpRequest&, Reply)>;

  // EINVAL: rejected by check().
  static Result<std::unique_ptr<HttpServer>> create(const HttpOptions& options, Answer answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Runs until stop().
  void run();
  // These two are thread-safe and never refused.
  void stop();
  void post(std::function<void()> function);
  // Calls the function periodically in the server's thread.
  void every(std::chrono::milliseconds interval, std::function<void()> function);

  // Replaces the tokens; a connection with one that is gone is refused from its next request on.
  // Thread-safe.
  void set_tokens(std::vector<Token> tokens);
  // Replaces the certificate for new connections. Thread-safe. REQUIRES: it was created with one.
  void set_keys(HttpKeys::Ptr keys);

  // Sends an event to all streams. Call in the server's thread.
  void publish(const std::string& event);
  std::size_t streams() const;
  // The port the kernel chose, for port 0.
  std::uint16_t tcp_port() const;

  struct State;

 private:
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace weir::control
