// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_service.h"

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>

#include "weir/base/assert.h"
#include "weir/base/ring.h"
#include "weir/base/units.h"
#include "weir/cluster/credentials.h"
#include "weir/cluster/etcd_options.h"
#include "weir/cluster/lock.grpc.pb.h"
#include "weir/cluster/lock_election.h"
#include "weir/cluster/lock_gate.h"
#include "weir/cluster/lock_state.h"
#include "weir/cluster/lock_wire.h"
#include "weir/host/clock.h"
#include "weir/host/mailbox.h"
#include "weir/serve/client_identity.h"
#include "weir/serve/event_log.h"

namespace weir::cluster {
namespace {

namespace wire = lock::v1;
using grpc::CallbackServerContext;
using grpc::StatusCode;

// A peer that does not answer for this time is considered disconnected, whatever TCP reports.
constexpr int kPingEveryMs = 20'000;
constexpr std::chrono::seconds kStopPatience{2};

// Parses gRPC's text: "ipv4:10.1.2.3:4567", "ipv6:%5B::1%5D:4567", "unix:...".
serve::ClientIdentity identity_of(std::string_view text) {
  serve::ClientIdentity identity;
  sockaddr_storage address{};
  const auto last = text.rfind(':');
  if (text.starts_with("ipv4:")) {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    inet_pton(AF_INET, std::string(text.substr(5, last - 5)).c_str(), &four.sin_addr);
  } else if (text.starts_with("ipv6:")) {
    std::string host(text.substr(5, last - 5));
    for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
      if (const auto at = host.find(bracket); at != std::string::npos) {
        host.erase(at, bracket.size());
      }
    }
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    inet_pton(AF_INET6, host.c_str(), &six.sin6_addr);
  } else {
    address.ss_family = AF_UNIX;
  }
  identity.nid = serve::nid_of(address);
  identity.is_local = serve::is_loopback(address);
  return identity;
}

// In the usual notation: "10.1.2.3:4567", "[::1]:4567", "unix".
std::string peer_text(std::string text) {
  if (text.starts_with("unix")) return "unix";
  const auto colon = text.find(':');
  text.erase(0, colon == std::string::npos ? 0 : colon + 1);
  for (const auto& [code, plain] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    if (const auto at = text.find(code); at != std::string::npos) text.replace(at, 3, plain);
  }
  return text;
}

// The name in the certificate: its subject, or if that is empty its alternative names. Empty
// without TLS. A renewed certificate has the same name.
std::string principal_of(const grpc::ServerContextBase& context) {
  const auto who = context.auth_context();
  for (const char* const property :
       {GRPC_X509_SUBJECT_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME}) {
    std::string found;
    for (const grpc::string_ref& value : who->FindPropertyValues(property)) {
      if (!found.empty()) found += ' ';
      found.append(value.data(), value.size());
    }
    if (!found.empty()) return found;
  }
  return {};
}

// Lock names reveal what other clients do. The certificate was checked in the handshake.
bool may_list(const grpc::ServerContextBase& context) {
  return context.auth_context()->IsPeerAuthenticated() || context.peer().starts_with("unix:");
}

grpc::Status stopping() { return {StatusCode::UNAVAILABLE, "the server is shutting down"}; }

bool says_go_away(const lock::ServerMessage& message) {
  return std::any_of(message.ops.begin(), message.ops.end(), [](const lock::ServerOp& op) {
    return op.kind == lock::ServerOp::Kind::kGoAway;
  });
}

class Stream;

struct Letter {
  enum class Kind : std::uint8_t {
    kOpened,
    kRead,
    kReadFailed,
    kWritten,
    kDone,
    kCall,
    kStop,
    kExit
  };
  Kind kind = Kind::kCall;
  Stream* stream = nullptr;
  std::optional<lock::ClientMessage> message{};  // of kRead; none: garbage
  std::string job{};
  std::function<void()> call{};
};
// A stream has at most four letters in the mailbox, and a thread that waits for an answer has one.
using Letters = host::Mailbox<Letter>;

// The stream of one client. gRPC calls it in its own threads, where it only writes letters. The
// owner's thread, which it belongs to until its last letter, controls it.
class Stream : public grpc::ServerBidiReactor<wire::ClientBatch, wire::ServerBatch> {
 public:
  Stream(Letters& letters, std::string peer, std::string principal)
      : letters_(letters), peer_(std::move(peer)), principal_(std::move(principal)) {
    send({Letter::Kind::kOpened, this});
  }

