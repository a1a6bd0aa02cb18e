// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
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
#include "weir/host/machine.h"
#include "weir/serve/dispatcher.h"
#include "weir/serve/listen.h"

namespace weir::serve {
namespace {

using std::chrono::milliseconds;

// Descriptors other than connections: standard streams, signals, and the control socket, from which
// clients must never keep administrators out; and those of each loop.
constexpr std::uint32_t kOwnFiles = 64;
constexpr std::uint32_t kFilesOfLoop = 8;
constexpr std::uint32_t kFilesOfGrpc = 64;               // of the lock service, and of a cluster
constexpr Nanoseconds kAcceptPause = milliseconds{100};  // when there are no descriptors left
constexpr int kSendBuffer = 1 << 20;                     // a batch of replies in one call

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

Result<host::OpenedIo> start_io(host::IoChoice choice) {
  auto opened = host::open_io(choice);
  if (opened || choice != host::IoChoice::kUring) return opened;
  Error error = opened.error();
  error.hint += ", or use --io auto or --io epoll";
  return tl::unexpected(std::move(error));
}

tl::unexpected<Error> cannot_start_loop(std::size_t index, Error error) {
  if (index == 0) return tl::unexpected(std::move(error));
  error.where = fmt::format("thread {}: {}", index, error.where);
  error.hint += (error.hint.empty() ? "" : "; ") + std::string("or use fewer threads (--threads)");
  return tl::unexpected(std::move(error));
}

tl::unexpected<Error> stopping() {
  return fail(std::errc::operation_canceled, "server", "is shutting down",
              "try again after the restart");
}

}  // namespace

Server::Server(ServeOptions options, host::SignalFd signals, host::Fd watch_wake_fd,
               host::Fd wake_fd)
    : options_(std::move(options)),
      context_(options_),
      commands_(std::move(wake_fd), kCommandsMax) {
  watch_.emplace(
      std::move(signals), host::Wake(std::move(watch_wake_fd)), kEndPatience,
      [this](int signal) { signalled(signal); }, [this] { end_hung(); });
}

Server::~Server() {
  watch_.reset();
  close_commands();
  leave();
}

void Server::leave() {
  for (const auto& listening : sockets_) {
    if (!listening->path.empty()) unlink(listening->path.c_str());
    listening->path.clear();
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
  if (options.threads == kThreadsAuto) {
    options.threads =
        options.nfs.empty() ? std::min(host::usable_cores(), kThreadsAutoMax) : std::uint32_t{1};
  }
  std::unique_ptr<Server> server(new Server(std::move(options), std::move(*signals),
                                            std::move(*watch_wake_fd), std::move(*wake_fd)));
  if (auto opened = server->open(); !opened) return tl::unexpected(opened.error());
  return server;
}

Result<void> Server::open() {
  // A timer for a token should fire on time, not up to 50 us later.
  prctl(PR_SET_TIMERSLACK, 1);
  if (auto opened = open_loops(); !opened) return opened;
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
    context_.set_tls_keys(std::move(*keys));
  }
  if (auto opened = open_services(); !opened) return opened;
  open_dispatchers();
  if (auto listening = listen(); !listening) return listening;
  if (!options_.user.empty()) return become_user(options_.user);
  return {};
}

// All loops do their I/O in the same way, which `weir status` shows: if io_uring is not available
// for one of them, all start again with epoll.
Result<void> Server::open_loops() {
  host::IoChoice choice = options_.io;
  while (loops_.size() < options_.threads) {
    std::string why_not_uring;
    const std::size_t index = loops_.size();
    auto loop = Loop::create(context_, static_cast<std::uint8_t>(index), [&] {
      auto opened = start_io(choice);
      if (opened) why_not_uring = opened->why_not_uring;
      return opened.map([](host::OpenedIo& io) { return std::move(io.loop); });
    });
    if (!loop) return cannot_start_loop(index, loop.error());
    loops_.push_back(std::move(*loop));
    if (why_not_uring.empty()) continue;
    EventLog::say("using epoll, because io_uring is not available" +
                  (index == 0 ? "" : fmt::format(" for thread {}", index)) + ": " + why_not_uring);
    choice = host::IoChoice::kEpoll;
    if (index > 0) loops_.clear();
  }
  for (const auto& loop : loops_) context_.loops.push_back(&loop->context());
  if (context_.is_shared()) context_.pool.share();
  return {};
}

// With a trace or in a cluster one for all services, otherwise one for each; dispatcher.h has the
// reason.
void Server::open_dispatchers() {
  const bool is_one = !context_.is_shared() || trace_ != nullptr || options_.cluster.is_on();
  std::vector<Service*> services;
  for (const auto& service : context_.services) {
    services.push_back(service.get());
    service->dispatcher = context_.dispatchers.size();
    if (is_one && services.size() < context_.services.size()) continue;
    context_.dispatchers.push_back(
        std::make_unique<Dispatcher>(std::exchange(services, {}), loops_.size(), trace_.get()));
  }
}

Result<void> Server::open_services() {
  if (!options_.trace_file.empty()) {
    auto trace = TraceFile::create(options_.trace_file);
    if (!trace) return tl::unexpected(trace.error());
    trace_ = std::move(*trace);
  }
  for (const ServiceOptions& one : options_.services) {
    auto service = open_service(one, options_.nodemaps, options_.unknown_jobs, options_.groups,
                                first().now, trace_.get(),
                                options_.cluster.is_on() ? Standing::kInCluster : Standing::kAlone);
    if (!service) return tl::unexpected(service.error());
    context_.services.push_back(std::move(*service));
  }
  if (auto checked = check_groups(options_.groups, context_.services); !checked) return checked;
  if (auto opened = open_exports(); !opened) return opened;
  auto jobs = load_jobs(options_.jobs_file, options_.jobs);
  if (!jobs) return tl::unexpected(jobs.error());
  set_jobs(std::move(*jobs));
  return {};
}

Result<void> Server::open_exports() {
  for (const ExportOptions& one : options_.exports) {
    Service* const service = find_service(one.service);
    WEIR_ASSERT(service != nullptr);
    auto served = open_export(one, *service, *first().io);
    if (!served) return tl::unexpected(served.error());
    (*served)->index = context_.exports.size();
    for (const auto& loop : loops_) {
      LoopContext& context = loop->context();
      auto local = std::make_unique<LocalExport>(**served, context.bell);
      local->watch = StoreWatch(service->slots);
      local->store = &context == &first() ? nullptr : (*served)->store->share(*context.io);
      context.exports.push_back(std::move(local));
    }
    first().exports.back()->store = std::move((*served)->store);
    for (const auto& loop : loops_) {
      LocalExport& local = *loop->context().exports.back();
      local.store->set_listener(local);
    }
    context_.exports.push_back(std::move(*served));
  }
  return {};
}

std::uint32_t Server::other_files() const {
  const std::size_t grpc =
      (options_.lock.listen ? kFilesOfGrpc : 0) + (options_.cluster.is_on() ? kFilesOfGrpc : 0);
  return static_cast<std::uint32_t>(kOwnFiles + kFilesOfLoop * options_.threads + grpc +
                                    options_.exports.size() + options_.listen.size());
}

Result<void> Server::listen() {
  for (ListenAddress address : options_.listen) {
    const auto protocol = find_protocol(address.protocol);
    if (!protocol) return tl::unexpected(protocol.error());
    auto socket = listen_on(address);
    if (!socket) return tl::unexpected(socket.error());
    auto listening = std::make_unique<ListeningSocket>();
    listening->server = this;
    listening->done = accepted;
    listening->socket = std::move(*socket);
    listening->path = address.path;
    listening->protocol = *protocol;
    listening->is_tcp = address.kind == ListenAddress::Kind::kTcp;
    sockets_.push_back(std::move(listening));
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
  return first().local(*served).store->reshape(shape, now());
}

Counters Server::counters() const {
  Counters sum;
  const auto add = [](std::uint64_t& to, const LoopCount& count) { to += count.get(); };
  for (const auto& loop : loops_) sum.each(loop->context().counters, add);
  return sum;
}

std::uint32_t Server::connection_count() const {
  std::uint32_t sum = 0;
  for (const auto& loop : loops_) sum += loop->connection_count();
  return sum;
}

std::vector<Server::LoopStatus> Server::loops() const {
  std::vector<LoopStatus> all;
  for (const auto& loop : loops_) {
    const LoopContext& context = loop->context();
    all.push_back({.connections = loop->connection_count(),
                   .requests = context.counters.requests.get(),
                   .wake_ups = context.bell.rung(),
                   .stats = {.turns = context.stats.turns.get(),
                             .longest_turn_ns = context.stats.longest_turn_ns.get(),
                             .lock_busy = context.stats.lock_busy.get(),
                             .lock_wait_ns = context.stats.lock_wait_ns.get()}});
  }
  return all;
}

// Each loop has its part of the requests; the silence is that of the store.
std::optional<Server::HungStore> Server::hung(const ServedExport& served) const {
  std::optional<HungStore> all;
  for (const auto& loop : loops_) {
    const LocalExport::Hung& one = loop->context().local(served).hung;
    if (!one.is_hung) continue;
    if (!all) all.emplace();
    all->unfinished += one.unfinished;
    all->kept += one.kept;
    all->silence = std::max(all->silence, Nanoseconds{one.silent_ns.load()});
  }
  return all;
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
  context_.set_limits(limits);
  // Connections that wait for memory or room may continue.
  first().freed = true;
  ++context_.freed;
  context_.ring(~std::uint64_t{0});
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
    if (auto set = set_nodes(service->target, jobs_, jobs, now()); !set) {
      EventLog::say(set.error().message());
    }
  }
  jobs_ = std::move(jobs);
}

void Server::set_pace(std::optional<std::uint32_t> per_second) {
  WEIR_ASSERT(context_.dispatchers.size() == 1);
  context_.dispatchers.front()->set_pace(per_second, now());
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
  for (const auto& listening : sockets_) {
    if (listening->is_pending) continue;
    listening->is_pending = true;
    first().io->accept(listening->socket.get(), *listening);
  }
}

void Server::accepted(host::Operation& io, const host::Completion& completion) {
  auto& listening = static_cast<ListeningSocket&>(io);
  Server& self = *listening.server;
  if (!completion.goes_on()) listening.is_pending = false;
  if (completion.result >= 0) {
    self.add_connection(host::Fd(completion.result), listening);
  } else if (completion.result == -EMFILE || completion.result == -ENFILE ||
             completion.result == -ENOMEM || completion.result == -ENOBUFS) {
    self.context_.log.note(EventLog::Kind::kAccept,
                           "cannot accept a connection: out of descriptors or memory", self.now());
    self.accepts_again_ = self.now() + kAcceptPause;
    return;
  }
  if (listening.is_pending) return;
  if (self.is_stopping_) {
    self.first().io->forget(listening.socket.get());
    listening.socket = host::Fd();  // the kernel refuses new connections now
  } else {
    self.accept_all();
  }
}

void Server::add_connection(host::Fd socket, const ListeningSocket& listening) {
  if (is_stopping_) return;
  const auto client = identity_of(socket.get());
  if (!client) return;  // already disconnected
  const std::uint32_t count = connection_count();
  if (count >= connections_max_) {
    ++first().counters.refused;
    context_.log.note(
        EventLog::Kind::kRefusal,
        fmt::format("refused a connection from {}: {} are open", print_nid(client->nid), count),
        now());
    return;
  }
  if (!context_.pool.reserve(Connection::kConnectionReserve)) {
    ++first().counters.refused;
    for (const auto& loop : loops_) loop->note_refused();
    context_.log.note(EventLog::Kind::kRefusal,
                      fmt::format("refused a connection from {}: {} are open, and the memory limit "
                                  "allows no more; raise it (--memory)",
                                  print_nid(client->nid), count),
                      now());
    return;
  }
  tune(socket.get(), listening.is_tcp);
  ++first().counters.accepted;
  const auto fewer = [](const auto& one, const auto& other) {
    return one->connection_count() < other->connection_count();
  };
  (*std::min_element(loops_.begin(), loops_.end(), fewer))
      ->add({std::move(socket), *client, listening.protocol});
}

// On the thread of the watch. A server that is already stopping needs no further order.
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
  const host::TlsKeys::Ptr current = context_.tls_keys();
  if (current == nullptr) return std::function<void()>([] {});
  auto keys = host::TlsKeys::load_again(current);
  if (!keys) return tl::unexpected(keys.error());
  return std::function<void()>([this, keys = *std::move(keys)] { context_.set_tls_keys(keys); });
}

