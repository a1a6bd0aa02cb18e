// SPDX-License-Identifier: Apache-2.0
#include "weir/control/http.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <utility>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/control/http_stream.h"
#include "weir/control/problem.h"
#include "weir/host/mailbox.h"
#include "weir/serve/options.h"

namespace weir::control {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

using Socket = HttpStream::Socket;
constexpr std::chrono::seconds kWriteTime{30};
constexpr std::chrono::seconds kLingerTime{5};
constexpr std::chrono::milliseconds kAcceptPause{100};
// Received bytes that were not parsed yet: the rest of a header, or a piece of a body.
constexpr std::size_t kReadAhead = 2 * HttpServer::kHeadMax;
constexpr std::size_t kDiscarded = HttpServer::kHeadMax;  // bytes at a time
constexpr std::size_t kSmallReply = 4096;                 // always sent, such as an error
constexpr std::string_view kBearer = "Bearer ";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool decode(std::string_view text, bool plus_is_blank, std::string& decoded) {
  decoded.clear();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '+' && plus_is_blank) {
      decoded += ' ';
    } else if (text[at] != '%') {
      decoded += text[at];
    } else {
      if (at + 2 >= text.size()) return false;
      const int high = hex_digit(text[at + 1]);
      const int low = hex_digit(text[at + 2]);
      if (high < 0 || low < 0) return false;
      decoded += static_cast<char>(high * 16 + low);
      at += 2;
    }
  }
  return true;
}

}  // namespace

std::optional<std::string_view> HttpRequest::find(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

bool split_target(std::string_view target, HttpRequest& request) {
  if (!target.starts_with('/')) return false;
  const std::size_t mark = std::min(target.find('?'), target.size());
  if (!decode(target.substr(0, mark), false, request.path)) return false;
  std::string_view rest = target.substr(std::min(mark + 1, target.size()));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    std::string name, value;
    if (!decode(pair.substr(0, equals), true, name)) return false;
    if (!decode(pair.substr(std::min(equals + 1, pair.size())), true, value)) return false;
    request.query.emplace_back(std::move(name), std::move(value));
  }
  return true;
}

std::string_view name_in_host(std::string_view host) {
  // "[::1]:80", "127.0.0.1:80", "localhost", "::1"
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  if (std::count(host.begin(), host.end(), ':') == 1) return host.substr(0, host.find(':'));
  return host;
}

bool is_local_host(std::string_view host) {
  host = name_in_host(host);
  if (beast::iequals({host.data(), host.size()}, "localhost")) return true;
  error_code error;
  (void)asio::ip::make_address(std::string(host), error);
  return !error;
}

// The process at the other end of a Unix socket.
std::string peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "unknown";
  return fmt::format("uid {} pid {}", peer.uid, peer.pid);
}

class Session;

// A listening socket: Unix or TCP.
struct Listener {
  bool needs_token = false;
  std::size_t connections = 0;
  std::size_t streams = 0;
  std::size_t bodies = 0;    // bytes that were announced
  std::size_t replies = 0;   // bytes that are being sent
  std::list<Session*> idle;  // connections without a request in progress, longest idle first

  // Closes the longest idle one; false: there is none.
  bool drop_idle();
};