  const std::string& peer() const { return peer_; }
  const std::string& principal() const { return principal_; }
  void read() { StartRead(&in_); }
  void write(const lock::ServerMessage& message) {
    to_wire(message, out_);
    StartWrite(&out_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return send({Letter::Kind::kReadFailed, this});
    Letter letter{Letter::Kind::kRead, this};
    if (in_.has_hello()) letter.job = job_in(in_);
    letter.message = from_wire(in_);
    send(std::move(letter));
  }
  void OnWriteDone(bool) override { send({Letter::Kind::kWritten, this}); }
  void OnDone() override { send({Letter::Kind::kDone, this}); }

  // ---- the owner's ----
  LockGate::Connection number = 0;  // 0: not with the LockGate
  Instant opened{};
  RingLink<Stream> newcomer;  // until its first message
  bool is_writing = false;
  bool has_news = false;
  bool is_ending = false;  // after the current write
  bool is_finished = false;

 private:
  void send(Letter letter) {
    const bool is_put = letters_.put_always(std::move(letter));
    WEIR_ASSERT(is_put);
  }

  Letters& letters_;
  std::string peer_;
  std::string principal_;
  wire::ClientBatch in_;
  wire::ServerBatch out_;
};

}  // namespace

// ---- the thread that owns the locks ----

namespace {

// 128 bits that only the holder of the key can compute.
lock::SecretOf secrets_of(const host::Key& key) {
  return [key](std::uint64_t client, std::string_view principal) {
    const host::Digest digest = host::keyed_digest(key, fmt::format("{} {}", client, principal));
    lock::SessionSecret secret;
    std::copy_n(digest.begin(), secret.size(), secret.begin());
    return secret;
  };
}

LockGateOptions gate_options(const LockServiceOptions& options, const host::Key& key,
                             serve::TraceFile* trace) {
  LockGateOptions gate;
  gate.trace = trace;
  gate.secret_of = secrets_of(key);
  gate.server = options.lock.server;
  gate.policy = options.lock.policy;
  gate.rules = options.lock.rules;
  gate.nodemaps.reserve(options.nodemaps.size());
  for (const serve::NodemapOptions& one : options.nodemaps) gate.nodemaps.push_back(one.name);
  return gate;
}

}  // namespace

class LockService::Owner {
 public:
  Owner(const LockServiceOptions& options, LockStateFile state, host::Fd wake_fd,
        std::unique_ptr<serve::TraceFile> trace, std::unique_ptr<LockGate> gate)
      : options_(options),
        state_(std::move(state)),
        letters_(std::move(wake_fd)),
        trace_(std::move(trace)),
        gate_(std::move(gate)),
        role_(gate_ != nullptr ? lock::Role::kAlone : lock::Role::kStandby),
        pressure_(options.pressure.value_or(host::MemoryPressure::of_this_process())) {}

  Letters& letters() { return letters_; }
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  // Ends all streams, including new ones.
  void end_streams() { (void)letters_.put_always({Letter::Kind::kStop}); }
  // REQUIRES: all streams have ended.
  void stop() {
    if (!thread_.joinable()) return;
    (void)letters_.put_always({Letter::Kind::kExit});
    thread_.join();
  }