void Server::stop() {
  if (is_stopping_) return;
  is_stopping_ = true;
  host::notify_manager("STOPPING=1");
  close_commands();
  if (component_ != nullptr) component_->stopping(now());
  for (const auto& listening : sockets_) {
    if (listening->is_pending) first().io->cancel(*listening);
  }
  const Instant until = now() + options_.limits.drain_timeout;
  for (const auto& loop : loops_) loop->end(until);
  loops_.front()->begin_end();
  shut_down_targets();
}

// When no loop admits anything more.
void Server::shut_down_targets() {
  const auto has_ended = [](const auto& loop) { return loop->has_ended(); };
  if (is_shut_down_ || !std::all_of(loops_.begin(), loops_.end(), has_ended)) return;
  is_shut_down_ = true;
  alone([this] {
    for (const auto& service : context_.services) service->target.shutdown(now());
  });
}

void Server::tell_abandoned() const {
  std::map<const ServedExport*, std::uint64_t> left;
  for (const auto& loop : loops_) loop->count_working(left);
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
  const auto pending = [](const auto& listening) { return listening->is_pending; };
  if (std::any_of(sockets_.begin(), sockets_.end(), pending)) return false;
  if (!is_shut_down_ || !loops_.front()->is_done()) return false;
  return std::all_of(loops_.begin() + 1, loops_.end(),
                     [](const auto& loop) { return loop->is_drained(); });
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
  self.first().io->await_wake(self.commands_.fd(), waker);
}

