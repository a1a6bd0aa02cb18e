// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/clock.h"
#include "weir/host/heap.h"
#include "weir/serve/listen.h"

namespace weir::serve {
namespace {

using std::chrono::milliseconds;

// Descriptors other than connections: standard streams, the IoLoop, signals, and the control
// socket, from which clients must never keep administrators out.
constexpr std::uint32_t kOwnFiles = 64;
constexpr std::uint32_t kFilesOfGrpc = 64;               // of the lock service, and of a cluster
constexpr Nanoseconds kAcceptPause = milliseconds{100};  // when there are no descriptors left
constexpr Nanoseconds kPaceDepth = milliseconds{10};     // of a pace of the whole server
// Maximum requests of a service dispatched per turn: more than a turn reads, so that none pile up.
constexpr std::uint32_t kRunOfTurn = 1024;
constexpr int kSendBuffer = 1 << 20;  // a batch of replies in one go

void set_option(int socket, int level, int name, int value) {
  setsockopt(socket, level, name, &value, sizeof value);
}

// A client whose machine has failed is detected within two minutes.
void tune(int socket, bool is_tcp) {
  set_option(socket, SOL_SOCKET, SO_SNDBUF, kSendBuffer);
  if (!is_tcp) return;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
}

// One line says why it is not io_uring, unless that was asked for.
Result<std::unique_ptr<host::IoLoop>> start_io(host::IoChoice choice) {
  auto opened = host::open_io(choice);
  if (!opened) {
    Error error = opened.error();
    if (choice == host::IoChoice::kUring) error.hint += ", or use --io auto or --io epoll";
    return tl::unexpected(std::move(error));
  }
  if (!opened->why_not_uring.empty()) {
    EventLog::say("using epoll, because io_uring is not available: " + opened->why_not_uring);
  }
  return std::move(opened->loop);
}

tl::unexpected<Error> stopping() {
  return fail(std::errc::operation_canceled, "server", "is shutting down",
              "try again after the restart");
}

}  // namespace

Server::Server(ServeOptions options, std::unique_ptr<host::IoLoop> io, host::SignalFd signals,
               host::Fd watch_wake_fd, host::Fd wake_fd)
    : options_(std::move(options)),
      context_(options_, std::move(io)),
      commands_(std::move(wake_fd), kCommandsMax) {
  context_.now = host::now();
  watch_.emplace(
      std::move(signals), host::Wake(std::move(watch_wake_fd)), kEndPatience,
      [this](int signal) { signalled(signal); }, [this] { end_hung(); });
}

Server::~Server() {
  watch_.reset();
  close_commands();
  leave();
  WEIR_ASSERT(connections_.empty());
}

void Server::leave() {
  for (const auto& listener : listeners_) {
    if (!listener->path.empty()) unlink(listener->path.c_str());
    listener->path.clear();
  }
}

Result<std::unique_ptr<Server>> Server::create(ServeOptions options) {
  const auto named = [](const ServiceOptions& one) { return one.name == kDefaultService; };
  if (std::none_of(options.services.begin(), options.services.end(), named)) {
    options.services.emplace_back();
  }
  if (auto checked = check(options); !checked) return tl::unexpected(checked.error());
  if (auto checked = check_memory(options.limits.memory); !checked) {
    return tl::unexpected(checked.error());
  }
  auto signals = host::SignalFd::create({SIGTERM, SIGINT, SIGHUP});
  if (!signals) return tl::unexpected(signals.error());
  // sendfile(2) to a client that disconnected would raise SIGPIPE; it has no flag to prevent that.
  std::signal(SIGPIPE, SIG_IGN);
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  auto watch_wake_fd = host::make_wake_fd();
  if (!watch_wake_fd) return tl::unexpected(watch_wake_fd.error());
  auto io = start_io(options.io);
  if (!io) return tl::unexpected(io.error());
  std::unique_ptr<Server> server(new Server(std::move(options), std::move(*io), std::move(*signals),
                                            std::move(*watch_wake_fd), std::move(*wake_fd)));
  if (auto opened = server->open(); !opened) return tl::unexpected(opened.error());
  return server;
}

Result<void> Server::open() {
  // A timer for a token should fire on time, not up to 50 us later.
  prctl(PR_SET_TIMERSLACK, 1);
  const auto room = room_for_connections(options_.limits.connections, other_files());
  if (!room) return tl::unexpected(room.error());
  connections_max_ = *room;
  if (*room < options_.limits.connections) {
    EventLog::say(
        fmt::format("the limit of open files allows {} connections; raise it "
                    "(ulimit -n) for {}",
                    *room, options_.limits.connections));
  }
  if (options_.tls.mode != TlsOptions::Mode::kOff) {
    using Clients = host::TlsKeys::Clients;
    auto keys = host::TlsKeys::load(
        options_.tls.directory, options_.tls.verify_clients ? Clients::kCertified : Clients::kAny);
    if (!keys) return tl::unexpected(keys.error());
    context_.tls_keys = std::move(*keys);
  }
  if (auto opened = open_services(); !opened) return opened;
  if (auto listening = listen(); !listening) return listening;
  if (!options_.user.empty()) return become_user(options_.user);
  return {};
}

Result<void> Server::open_services() {
  if (!options_.trace_file.empty()) {
    auto trace = TraceFile::create(options_.trace_file);
    if (!trace) return tl::unexpected(trace.error());
    trace_ = std::move(*trace);
  }
  for (const ServiceOptions& one : options_.services) {
    auto service = open_service(one, options_.nodemaps, options_.unknown_jobs, options_.groups,
                                context_.now, trace_.get(),
                                options_.cluster.is_on() ? Standing::kInCluster : Standing::kAlone);
    if (!service) return tl::unexpected(service.error());
    context_.services.push_back(std::move(*service));
  }
  for (const ExportOptions& one : options_.exports) {
    Service* const service = find_service(one.service);
    WEIR_ASSERT(service != nullptr);
    auto served = open_export(one, *service, *context_.io);
    if (!served) return tl::unexpected(served.error());
    context_.exports.push_back(std::move(*served));
  }
  auto jobs = load_jobs(options_.jobs_file, options_.jobs);
  if (!jobs) return tl::unexpected(jobs.error());
  set_jobs(std::move(*jobs));
  return {};
}

std::uint32_t Server::other_files() const {
  const std::size_t grpc =
      (options_.lock.listen ? kFilesOfGrpc : 0) + (options_.cluster.is_on() ? kFilesOfGrpc : 0);
  return static_cast<std::uint32_t>(kOwnFiles + grpc + options_.exports.size() +
                                    options_.listen.size());
}

Result<void> Server::listen() {
  for (ListenAddress address : options_.listen) {
    const auto protocol = find_protocol(address.protocol);
    if (!protocol) return tl::unexpected(protocol.error());
    auto socket = listen_on(address);
    if (!socket) return tl::unexpected(socket.error());
    auto listener = std::make_unique<Listener>();
    listener->server = this;
    listener->done = accepted;
    listener->socket = std::move(*socket);
    listener->path = address.path;
    listener->protocol = *protocol;
    listener->is_tcp = address.kind == ListenAddress::Kind::kTcp;
    listeners_.push_back(std::move(listener));
    listening_.push_back(address);
  }
  return {};
}

Service* Server::find_service(std::string_view name) const {
  for (const auto& service : context_.services) {
    if (service->name == name) return service.get();
  }
  return nullptr;
}

Result<void> Server::reshape(std::string_view export_name, const Shape& shape) {
  ServedExport* const served = context_.find_export(export_name);
  if (served == nullptr || served->options.name != export_name) {
    return fail(std::errc::no_such_file_or_directory, "export " + quote(export_name),
                "does not exist");
  }
  return served->store->reshape(shape, context_.now);
}

Result<void> Server::check_limits(const ServeLimits& limits) const {
  ServeOptions wanted = options_;
  wanted.limits = limits;
  if (auto checked = check(wanted); !checked) return checked;
  if (auto checked = check_memory(limits.memory); !checked) return checked;
  const auto room = room_for_connections(limits.connections, other_files());
  if (!room) return tl::unexpected(room.error());
  if (*room >= limits.connections) return {};
  return fail(std::errc::too_many_files_open, "limit of open files",
              fmt::format("allows {} connections, not {}", *room, limits.connections),
              "raise it (ulimit -n)");
}

Result<void> Server::set_limits(const ServeLimits& limits) {
  if (auto checked = check_limits(limits); !checked) return checked;
  options_.limits = limits;
  connections_max_ = limits.connections;
  context_.pool.set_limits(limits.memory, limits.connection_memory);
  context_.freed = true;  // connections that wait for memory or room may continue
  watch_->set_patience(limits.drain_timeout + kEndPatience);
  return {};
}

Result<JobTable> Server::load_jobs(const std::string& file, const std::vector<JobNodes>& named) {
  JobTable jobs;
  for (const JobNodes& job : named) jobs[job.job] = job.nodes;
  if (file.empty()) return jobs;
  auto listed = read_jobs(file);
  if (!listed) return tl::unexpected(listed.error());
  for (const auto& [job, nodes] : *listed) jobs[job] = nodes;
  return jobs;
}

void Server::set_jobs(JobTable jobs) {
  named_jobs_ = std::move(jobs);
  apply_jobs();
}

void Server::set_told_jobs(JobTable jobs) {
  if (told_jobs_ == jobs) return;
  told_jobs_ = std::move(jobs);
  apply_jobs();
}

void Server::apply_jobs() {
  JobTable jobs = named_jobs_;
  jobs.insert(told_jobs_.begin(), told_jobs_.end());
  for (const auto& service : context_.services) {
    if (auto set = set_nodes(service->target, jobs_, jobs, context_.now); !set) {
      EventLog::say(set.error().message());
    }
  }
  jobs_ = std::move(jobs);
}

void Server::set_pace(std::optional<std::uint32_t> per_second) {
  pace_shape_.reset();
  if (!per_second) return;
  const Rate rate = Rate::per_second(*per_second);
  pace_shape_.emplace(rate, std::max(Tokens{1}, tokens_in(rate, kPaceDepth)));
  pace_ = TokenBucket::empty(context_.now);
}

// ---- coming and going ----

void Server::open_entrance() {
  const auto ready = std::exchange(ready_, nullptr);
  if (ready == nullptr || is_stopping_) return;
  accept_all();
  ready();
  host::notify_manager("READY=1");
}

void Server::accept_all() {
  accepts_again_ = kNever;
  for (const auto& listener : listeners_) {
    if (listener->is_pending) continue;
    listener->is_pending = true;
    context_.io->accept(listener->socket.get(), *listener);
  }
}

void Server::accepted(host::Operation& io, const host::Completion& completion) {
  auto& listener = static_cast<Listener&>(io);
  Server& self = *listener.server;
  if (!completion.goes_on()) listener.is_pending = false;
  if (completion.result >= 0) {
    self.add_connection(host::Fd(completion.result), listener);
  } else if (completion.result == -EMFILE || completion.result == -ENFILE ||
             completion.result == -ENOMEM || completion.result == -ENOBUFS) {
    self.context_.log.note(EventLog::Kind::kAccept,
                           "cannot accept a connection: out of descriptors or memory",
                           self.context_.now);
    self.accepts_again_ = self.context_.now + kAcceptPause;
    return;
  }
  if (listener.is_pending) return;
  if (self.is_stopping_) {
    self.context_.io->forget(listener.socket.get());
    listener.socket = host::Fd();  // the kernel refuses new connections now
  } else {
    self.accept_all();
  }
}

void Server::add_connection(host::Fd socket, const Listener& listener) {
  if (is_stopping_) return;
  const auto client = identity_of(socket.get());
  if (!client) return;  // already disconnected
  if (connection_count_ >= connections_max_) {
    ++context_.counters.refused;
    context_.log.note(EventLog::Kind::kRefusal,
                      fmt::format("refused a connection from {}: {} are open",
                                  print_nid(client->nid), connection_count_),
                      context_.now);
    return;
  }
  if (!context_.pool.reserve(Connection::kConnectionReserve)) {
    ++context_.counters.refused;
    has_refused_ = true;
    context_.log.note(EventLog::Kind::kRefusal,
                      fmt::format("refused a connection from {}: {} are open, and the memory limit "
                                  "allows no more; raise it (--memory)",
                                  print_nid(client->nid), connection_count_),
                      context_.now);
    return;
  }
  tune(socket.get(), listener.is_tcp);
  ++context_.counters.accepted;
  ++connection_count_;
  auto* const connection = new Connection(context_, *listener.protocol, std::move(socket), *client);
  connections_.push_back(*connection);
  handshakes_.push_back(*connection);
}

// On the thread of the watch. A server that is already stopping needs no other order.
void Server::signalled(int signal) {
  (void)order([signal](const Result<Server*>& server) {
    if (!server) return;
    signal == SIGHUP ? (*server)->reload() : (*server)->stop();
  });
}

void Server::reload() {
  if (reload_) return reload_(*this);
  if (auto read = read_jobs_again(); !read) {
    EventLog::say(read.error().message() + "; the job sizes were not changed");
  }
}

Result<void> Server::read_jobs_again() {
  auto jobs = load_jobs(options_.jobs_file, options_.jobs);
  if (!jobs) return tl::unexpected(jobs.error());
  set_jobs(std::move(*jobs));
  return {};
}

Result<std::function<void()>> Server::read_certificates() {
  if (context_.tls_keys == nullptr) return std::function<void()>([] {});
  auto keys = host::TlsKeys::load_again(context_.tls_keys);
  if (!keys) return tl::unexpected(keys.error());
  return std::function<void()>([this, keys = *std::move(keys)] { context_.tls_keys = keys; });
}

void Server::stop() {
  if (is_stopping_) return;
  is_stopping_ = true;
  host::notify_manager("STOPPING=1");
  close_commands();
  if (guest_ != nullptr) guest_->stopping(context_.now);
  stop_at_ = context_.now + options_.limits.drain_timeout;
  for (const auto& listener : listeners_) {
    if (listener->is_pending) context_.io->cancel(*listener);
  }
  for (const auto& service : context_.services) service->target.shutdown(context_.now);
  Connection* next = nullptr;
  for (Connection* one = connections_.empty() ? nullptr : &connections_.front(); one != nullptr;
       one = next) {
    next = connections_.behind(*one);
    one->end();
  }
}

// The drain timeout has expired.
void Server::close_all() {
  stop_at_ = kNever;
  abandon_at_ = context_.now + kEndPatience / 2;
  Connection* next = nullptr;
  for (Connection* one = connections_.empty() ? nullptr : &connections_.front(); one != nullptr;
       one = next) {
    next = connections_.behind(*one);
    one->close();
  }
  bury();
}

void Server::tell_abandoned() const {
  std::map<const ServedExport*, std::uint64_t> left;
  for (const Connection* one = connections_.empty() ? nullptr : &connections_.front();
       one != nullptr; one = connections_.behind(*one)) {
    one->count_working(left);
  }
  for (const auto& [served, count] : left) {
    EventLog::say(fmt::format(
        "export {}: {} request{} unfinished in its store at the end of the drain timeout ({}); "
        "none of them was acknowledged; check the storage, or raise --drain-timeout",
        quote(served->options.name), count, count == 1 ? " was" : "s were",
        print_duration(options_.limits.drain_timeout)));
  }
}

bool Server::is_done() const {
  if (!is_stopping_) return false;
  if (context_.now >= abandon_at_) return true;
  const auto pending = [](const auto& listener) { return listener->is_pending; };
  if (std::any_of(listeners_.begin(), listeners_.end(), pending)) return false;
  if (!context_.performs.empty()) return false;
  if (abandon_at_ == kNever) return connections_.empty();
  for (const Connection* one = connections_.empty() ? nullptr : &connections_.front();
       one != nullptr; one = connections_.behind(*one)) {
    if (!one->waits_for_store()) return false;
  }
  return true;
}

// ---- commands of other threads ----

Result<void> Server::order(Command command) {
  if (!commands_.put_always(std::move(command))) return stopping();
  return {};
}

Result<void> Server::post(Command command) {
  switch (commands_.put(std::move(command))) {
    case host::Put::kDone:
      return {};
    case host::Put::kFull:
      return fail(std::errc::resource_unavailable_try_again, "server",
                  "too many commands are queued", "try again later");
    case host::Put::kClosed:
      break;
  }
  return stopping();
}

void Server::woken(host::Operation& io, const host::Completion& /*completion*/) {
  auto& waker = static_cast<Waker&>(io);
  Server& self = *waker.server;
  self.has_commands_ = true;
  self.context_.io->await_wake(self.commands_.fd(), waker);
}

void Server::run_commands() {
  if (!std::exchange(has_commands_, false)) return;
  for (const Command& command : commands_.take()) {
    // An earlier command may have stopped the server.
    if (is_stopping_) {
      command(stopping());
    } else {
      command(this);
    }
  }
}

void Server::close_commands() {
  for (const Command& command : commands_.close()) command(stopping());
}

// ---- the loop ----

bool Server::run(const std::function<void()>& ready) {
  stage_ = Stage::kServing;
  watch_->set_patience(options_.limits.drain_timeout + kEndPatience);
  command_waker_.server = this;
  command_waker_.done = woken;
  woken(command_waker_, {});
  ready_ = ready;
  if (!is_held_) open_entrance();
  while (!is_done()) turn();
  if (connections_.empty()) stage_ = Stage::kDrained;
  if (trace_ != nullptr) trace_->finish();
  bury();
  tell_abandoned();
  return connections_.empty();
}

// On the thread of the watch.
void Server::end_hung() const {
  const Stage stage = stage_;
  switch (stage) {
    case Stage::kStarting:
      EventLog::say(
          "stopped during the start, which hangs, most likely in a system call on a store: killed; "
          "no client had been accepted; check the storage");
      break;
    case Stage::kServing:
      EventLog::say(
          "the drain timeout has expired and the server hangs, most likely in a system call on a "
          "store: killed; unacknowledged requests are lost; check the storage");
      break;
    case Stage::kDrained:
      EventLog::say(
          "all requests were answered, but the drain timeout has expired while the server waits "
          "for "
          "its trace file, etcd, Slurm or clients of the lock service: killed");
      break;
  }
  host::flush_log();
  _exit(stage == Stage::kDrained ? 0 : kHungStatus);
}

void Server::turn() {
  context_.io->wait(wakes_at(), context_.now);
  context_.outgoing_used = 0;
  context_.now = host::now();
  context_.intake.begin_turn();
  context_.io->reap();
  run_commands();
  if (guest_ != nullptr && guest_->wakes_at() <= context_.now) guest_->wake(context_.now);
  expire_handshakes();
  wake_sessions();
  wake_stores();
  perform_waiting();
  resume_waiting();
  check_payloads();
  read_on();
  dispatch();
  flush();
  bury();
  if (heap_trim_.is_due(context_.pool.on_heap(), context_.now)) host::trim_heap();
  if (trace_ != nullptr) trace_->turn(context_.now);
  if (context_.now >= accepts_again_ && !is_stopping_) accept_all();
  if (context_.now >= stop_at_) close_all();
}

void Server::expire_handshakes() {
  while (!handshakes_.empty()) {
    Connection& oldest = handshakes_.front();
    if (oldest.is_shaking_hands() && oldest.handshake_ends() > context_.now) return;
    handshakes_.erase(oldest);
    if (oldest.is_shaking_hands()) oldest.expire();
  }
}

void Server::check_payloads() {
  if (context_.waiting.empty()) context_.is_starved = false;
  const bool is_short = context_.is_starved || std::exchange(has_refused_, false);
  while (is_short && !context_.payloads.empty()) {
    const IncomingPayload& oldest = context_.payloads.front();
    if (oldest.marked + Connection::kPayloadTime > context_.now) return;
    oldest.connection->check_payload();
  }
}

void Server::wake_sessions() {
  while (!context_.alarms.empty() && context_.alarms.top_key() <= context_.now) {
    context_.alarms.pop().connection->wake();
  }
}

void Server::wake_stores() {
  for (const auto& served : context_.exports) {
    if (served->store->wakes_at() <= context_.now) served->store->wake(context_.now);
    watch_store(*served);
  }
}

void Server::watch_store(ServedExport& served) {
  const auto request_of = [](StoreOperation& operation) -> PendingRequest& {
    return *static_cast<PendingRequest*>(operation.owner);
  };
  StoreWatch& watch = served.watch;
  if (watch.check(context_.now)) {
    while (StoreOperation* const one = watch.give_up()) {
      PendingRequest& request = request_of(*one);
      request.connection->give_up(request);
    }
    served.log.note(
        EventLog::Kind::kHung,
        fmt::format("export {}: its store has completed none of {} requests for {}; check the "
                    "device or file server below it; other exports are not affected",
                    quote(served.options.name), watch.given_up(),
                    print_duration(StoreWatch::kHungAfter)),
        context_.now);
    if (StoreOperation* const one = watch.try_one()) {
      PendingRequest& request = request_of(*one);
      request.connection->try_kept(request);
    }
  }
  while (StoreOperation* const one = watch.resume()) {
    PendingRequest& request = request_of(*one);
    request.connection->run_kept(request);
  }
}

void Server::perform_waiting() {
  context_.effort_left = LoopContext::kEffortOfTurn;
  while (!context_.performs.empty() && context_.effort_left > 0) {
    PendingRequest& request = *context_.performs.front();
    context_.performs.pop_front();
    request.connection->perform(request);
  }
}

void Server::resume_waiting() {
  if (!context_.freed || context_.waiting.empty()) return;
  context_.freed = false;
  context_.is_starved = false;  // set again by connections that still lack memory
  const std::vector<Connection*> waiting = std::exchange(context_.waiting, {});
  for (Connection* const connection : waiting) connection->resume();
}

void Server::read_on() {
  context_.intake.begin_line();
  while (Connection* const connection = context_.intake.next()) connection->go_on_reading();
}

void Server::dispatch() {
  const std::size_t count = context_.services.size();
  // The services are first in turn, so that none gets the whole pace.
  if (pace_shape_) first_served_ = (first_served_ + 1) % count;
  for (std::size_t i = 0; i < count; ++i) dispatch(*context_.services[(first_served_ + i) % count]);
}

void Server::dispatch(Service& service) {
  for (std::uint32_t run = 0; run < kRunOfTurn; ++run) {
    if (pace_shape_ && !pace_.can_take(Tokens{1}, *pace_shape_, context_.now)) {
      const bool is_idle = service.target.queued() == 0;
      service.wakes_at = is_idle ? kNever : pace_.ready_at(Tokens{1}, *pace_shape_);
      return;
    }
    const Decision decision = service.next(context_.now);
    if (decision.kind() != Decision::Kind::kRun) {
      service.wakes_at = decision.until();
      return;
    }
    if (pace_shape_) pace_.take(Tokens{1}, *pace_shape_, context_.now);
    auto& request = static_cast<PendingRequest&>(decision.request());
    request.connection->run(request);
  }
  service.wakes_at = context_.now;
}

void Server::flush() {
  for (std::size_t i = 0; i < context_.dirty.size(); ++i) context_.dirty[i]->flush();
  context_.dirty.clear();
}

void Server::bury() {
  for (Connection* const connection : std::exchange(context_.over, {})) {
    connections_.erase(*connection);
    if (connection->handshake_link.is_linked()) handshakes_.erase(*connection);
    std::erase(context_.waiting, connection);
    std::erase(context_.dirty, connection);
    context_.intake.forget(*connection);
    --connection_count_;
    delete connection;
  }
}

Instant Server::wakes_at() const {
  // Replies sent at the end of this turn may have freed room for another connection.
  if (context_.freed && !context_.waiting.empty()) return context_.now;
  if (!context_.performs.empty() || context_.intake.has_line()) return context_.now;
  Instant at = std::min({accepts_again_, stop_at_, abandon_at_, heap_trim_.wakes_at()});
  if (guest_ != nullptr) at = std::min(at, guest_->wakes_at());
  for (const auto& service : context_.services) at = std::min(at, service->wakes_at);
  for (const auto& served : context_.exports) {
    at = std::min({at, served->store->wakes_at(), served->watch.wakes_at()});
  }
  if (!handshakes_.empty()) at = std::min(at, handshakes_.front().handshake_ends());
  if (context_.is_starved && !context_.payloads.empty()) {
    at = std::min(at, context_.payloads.front().marked + Connection::kPayloadTime);
  }
  if (!context_.alarms.empty()) at = std::min(at, context_.alarms.top_key());
  if (trace_ != nullptr) at = std::min(at, trace_->wakes_at());
  return at;
}

}  // namespace weir::serve