  // Runs on the owner's thread. False: the thread has ended, and the function is not called.
  bool call(std::function<void()> function) {
    Letter letter;
    letter.call = std::move(function);
    return letters_.put_always(std::move(letter));
  }
  // Returns the result of the function, which takes the owner.
  template <class Function>
  std::optional<std::invoke_result_t<Function, Owner&>> ask(Function function) {
    using Answer = std::invoke_result_t<Function, Owner&>;
    const auto promise = std::make_shared<std::promise<std::optional<Answer>>>();
    auto answer = promise->get_future();
    if (!call([this, promise, function] { promise->set_value(function(*this)); })) {
      return std::nullopt;
    }
    return answer.get();
  }

  // ---- in its thread ----
  // nullptr: this server is not active.
  LockGate* gate() { return gate_.get(); }
  Instant now() const { return now_; }
  bool is_standby() const { return gate_ == nullptr; }
  // Why it has no locks to show.
  Error away() const;

  // ---- in a cluster ----
  void lead(const LockElection::Lead& lead);
  void prove(Instant until) { proven_until_ = until; }
  void step_down();
  void see(const LockElection::Seen& seen);
  // Acts no more. None: it was not active.
  std::optional<lock::Handover> resign();
  lock::NamespaceView look() const;
  lock::LockList list(const lock::ListOptions& options) const;
  lock::LockStats stats() const;

 private:
  void run();
  void wait();
  void handle(Letter& letter);
  void receive(Stream& stream, Letter& letter);
  bool admit(Stream& stream, const std::string& job);
  void flush(Stream& stream);
  void finish(Stream& stream, const grpc::Status& status);
  void flush_dirty();
  void open(Stream& stream);
  void end_silent();
  Nanoseconds hello_time() const { return options_.hello_time; }
  void relieve();
  void leave_in_order();
  void end_streams_with(const grpc::Status& status);
  grpc::Status elsewhere() const;
  // Whether no other server can be active.
  bool is_proven() const { return now_ < proven_until_; }
  absl::flat_hash_map<std::uint64_t, const Stream*> streams_by_client() const;