// A command sees every call that loops have made before it, and its time is not before theirs.
template <class Function>
void Server::alone(Function function) {
  for (const auto& dispatcher : context_.dispatchers) {
    dispatcher->lock(first());
    first().now = std::max(first().now, dispatcher->last());
  }
  function();
  for (const auto& dispatcher : context_.dispatchers) dispatcher->unlock(first());
}

void Server::set_component(LoopComponent* component) {
  component_ = component;
  if (component == nullptr) return;
  for (const auto& dispatcher : context_.dispatchers) dispatcher->set_component(*component);
}

// With several loops the dispatcher has the time, because another loop may be inside a Target that
// the component uses.
Instant Server::component_wakes_at() const {
  if (component_ == nullptr) return kNever;
  return context_.is_shared() ? context_.dispatchers.front()->component_wakes_at()
                              : component_->wakes_at();
}

void Server::between_turns() {
  run_commands();
  if (component_wakes_at() <= now()) alone([this] { component_->wake(now()); });
}

void Server::run_commands() {
  if (!std::exchange(has_commands_, false)) return;
  alone([this] {
    for (const Command& command : commands_.take()) {
      // An earlier command may have stopped the server.
      if (is_stopping_) {
        command(stopping());
      } else {
        command(this);
      }
    }
  });
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
  for (std::size_t i = 1; i < loops_.size(); ++i) loops_[i]->run();
  if (!is_held_) open_entrance();
  try {
    while (!is_done()) run_turn();
  } catch (const std::exception& error) {
    loops_.front()->die(error.what());
  }
  const auto has_some = [](const auto& loop) { return loop->has_connections(); };
  for (std::size_t i = 1; i < loops_.size(); ++i) loops_[i]->finish();
  const bool is_empty = std::none_of(loops_.begin(), loops_.end(), has_some);
  if (is_empty) stage_ = Stage::kDrained;
  if (trace_ != nullptr) trace_->finish();
  loops_.front()->bury();
  tell_abandoned();
  return is_empty;
}

void Server::run_turn() {
  loops_.front()->turn(wakes_at(), [this] { between_turns(); });
  if (is_stopping_) shut_down_targets();
  if (heap_trim_.is_due(context_.pool.on_heap(), now())) host::trim_heap();
  if (now() >= accepts_again_ && !is_stopping_) accept_all();
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

Instant Server::wakes_at() const {
  return std::min({accepts_again_, heap_trim_.wakes_at(), component_wakes_at()});
}

}  // namespace weir::serve