struct HttpServer::State {
  explicit State(host::Fd wake_fd) : letters(std::move(wake_fd)) {}
  // Letters contain answers to connections, which need `io`; the descriptor belongs to the mailbox.
  ~State() {
    (void)letters.close();
    wake.release();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Answer answer;
  std::vector<Token> tokens;
  HttpKeys::Ptr keys;
  std::string path;
  Listener local_listener;
  Listener tcp_listener{
      .needs_token = true, .connections = 0, .streams = 0, .bodies = 0, .replies = 0, .idle = {}};
  std::list<std::weak_ptr<Session>> streams;
  // From other threads: one answer for each request in progress.
  host::Mailbox<std::function<void()>> letters;
  asio::io_context io{1};
  asio::posix::stream_descriptor wake{io, letters.fd()};
  std::optional<asio::local::stream_protocol::acceptor> local;
  std::optional<asio::ip::tcp::acceptor> tcp;
  std::deque<asio::steady_timer> timers;

  void await_letters();
  void accept_local();
  void accept_tcp();
  void admit(Socket socket, Listener& listener);
  void after_a_breath(std::function<void()> function);
  void repeat(asio::steady_timer& timer, std::chrono::milliseconds interval,
              const std::function<void()>& function);
};

// One connection. Exists while an operation is in progress or its answer is pending.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(HttpServer::State& state, Socket socket, Listener& listener,
          std::unique_ptr<HttpCipher> cipher)
      : state_(state), stream_(std::move(socket), std::move(cipher)), listener_(listener) {
    ++listener_.connections;
  }
  ~Session() {
    leave_idle();
    free_body();
    free_reply();
    --listener_.connections;
    if (is_stream_) --listener_.streams;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The handshake of TLS, if there is one, and the first request have kRequestTime together.
  void start() {
    enter_idle();
    stream_.expires_after(HttpServer::kRequestTime);
    stream_.async_handshake([self = shared_from_this()](error_code error, std::size_t) {
      if (error) return self->close();
      self->read();
    });
  }

  void read() {
    enter_idle();
    parser_.emplace();
    parser_->header_limit(HttpServer::kHeadMax);
    parser_->body_limit(HttpServer::kBodyMax);
    if (!is_first_) stream_.expires_after(HttpServer::kIdleTime);
    is_first_ = false;
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_head(error); });
  }

  // For all streams; the newest event replaces one that could not be sent yet.
  void send_event(const std::shared_ptr<const std::string>& event) {
    if (sending_ != nullptr) {
      waiting_ = event;
      return;
    }
    sending_ = event;
    stream_.expires_after(kWriteTime);
    asio::async_write(stream_, asio::buffer(*sending_),
                      [self = shared_from_this()](error_code error, std::size_t) {
                        self->sending_.reset();
                        if (error) return self->close();
                        self->stream_.expires_never();
                        if (auto next = std::exchange(self->waiting_, nullptr)) {
                          self->send_event(next);
                        }
                      });
  }

  void close() {
    leave_idle();
    error_code ignored;
    stream_.socket().close(ignored);
  }

 private:
  void enter_idle() {
    if (!idle_at_) idle_at_ = listener_.idle.insert(listener_.idle.end(), this);
  }
  void leave_idle() {
    if (idle_at_) listener_.idle.erase(*std::exchange(idle_at_, std::nullopt));
  }

  // The announced body is no longer held.
  void free_body() {
    listener_.bodies -= std::exchange(body_, 0);
    parser_.reset();
  }
  void free_reply() {
    listener_.replies -= std::exchange(sent_size_, 0);
    reply_.reset();
  }

  void on_head(error_code error) {
    if (error == http::error::header_limit) return refuse(431, "the request header is too large");
    if (error == http::error::end_of_stream || error == beast::error::timeout) return close();
    if (error) return refuse_or_close(error);
    if (!is_for_us(parser_->get())) {
      return refuse(421,
                    "the header Host names another machine; use an address, localhost or a name "
                    "in the certificate");
    }
    identify(parser_->get());
    // The length of a chunked body is not known before its end.
    const std::size_t body =
        parser_->chunked() ? HttpServer::kBodyMax : parser_->content_length().value_or(0);
    if (body > 0 && access_ == Access::kNone) return refuse(401, "a token is required");
    if (listener_.bodies + body > HttpServer::kBodiesMax) {
      return refuse(503, "too many requests are being received; try again later");
    }
    body_ = body;
    listener_.bodies += body;
    stream_.expires_after(HttpServer::kRequestTime);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code failed, std::size_t) { self->on_request(failed); });
  }

  static bool is_http(const error_code& error) {
    return error.category() == make_error_code(http::error::bad_method).category();
  }

  // A body that is too large is detected from its header, or while it is received.
  void refuse_or_close(const error_code& error) {
    if (error == http::error::body_limit) return refuse(413, "the request body is too large");
    if (!is_http(error)) return close();
    refuse(400, error.message());
  }

  void on_request(error_code error) {
    if (error) return refuse_or_close(error);
    leave_idle();
    stream_.expires_never();
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    HttpRequest request;
    request.method = std::string(message.method_string());
    if (!split_target({message.target().data(), message.target().size()}, request)) {
      return refuse(400, "no path");
    }
    request.body = std::move(parser_->get().body());
    request.access = access_;
    request.who = who_;
    const auto match = message[http::field::if_match];
    request.if_match.assign(match.data(), match.size());
    std::erase(request.if_match, '"');
    is_head_ = message.method() == http::verb::head;
    // Copies of the function may be destroyed last on the thread that answers: they must not own
    // the session then, so the call takes it.
    const auto waiting = std::make_shared<std::shared_ptr<Session>>(shared_from_this());
    state_.answer(request, [waiting](HttpResponse response) {
      const std::shared_ptr<Session> self = std::exchange(*waiting, nullptr);
      if (self) self->answer(std::move(response));
    });
  }

  template <class Message>
  bool is_for_us(const Message& message) const {
    if (!listener_.needs_token) return true;
    const auto host = message[http::field::host];
    const std::string_view text(host.data(), host.size());
    return is_local_host(text) ||
           (state_.keys != nullptr && state_.keys->is_for(std::string(name_in_host(text))));
  }

  // The identity of the client, and its access.
  template <class Message>
  void identify(const Message& message) {
    if (!listener_.needs_token) {
      access_ = Access::kWrite;
      if (who_.empty()) who_ = peer_of(stream_.socket().native_handle());
      return;
    }
    access_ = Access::kNone;
    const auto given = message[http::field::authorization];
    std::string_view text(given.data(), given.size());
    if (!beast::iequals({text.data(), std::min(text.size(), kBearer.size())},
                        {kBearer.data(), kBearer.size()})) {
      return;
    }
    text.remove_prefix(kBearer.size());
    if (const Token* const token = find_token(state_.tokens, text)) {
      access_ = token->role;
      who_ = "token " + token->name;
    }
  }

  void refuse(unsigned status, const std::string& what) {
    keep_alive_ = false;
    answer(error_response(status, what));
  }

  void answer(HttpResponse response) {
    free_body();
    if (response.is_stream) {
      if (listener_.streams >= HttpServer::kStreamsMax) {
        return refuse(503, "too many event streams");
      }
      return begin_stream(response.body);
    }
    if (response.body.size() > kSmallReply &&
        listener_.replies + response.body.size() > HttpServer::kRepliesMax) {
      return refuse(503, "too many answers wait for their readers; try again later");
    }
    sent_size_ = response.body.size();
    listener_.replies += sent_size_;
    reply_.emplace();
    reply_->version(11);
    reply_->result(response.status);
    reply_->set(http::field::server, "weir");
    reply_->set(http::field::content_type, response.type);
    reply_->set(http::field::cache_control, "no-store");
    reply_->set("X-Content-Type-Options", "nosniff");
    reply_->set("Content-Security-Policy",
                "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:");
    if (!response.allow.empty()) reply_->set(http::field::allow, response.allow);
    if (response.status == 401) reply_->set(http::field::www_authenticate, "Bearer");
    if (!response.etag.empty()) reply_->set(http::field::etag, "\"" + response.etag + "\"");
    if (response.time_ns != 0) reply_->set("Weir-Time-Ns", std::to_string(response.time_ns));
    if (response.count) reply_->set("Weir-Count", std::to_string(*response.count));
    reply_->keep_alive(keep_alive_);
    reply_->body() = std::move(response.body);
    reply_->prepare_payload();
    if (is_head_) reply_->body().clear();
    stream_.expires_after(kWriteTime);
    http::async_write(stream_, *reply_, [self = shared_from_this()](error_code error, std::size_t) {
      self->free_reply();
      if (error || !self->keep_alive_) return self->end();
      self->read();
    });
  }

  // A peer that is still sending would lose the answer if the connection were closed: received data
  // is discarded until the peer has read it, or for a while.
  void end() {
    enter_idle();
    stream_.expires_after(kLingerTime);
    buffer_.consume(buffer_.size());
    stream_.async_end([self = shared_from_this()](error_code error, std::size_t) {
      if (error) return self->close();
      self->discard();
    });
  }

  void discard() {
    stream_.async_read_some(buffer_.prepare(kDiscarded),
                            [self = shared_from_this()](error_code error, std::size_t) {
                              if (error) return self->close();
                              self->discard();
                            });
  }

  // With a first event, which may be empty.
  void begin_stream(const std::string& event) {
    is_stream_ = true;
    ++listener_.streams;
    state_.streams.push_back(weak_from_this());
    const auto head = std::make_shared<const std::string>(
        "HTTP/1.1 200 OK\r\nServer: weir\r\nContent-Type: text/event-stream\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\nretry: 2000\n\n" +
        event);
    send_event(head);
    watch();
  }

  // A stream sends nothing more; any input ends it.
  void watch() {
    stream_.async_read_some(asio::buffer(&byte_, 1),
                            [self = shared_from_this()](error_code error, std::size_t) {
                              if (error) return self->close();
                              self->watch();
                            });
  }

  HttpServer::State& state_;
  HttpStream stream_;
  Listener& listener_;
  std::optional<std::list<Session*>::iterator> idle_at_;
  bool is_stream_ = false;
  bool is_first_ = true;
  Access access_ = Access::kNone;
  bool is_head_ = false;
  bool keep_alive_ = false;
  char byte_ = 0;
  std::string who_;
  std::size_t body_ = 0;       // bytes, in Listener::bodies
  std::size_t sent_size_ = 0;  // bytes, in Listener::replies
  beast::flat_buffer buffer_{kReadAhead};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> reply_;
  std::shared_ptr<const std::string> sending_;
  std::shared_ptr<const std::string> waiting_;
};