  LockServiceOptions options_;
  LockStateFile state_;
  Letters letters_;
  std::unique_ptr<serve::TraceFile> trace_;  // nullptr: nothing is recorded
  std::unique_ptr<LockGate> gate_;           // nullptr: another server is active, or none
  lock::Role role_;
  Instant proven_until_ = kNever;
  std::vector<Letter> held_back_;  // messages that wait until the term is proven
  LockElection::Seen seen_;
  bool has_resigned_ = false;
  host::MemoryPressure pressure_;
  absl::flat_hash_map<Stream*, std::unique_ptr<Stream>> streams_;
  Ring<Stream, &Stream::newcomer> newcomers_;  // the oldest first
  absl::flat_hash_map<LockGate::Connection, Stream*> by_number_;
  LockGate::Connection numbers_ = 0;
  Instant now_{};
  bool is_stopping_ = false;
  bool is_over_ = false;
  std::thread thread_;
};

void LockService::Owner::wait() {
  const auto pressure = pressure_.waits();
  std::array<pollfd, 3> waits{pollfd{letters_.fd(), POLLIN, 0}, pressure[0], pressure[1]};
  Instant until = trace_ == nullptr ? kNever : trace_->wakes_at();
  if (gate_ != nullptr && is_proven()) until = std::min(until, gate_->next_turn());
  if (!newcomers_.empty()) until = std::min(until, newcomers_.front().opened + hello_time());
  const Nanoseconds left =
      std::clamp(until - host::boot_now(), Nanoseconds{0}, Nanoseconds{std::chrono::seconds{3600}});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec span{seconds.count(), (left - seconds).count()};
  if (ppoll(waits.data(), waits.size(), &span, nullptr) <= 0) return;
  if (waits[0].revents != 0) letters_.clear();
  // The kernel reports a trigger once, to the poll: use its result.
  if (pressure_.take(waits[1].revents, waits[2].revents)) relieve();
}

void LockService::Owner::relieve() {
  if (gate_ == nullptr) return;
  lock::LockServer& server = gate_->server();
  server.pool().relieve(host::boot_now(), static_cast<std::int64_t>(server.sessions()));
}

void LockService::Owner::run() {
  while (!is_over_) {
    wait();
    std::vector<Letter> letters = letters_.take();
    // After they were taken: were this process stopped between the two, messages that arrived later
    // would count as received while the term was proven.
    now_ = host::boot_now();
    for (Letter& letter : letters) handle(letter);
    end_silent();
    if (gate_ != nullptr && is_proven()) {
      for (Letter& letter : std::exchange(held_back_, {})) receive(*letter.stream, letter);
      gate_->turn(now_);
      flush_dirty();
    }
    if (trace_ != nullptr) trace_->turn(now_);
  }
  leave_in_order();
  for (Letter& letter : letters_.close()) handle(letter);
  if (trace_ != nullptr) trace_->finish();
}

void LockService::Owner::handle(Letter& letter) {
  Stream* const stream = letter.stream;
  switch (letter.kind) {
    case Letter::Kind::kOpened:
      open(*stream);
      return;
    case Letter::Kind::kRead:
      receive(*stream, letter);
      return;
    case Letter::Kind::kReadFailed:
      finish(*stream, grpc::Status::OK);
      return;
    case Letter::Kind::kWritten:
      stream->is_writing = false;
      if (stream->is_finished) return;
      if (stream->is_ending) {
        finish(*stream, grpc::Status::OK);
      } else if (stream->has_news) {
        flush(*stream);
      }
      return;
    case Letter::Kind::kDone:
      streams_.erase(stream);
      return;
    case Letter::Kind::kCall:
      letter.call();
      return;
    case Letter::Kind::kStop:
      is_stopping_ = true;
      end_streams_with(stopping());
      return;
    case Letter::Kind::kExit:
      is_over_ = true;
      return;
  }
}

void LockService::Owner::open(Stream& stream) {
  streams_.emplace(&stream, &stream);
  if (is_stopping_) return finish(stream, stopping());
  if (gate_ == nullptr) return finish(stream, elsewhere());
  if (streams_.size() > options_.lock.server.sessions_max + kStreamsSpare) {
    return finish(stream, {StatusCode::RESOURCE_EXHAUSTED, "too many streams are open"});
  }
  stream.opened = now_;
  newcomers_.push_back(stream);
}

void LockService::Owner::end_silent() {
  while (!newcomers_.empty() && newcomers_.front().opened + hello_time() <= now_) {
    finish(newcomers_.front(), {StatusCode::DEADLINE_EXCEEDED, "expected a hello"});
  }
}

// Checks whether a client is accepted, and determines its identity.
bool LockService::Owner::admit(Stream& stream, const std::string& job) {
  serve::Claims claims;
  if (job.size() > JobId::kSizeMax) {
    finish(stream, grpc::Status(StatusCode::INVALID_ARGUMENT, "a job has at most 31 bytes"));
    return false;
  }
  if (!job.empty()) claims.job = JobId(job);
  const auto who =
      serve::attributes_of(identity_of(stream.peer()), claims, options_.claims, options_.nodemaps);
  if (!who) {
    finish(stream, grpc::Status(StatusCode::PERMISSION_DENIED, who.error().what));
    return false;
  }
  stream.number = ++numbers_;
  by_number_.emplace(stream.number, &stream);
  gate_->connect(stream.number, *who, stream.principal(), now_);
  return true;
}

void LockService::Owner::receive(Stream& stream, Letter& letter) {
  if (stream.is_finished) return;
  if (stream.newcomer.is_linked()) newcomers_.erase(stream);
  if (!is_proven()) {
    held_back_.push_back(std::move(letter));  // one of each stream
    return;
  }
  if (!letter.message) {
    return finish(stream,
                  grpc::Status(StatusCode::INVALID_ARGUMENT, "not a valid batch of weir.lock.v1"));
  }
  if (stream.number == 0 && !admit(stream, letter.job)) return;
  const bool is_fine = gate_->receive(stream.number, *std::move(letter.message), now_);
  if (is_fine) stream.read();
}

void LockService::Owner::flush_dirty() {
  for (const LockGate::Connection number : std::exchange(gate_->dirty(), {})) {
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) continue;
    found->second->has_news = true;
    if (!found->second->is_writing) flush(*found->second);
  }
}

void LockService::Owner::flush(Stream& stream) {
  stream.has_news = false;
  const lock::ServerMessage message = gate_->take(stream.number);
  stream.is_ending = says_go_away(message);
  stream.is_writing = true;
  stream.write(message);
}

void LockService::Owner::finish(Stream& stream, const grpc::Status& status) {
  if (std::exchange(stream.is_finished, true)) return;
  if (stream.newcomer.is_linked()) newcomers_.erase(stream);
  std::erase_if(held_back_, [&](const Letter& one) { return one.stream == &stream; });
  if (stream.number != 0) {
    gate_->disconnect(stream.number, now_);
    by_number_.erase(stream.number);
    stream.number = 0;
  }
  stream.Finish(status);
}

// If no lock is granted and every possible holder has reported, the next server needs no
// grace period.
void LockService::Owner::leave_in_order() {
  if (gate_ == nullptr) return;
  const lock::LockServer& server = gate_->server();
  if (server.is_recovering() || server.table().granted() > 0) return;
  state_.leave();
}

// ---- in a cluster ----

void LockService::Owner::end_streams_with(const grpc::Status& status) {
  for (auto& [each, owned] : streams_) finish(*each, status);
}

grpc::Status LockService::Owner::elsewhere() const {
  return {StatusCode::UNAVAILABLE, away().what};
}

Error LockService::Owner::away() const {
  if (seen_.active.empty()) {
    return {std::errc::resource_unavailable_try_again, std::string(kLockNamespace),
            "no lock server is active at the moment",
            "check that etcd answers: see the log of the lock servers"};
  }
  return {std::errc::resource_unavailable_try_again, std::string(kLockNamespace),
          fmt::format("this server is a standby; the active lock server is {} ({})", seen_.active,
                      seen_.address),
          "ask that one"};
}

void LockService::Owner::lead(const LockElection::Lead& lead) {
  if (has_resigned_) return;
  if (auto noted = state_.follow(lead.next.term, lead.key); !noted) {
    serve::EventLog::say("locks: " + noted.error().message());
  }
  LockServiceOptions options = options_;
  options.lock.server.grace = lead.next.grace;
  auto gate = LockGate::create(gate_options(options, lead.key, nullptr), lead.next.term,
                               lead.next.start, now_);
  WEIR_ASSERT(gate.has_value());  // the options were checked by create()
  gate_ = *std::move(gate);
  if (!lead.next.clients.empty()) gate_->server().await(lead.next.clients);
  role_ = lock::Role::kActive;
  proven_until_ = lead.proven_until;
  serve::EventLog::say(fmt::format("locks: this server is active in term {}{}", lead.next.term,
                                   lead.next.start == lock::LockServer::Start::kFresh
                                       ? ""
                                       : fmt::format("; new locks wait for replays, for at most {}",
                                                     print_duration(lead.next.grace))));
}

void LockService::Owner::step_down() {
  if (gate_ == nullptr) return;
  serve::EventLog::say(fmt::format("locks: this server is no longer active (term {})",
                                   gate_->server().incarnation()));
  role_ = lock::Role::kStandby;
  end_streams_with({StatusCode::UNAVAILABLE, "this server is no longer active"});
  held_back_.clear();
  gate_.reset();
}

void LockService::Owner::see(const LockElection::Seen& seen) {
  seen_ = seen;
  if (seen.term == 0) return;
  if (auto noted = state_.follow(seen.term, seen.key); !noted) {
    serve::EventLog::say("locks: " + noted.error().message());
  }
}