bool Listener::drop_idle() {
  if (idle.empty()) return false;
  idle.front()->close();
  return true;
}

void HttpServer::State::admit(Socket socket, Listener& listener) {
  // All are busy: the new socket is closed.
  if (listener.connections >= kConnectionsMax && !listener.drop_idle()) return;
  auto cipher = listener.needs_token && keys != nullptr ? keys->open() : nullptr;
  std::make_shared<Session>(*this, std::move(socket), listener, std::move(cipher))->start();
}

// Out of descriptors: trying again at once would only use CPU time.
void HttpServer::State::after_a_breath(std::function<void()> function) {
  const auto timer = std::make_shared<asio::steady_timer>(io, kAcceptPause);
  timer->async_wait([timer, function = std::move(function)](error_code error) {
    if (!error) function();
  });
}

void HttpServer::State::await_letters() {
  wake.async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code error) {
    if (error) return;
    letters.clear();
    for (const std::function<void()>& letter : letters.take()) letter();
    await_letters();
  });
}

void HttpServer::State::accept_local() {
  local->async_accept([this](error_code error, asio::local::stream_protocol::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      tcp_listener.drop_idle();
      return after_a_breath([this] { accept_local(); });
    }
    admit(Socket(std::move(socket)), local_listener);
    accept_local();
  });
}