std::optional<lock::Handover> LockService::Owner::resign() {
  has_resigned_ = true;
  if (gate_ == nullptr) return std::nullopt;
  lock::Handover left = lock::handover_of(gate_->server());
  leave_in_order();
  step_down();
  return left;
}

// ---- looking ----

absl::flat_hash_map<std::uint64_t, const Stream*> LockService::Owner::streams_by_client() const {
  absl::flat_hash_map<std::uint64_t, const Stream*> found;
  gate_->server().visit_sessions([&](const lock::LockServer::Seen& seen) {
    const auto stream = by_number_.find(seen.connection);
    if (stream != by_number_.end()) found.emplace(seen.client, stream->second);
  });
  return found;
}

lock::NamespaceView LockService::Owner::look() const {
  lock::NamespaceView view;
  if (gate_ != nullptr) {
    view = lock::look(gate_->server(), kLockNamespace, now_);
  } else {
    view.name = kLockNamespace;
  }
  view.role = role_;
  view.active = role_ == lock::Role::kAlone ? std::string() : seen_.active;
  if (gate_ == nullptr) return view;
  const auto streams = streams_by_client();
  for (lock::ClientView& client : view.top) {
    if (const auto found = streams.find(client.client); found != streams.end()) {
      client.peer = peer_text(found->second->peer());
    }
  }
  return view;
}

lock::LockList LockService::Owner::list(const lock::ListOptions& options) const {
  lock::LockList list = lock::list_locks(gate_->server(), options);
  const auto streams = streams_by_client();
  for (lock::LockView& lock : list.locks) {
    if (const auto found = streams.find(lock.client); found != streams.end()) {
      lock.peer = peer_text(found->second->peer());
    }
  }
  return list;
}

lock::LockStats LockService::Owner::stats() const {
  return {.view = look(),
          .incarnation = gate_ == nullptr ? seen_.term : gate_->server().incarnation(),
          .lease = options_.lock.server.lease,
          .gated = gate_ == nullptr ? 0 : gate_->gated()};
}

// ---- gRPC ----

class LockService::Transport : public wire::Locks::CallbackService {
 public:
  explicit Transport(Owner& owner) : owner_(owner) {}

  Result<void> open(const LockServiceOptions& options);
  const serve::ListenAddress& listening() const { return listening_; }
  Credentials& credentials() { return *credentials_; }
  void shut_down() { server_->Shutdown(std::chrono::system_clock::now() + kStopPatience); }

  grpc::ServerBidiReactor<wire::ClientBatch, wire::ServerBatch>* Attach(
      CallbackServerContext* context) override {
    auto* const stream = new Stream(owner_.letters(), context->peer(), principal_of(*context));
    stream->read();
    return stream;
  }