void HttpServer::State::accept_tcp() {
  tcp->async_accept([this](error_code error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) return after_a_breath([this] { accept_tcp(); });
    admit(Socket(std::move(socket)), tcp_listener);
    accept_tcp();
  });
}

void HttpServer::State::repeat(asio::steady_timer& timer, std::chrono::milliseconds interval,
                               const std::function<void()>& function) {
  timer.expires_after(interval);
  timer.async_wait([this, &timer, interval, function](error_code error) {
    if (error) return;
    function();
    repeat(timer, interval, function);
  });
}

namespace {

// Removes a stale socket; an active one is an error.
Result<void> open_local(HttpServer::State& state, const std::string& path) {
  const asio::local::stream_protocol::endpoint endpoint(path);
  error_code error;
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && S_ISSOCK(there.st_mode)) {
    asio::local::stream_protocol::socket probe(state.io);
    probe.connect(endpoint, error);
    if (error != asio::error::connection_refused) {
      return fail(std::errc::address_in_use, quote(path), "another process listens there",
                  "stop the other server, or name another path with --control");
    }
    unlink(path.c_str());
  }
  state.local.emplace(state.io);
  state.local->open(endpoint.protocol(), error);
  const mode_t before = umask(0117);  // for its owner and group
  if (!error) state.local->bind(endpoint, error);
  umask(before);
  if (!error) state.local->listen(asio::socket_base::max_listen_connections, error);
  if (error) return fail_errno(error.value(), quote(path), "name a path with --control");
  state.path = path;
  return {};
}

Result<asio::ip::tcp::endpoint> tcp_endpoint(const std::string& text) {
  const auto wanted = serve::parse_listen(text);
  error_code error;
  const auto address = asio::ip::make_address(wanted ? wanted->host : "", error);
  const bool is_name = text.starts_with("localhost:");
  if (!wanted || error || (!is_name && serve::print_listen(*wanted) != text)) {
    return fail(std::errc::invalid_argument, quote(text), "is not ADDRESS:PORT",
                "for example 127.0.0.1:9810");
  }
  return asio::ip::tcp::endpoint(address, wanted->port);
}

Result<void> open_tcp(HttpServer::State& state, const std::string& text) {
  const auto wanted = tcp_endpoint(text);
  if (!wanted) return tl::unexpected(wanted.error());
  const asio::ip::tcp::endpoint& endpoint = *wanted;
  error_code error;
  state.tcp.emplace(state.io);
  state.tcp->open(endpoint.protocol(), error);
  if (!error) state.tcp->set_option(asio::socket_base::reuse_address(true), error);
  if (!error) state.tcp->bind(endpoint, error);
  if (!error) state.tcp->listen(asio::socket_base::max_listen_connections, error);
  if (error) return fail_errno(error.value(), quote(text));
  return {};
}

}  // namespace

Result<void> check(const HttpOptions& options) {
  if (options.tcp.empty()) {
    if (options.keys == nullptr) return {};
    return fail(std::errc::invalid_argument, "--control-tls", "encrypts nothing",
                "name an address with --control-tcp");
  }
  if (options.tokens.empty()) {
    return fail(std::errc::invalid_argument, "control on " + quote(options.tcp), "has no token",
                "name a file that contains one with --control-token");
  }
  const auto endpoint = tcp_endpoint(options.tcp);
  if (!endpoint) return tl::unexpected(endpoint.error());
  if (endpoint->address().is_loopback() || options.keys != nullptr) return {};
  return fail(std::errc::invalid_argument, quote(options.tcp), "is not a loopback address",
              "name a directory with a certificate with --control-tls, or use 127.0.0.1 or [::1]");
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  if (!state_->path.empty()) unlink(state_->path.c_str());
}

Result<std::unique_ptr<HttpServer>> HttpServer::create(const HttpOptions& options, Answer answer) {
  if (auto checked = check(options); !checked) return tl::unexpected(checked.error());
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  auto state = std::make_unique<State>(*std::move(wake_fd));
  state->answer = std::move(answer);
  state->tokens = options.tokens;
  state->keys = options.keys;
  if (!options.socket_path.empty()) {
    if (auto opened = open_local(*state, options.socket_path); !opened) {
      return tl::unexpected(opened.error());
    }
  }
  if (!options.tcp.empty()) {
    if (auto opened = open_tcp(*state, options.tcp); !opened) {
      return tl::unexpected(opened.error());
    }
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

void HttpServer::run() {
  if (state_->local) state_->accept_local();
  if (state_->tcp) state_->accept_tcp();
  state_->await_letters();
  state_->io.run();
}

void HttpServer::stop() {
  post([this] { state_->io.stop(); });
}

void HttpServer::post(std::function<void()> function) {
  const bool is_put = state_->letters.put_always(std::move(function));
  WEIR_ASSERT(is_put);
}

void HttpServer::every(std::chrono::milliseconds interval, std::function<void()> function) {
  post([this, interval, function = std::move(function)] {
    state_->repeat(state_->timers.emplace_back(state_->io), interval, function);
  });
}

void HttpServer::set_tokens(std::vector<Token> tokens) {
  post([this, tokens = std::move(tokens)]() mutable { state_->tokens = std::move(tokens); });
}

void HttpServer::set_keys(HttpKeys::Ptr keys) {
  post([this, keys = std::move(keys)]() mutable { state_->keys = std::move(keys); });
}

void HttpServer::publish(const std::string& event) {
  const auto shared = std::make_shared<const std::string>(event);
  std::erase_if(state_->streams, [&](const std::weak_ptr<Session>& weak) {
    const auto session = weak.lock();
    if (session == nullptr) return true;
    session->send_event(shared);
    return false;
  });
}

std::size_t HttpServer::streams() const { return state_->streams.size(); }

std::uint16_t HttpServer::tcp_port() const {
  return state_->tcp ? state_->tcp->local_endpoint().port() : std::uint16_t{0};
}

}  // namespace weir::control