  grpc::ServerUnaryReactor* List(CallbackServerContext* context, const wire::ListRequest* request,
                                 wire::ListReply* reply) override {
    if (!may_list(*context)) {
      grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
      reactor->Finish({StatusCode::PERMISSION_DENIED,
                       "lists locks for clients with a certificate or on a Unix socket only"});
      return reactor;
    }
    lock::ListOptions options{.filter = request->filter(), .from = request->from()};
    if (request->most() > 0) options.max = std::min<std::size_t>(request->most(), options.max);
    return answer(context, [reply, options](Owner& owner) {
      if (owner.is_standby()) return grpc::Status(StatusCode::UNAVAILABLE, owner.away().what);
      cluster::to_wire(owner.list(options), *reply);
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* Stats(CallbackServerContext* context, const wire::StatsRequest*,
                                  wire::StatsReply* reply) override {
    return answer(context, [reply](Owner& owner) {
      cluster::to_wire(owner.stats(), *reply);
      return grpc::Status::OK;
    });
  }

 private:
  template <class Function>
  grpc::ServerUnaryReactor* answer(CallbackServerContext* context, Function function) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const bool is_asked =
        owner_.call([this, reactor, function] { reactor->Finish(function(owner_)); });
    if (!is_asked) reactor->Finish(stopping());
    return reactor;
  }

  Owner& owner_;
  serve::ListenAddress listening_;
  std::unique_ptr<Credentials> credentials_;  // declared before the server, which uses it
  std::unique_ptr<grpc::Server> server_;
};

Result<void> LockService::Transport::open(const LockServiceOptions& options) {
  listening_ = *options.lock.listen;
  serve::ListenAddress address = listening_;
  const bool is_tcp = address.kind == serve::ListenAddress::Kind::kTcp;
  if (is_tcp && address.host.empty()) address.host = "::";
  quiet_grpc();
  const bool is_plain = options.tls.mode == serve::TlsOptions::Mode::kOff;
  auto credentials =
      Credentials::load(is_plain ? "" : options.tls.directory, Credentials::Use::kListen);
  if (!credentials) return tl::unexpected(credentials.error());
  credentials_ = *std::move(credentials);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(serve::print_listen(address), credentials_->server(), &port);
  // Two servers on one port would divide the clients between them.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingEveryMs);
  bound_connections(builder);
  builder.SetMaxReceiveMessageSize(kBatchBytesMax);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return fail(std::errc::address_in_use, "lock service " + serve::print_listen(listening_),
                "cannot listen on this address", "check that it is free and that you may use it");
  }
  if (is_tcp) listening_.port = static_cast<std::uint16_t>(port);
  return {};
}

// ---- the service ----

LockService::LockService(std::unique_ptr<Owner> owner, std::unique_ptr<Transport> transport)
    : owner_(std::move(owner)), transport_(std::move(transport)) {}

Result<std::unique_ptr<LockService>> LockService::create(const LockServiceOptions& given) {
  const bool is_alone = !given.cluster.is_on();
  LockServiceOptions options = given;
  if (!is_alone) {
    options.lock.server.lease = lock::client_lease(given.lock.server.lease);
    options.trace_file.clear();  // a trace has one Target, and each term its own
  }
  auto state = LockStateFile::begin(options.lock.state_file);
  if (!state) return tl::unexpected(state.error());
  const auto start =
      state->was_clean() ? lock::LockServer::Start::kFresh : lock::LockServer::Start::kRecovering;
  std::unique_ptr<serve::TraceFile> trace;
  if (!options.trace_file.empty()) {
    auto opened = serve::TraceFile::create(options.trace_file);
    if (!opened) return tl::unexpected(opened.error());
    trace = *std::move(opened);
  }
  // In a cluster, this only checks the options: the gate is made when the server becomes active.
  auto gate = LockGate::create(gate_options(options, state->key(), trace.get()),
                               state->incarnation(), start, host::boot_now());
  if (!gate) return tl::unexpected(gate.error());
  if (!is_alone) gate->reset();
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  const std::uint64_t incarnation = state->incarnation();
  const host::Key key = state->key();
  const auto own = state->was_clean() ? lock::OwnState::kClean : lock::OwnState::kUnknown;
  auto owner = std::make_unique<Owner>(options, *std::move(state), *std::move(wake_fd),
                                       std::move(trace), *std::move(gate));
  auto transport = std::make_unique<Transport>(*owner);
  if (auto opened = transport->open(options); !opened) return tl::unexpected(opened.error());
  owner->start();
  std::unique_ptr<LockService> made(new LockService(std::move(owner), std::move(transport)));
  if (is_alone) return made;
  if (auto joined = made->join(given, incarnation, key, own); !joined) {
    return tl::unexpected(joined.error());
  }
  return made;
}

Result<void> LockService::join(const LockServiceOptions& options, std::uint64_t incarnation,
                               const host::Key& key, lock::OwnState own) {
  // A quarter of the lease in etcd: an active server asks that often for its renewal.
  const auto etcd = etcd_options(options.cluster, lock::Candidate::kLength / 4);
  if (!etcd) return tl::unexpected(etcd.error());
  const auto pass_on = [owner = owner_.get()](auto act) {
    (void)owner->call([owner, act] { act(*owner); });
  };
  auto election = LockElection::create(
      {.name = options.cluster.name,
       .address = serve::print_listen(listening()),
       .prefix = options.cluster.prefix,
       .etcd = *etcd,
       .incarnation = incarnation,
       .key = key,
       .own = own,
       .lease = options.lock.server.lease},
      {.lead =
           [pass_on](const LockElection::Lead& lead) {
             pass_on([lead](Owner& owner) { owner.lead(lead); });
           },
       .proven =
           [pass_on](Instant until) { pass_on([until](Owner& owner) { owner.prove(until); }); },
       .deposed = [pass_on] { pass_on([](Owner& owner) { owner.step_down(); }); },
       .seen =
           [pass_on](const LockElection::Seen& seen) {
             pass_on([seen](Owner& owner) { owner.see(seen); });
           },
       .say = [](std::string_view line) { serve::EventLog::say(line); }});
  if (!election) return tl::unexpected(election.error());
  election_ = *std::move(election);
  election_->start();
  return {};
}

LockService::~LockService() { stop(); }

const serve::ListenAddress& LockService::listening() const { return transport_->listening(); }

void LockService::stop() {
  if (election_ != nullptr) {
    const auto left = owner_->ask([](Owner& owner) { return owner.resign(); });
    election_->stop(left && *left ? &**left : nullptr);
  }
  owner_->end_streams();
  transport_->shut_down();
  owner_->stop();
}

Result<std::function<void()>> LockService::read_certificates() {
  auto renewed = transport_->credentials().read_again();
  if (!renewed) return tl::unexpected(renewed.error());
  std::function<void()> of_etcd = [] {};
  if (election_ != nullptr) {
    auto read = election_->read_certificates();
    if (!read) return read;
    of_etcd = *std::move(read);
  }
  return std::function<void()>([this, renewed = *std::move(renewed), of_etcd] {
    (void)transport_->credentials().use(renewed);
    of_etcd();
  });
}

bool LockService::look(const Look& visit) {
  const auto done = owner_->ask([&visit](Owner& owner) {
    if (owner.is_standby()) return false;
    visit(owner.gate()->target(), owner.now());
    return true;
  });
  return done.value_or(false);
}

std::vector<lock::NamespaceView> LockService::view() {
  auto seen = owner_->ask([](Owner& owner) { return owner.look(); });
  if (!seen) return {};
  std::vector<lock::NamespaceView> views;
  views.push_back(*std::move(seen));
  return views;
}

Result<lock::LockList> LockService::list(std::string_view name, const lock::ListOptions& options) {
  if (name != kLockNamespace) return fail_errno(ENOENT, name);
  auto found = owner_->ask([options](Owner& owner) -> Result<lock::LockList> {
    if (owner.is_standby()) return tl::unexpected(owner.away());
    return owner.list(options);
  });
  if (!found) return fail_errno(EAGAIN, name, "the server is shutting down");
  return *std::move(found);
}

Result<void> LockService::set(std::string_view name, lock::Tunable tunable, std::int64_t value) {
  if (name != kLockNamespace) return fail_errno(ENOENT, name);
  const auto done = owner_->ask([=](Owner& owner) -> Result<void> {
    if (owner.is_standby()) return tl::unexpected(owner.away());
    return lock::turn(owner.gate()->server(), tunable, value);
  });
  if (!done) return fail_errno(EAGAIN, name, "the server is shutting down");
  return *done;
}

Result<std::size_t> LockService::revoke(std::string_view name, std::string_view resource,
                                        std::uint64_t client) {
  if (name != kLockNamespace) return fail_errno(ENOENT, name);
  const auto done = owner_->ask([=](Owner& owner) -> Result<std::size_t> {
    if (owner.is_standby()) return tl::unexpected(owner.away());
    return lock::revoke(owner.gate()->server(), resource, client);
  });
  if (!done) return fail_errno(EAGAIN, name, "the server is shutting down");
  return *done;
}

}  // namespace weir::cluster
