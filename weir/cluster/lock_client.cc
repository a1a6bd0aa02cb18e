// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_client.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "weir/base/job_id.h"
#include "weir/base/quote.h"
#include "weir/cluster/lock.grpc.pb.h"
#include "weir/cluster/lock_channel.h"
#include "weir/cluster/lock_wire.h"
#include "weir/host/clock.h"
#include "weir/host/mutex.h"

namespace weir::lock {
namespace {

using namespace std::chrono_literals;

// Batches in progress: one is being answered while the next is sent, and the rest is collected.
constexpr std::size_t kWindow = 2;
constexpr Nanoseconds kWelcomePatience = 10s;
// With several servers, another one may answer.
constexpr Nanoseconds kWelcomePatienceOfMany = 2s;
constexpr std::size_t kServersMax = 16;
constexpr Nanoseconds kBackoffMin = 50ms;
constexpr Nanoseconds kBackoffMax = 1s;
// The next server becomes active within a second of an orderly stop.
constexpr Nanoseconds kBackoffMaxOfMany = 200ms;
// Interval of checks whether overdue messages can be sent.
constexpr Nanoseconds kOverdue = 5ms;
// The keeper checks at least this often: caches are checked every second.
constexpr Nanoseconds kLookEvery = 1s;

std::uint32_t slot_of(LockClient::Ticket ticket) { return static_cast<std::uint32_t>(ticket); }

}  // namespace

std::vector<std::string> servers_of(const ConnectOptions& options) {
  std::vector<std::string> servers;
  std::string_view rest = options.server;
  for (;;) {
    const std::size_t comma = rest.find(',');
    servers.emplace_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) return servers;
    rest.remove_prefix(comma + 1);
  }
}

Result<void> check(const ConnectOptions& options) {
  const std::vector<std::string> servers = servers_of(options);
  for (const std::string& server : servers) {
    const bool is_unix = server.starts_with("unix:") && server.size() > 5;
    const auto colon = server.rfind(':');
    if (is_unix || (colon != std::string::npos && colon > 0 && colon + 1 < server.size())) continue;
    return fail(std::errc::invalid_argument, "lock server", quote(server) + " is not an address",
                "expected ADDRESS:PORT or unix:PATH, or several separated by commas");
  }
  if (servers.size() > kServersMax) {
    return fail(std::errc::invalid_argument, "lock server",
                fmt::format("{} addresses were given", servers.size()),
                fmt::format("expected at most {}", kServersMax));
  }
  if (options.job.size() > JobId::kSizeMax) {
    return fail(std::errc::invalid_argument, "job", "id has more than 31 bytes");
  }
  return {};
}

namespace {

// The states of the LockClient and of the stream must agree. One mutex guards both; gRPC and
// listeners are never called with it held.
class GrpcClient final : public Client {
 public:
  GrpcClient(const ConnectOptions& options, std::unique_ptr<cluster::LockChannel> channel)
      : options_(options),
        servers_(servers_of(options)),
        channel_(std::move(channel)),
        stubs_(servers_.size()),
        client_(options.client),
        pressure_(options.pressure.value_or(host::MemoryPressure::of_this_process())) {
    keeper_ = std::thread([this] { keep(); });
  }
  ~GrpcClient() override { close(std::chrono::seconds{2}); }
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;

  LockClient::Acquired acquire(std::string_view name, Mode mode, OrWait or_wait,
                               Listener& listener) override;
  LockClient::Converted convert(Ticket ticket, Mode mode, OrWait or_wait) override;
  std::vector<Cycle::Step> cycle(Ticket ticket) const override {
    const host::MutexLock lock(mutex_);
    return client_.cycle(ticket);
  }
  Ticket watch(std::string_view name, Mode mode, Listener& listener) override;
  Holders holders(Ticket ticket) const override {
    const host::MutexLock lock(mutex_);
    return client_.holders(ticket);
  }
  void release(Ticket ticket) override;
  bool is_held(Ticket ticket) override;
  std::size_t shrink(std::size_t nr) override {
    return drop([nr](LockClient& client, Instant now) { return client.shrink(nr, now); });
  }
  std::size_t relieve() override {
    return drop([](LockClient& client, Instant now) { return client.relieve(now); });
  }
  void close(Nanoseconds patience) override;
  Status status() const override;

 private:
  class Stream;

  // Actions to perform after the mutex is released.
  struct PendingActions {
    Stream* writes = nullptr;
    bool has_events = false;
  };
  // State of the current stream.
  struct StreamState {
    bool is_reading = true;
    bool is_writing = true;
    bool is_done = false;
    bool has_left = false;  // the goodbye was sent
    bool was_welcome = false;
    Instant heard_at{};

    // No operation is left that could start a write.
    bool is_idle() const { return !is_reading && !is_writing; }
  };

  // Drops locks with one of LockClient's calls.
  template <class Drop>
  std::size_t drop(Drop drop);
  PendingActions look(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run(const PendingActions& actions) ABSL_LOCKS_EXCLUDED(mutex_);
  void tell() ABSL_LOCKS_EXCLUDED(mutex_);
  void keep() ABSL_LOCKS_EXCLUDED(mutex_);
  void connect(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void forget_stream(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void compose(Stream& stream, Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void listen(Ticket ticket, Listener& listener) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void wake_keeper(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t said_so_far() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const LockClient::Counters& counters = client_.counters();
    return counters.enqueues + counters.cancels + counters.conversions + counters.watches;
  }
  Nanoseconds silence_max() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Locks::Stub& stub();
  bool has_stream() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stream_ != nullptr && !stream_state_.is_done;
  }

  const ConnectOptions options_;
  const std::vector<std::string> servers_;
  // The keeper's.
  const std::unique_ptr<cluster::LockChannel> channel_;
  std::vector<std::unique_ptr<v1::Locks::Stub>> stubs_;  // of each server; created when needed
  std::size_t at_ = 0;                                   // the server of the current stream
  std::size_t failed_ = 0;                               // servers since the last welcome

  mutable host::Mutex mutex_;
  host::Condition changed_;  // for the keeper, and for close()
  host::Condition told_;     // a listener has returned
  LockClient client_ ABSL_GUARDED_BY(mutex_);
  host::MemoryPressure pressure_;                                // the keeper's
  std::vector<Listener*> listeners_ ABSL_GUARDED_BY(mutex_);     // by slot of the ticket
  std::vector<LockClient::Event> news_ ABSL_GUARDED_BY(mutex_);  // events being delivered
  Ticket telling_ ABSL_GUARDED_BY(mutex_) = 0;  // ticket whose listener is being called
  std::thread::id teller_ ABSL_GUARDED_BY(mutex_);
  bool is_telling_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  StreamState stream_state_ ABSL_GUARDED_BY(mutex_);
  std::string server_ ABSL_GUARDED_BY(mutex_);  // of the current stream
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  bool is_refused_ ABSL_GUARDED_BY(mutex_) = false;
  Instant connect_at_ ABSL_GUARDED_BY(mutex_){};
  Nanoseconds backoff_ ABSL_GUARDED_BY(mutex_) = kBackoffMin;
  Instant keeper_until_ ABSL_GUARDED_BY(mutex_) = kNever;
  bool is_leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread keeper_;
};

// One connection attempt. Reads continue until one fails; a hold keeps the stream open while this
// side may still start to write.
class GrpcClient::Stream : public grpc::ClientBidiReactor<v1::ClientBatch, v1::ServerBatch> {
 public:
  explicit Stream(GrpcClient& owner) : owner_(owner) {}

  void start(v1::Locks::Stub& stub) {
    stub.async()->Attach(&context, this);
    AddHold();
    StartRead(&in_);
    StartWrite(&out);
    StartCall();
  }
  void write() { StartWrite(&out); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context;
  v1::ClientBatch out;

 private:
  GrpcClient& owner_;
  v1::ServerBatch in_;
};

void GrpcClient::Stream::OnReadDone(bool ok) {
  std::optional<ServerMessage> message;
  if (ok) message = cluster::from_wire(in_);
  if (!message) {
    if (ok) context.TryCancel();  // garbage
    const host::MutexLock lock(owner_.mutex_);
    owner_.stream_state_.is_reading = false;
    if (!owner_.stream_state_.is_idle()) return;
  } else {
    PendingActions actions;
    {
      const host::MutexLock lock(owner_.mutex_);
      const Instant now = host::boot_now();
      owner_.stream_state_.heard_at = now;
      owner_.backoff_ = kBackoffMin;
      owner_.trouble_.clear();
      owner_.is_refused_ = false;
      owner_.client_.receive(*message, now);
      owner_.stream_state_.was_welcome = owner_.client_.is_welcome();
      actions = owner_.look(now);
    }
    StartRead(&in_);
    owner_.run(actions);
    return;
  }
  RemoveHold();
}

void GrpcClient::Stream::OnWriteDone(bool ok) {
  PendingActions actions;
  bool is_last = false;
  {
    const host::MutexLock lock(owner_.mutex_);
    StreamState& state = owner_.stream_state_;
    state.is_writing = false;
    if (ok && state.is_reading) actions = owner_.look(host::boot_now());
    is_last = state.is_idle();
  }
  owner_.run(actions);
  if (is_last) RemoveHold();
}

void GrpcClient::Stream::OnDone(const grpc::Status& status) {
  const host::MutexLock lock(owner_.mutex_);
  owner_.stream_state_.is_done = true;
  owner_.client_.disconnected();
  if (!status.ok()) {
    owner_.trouble_ = owner_.servers_.size() == 1 ? status.error_message()
                                                  : owner_.server_ + ": " + status.error_message();
    owner_.is_refused_ = status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
  }
  owner_.changed_.notify_all();
}

// ---- common part of every call ----

// Sends the next batch when the previous one has been passed on and not too many are unanswered.
// Pending events become actions; the keeper is notified of an earlier deadline.
GrpcClient::PendingActions GrpcClient::look(Instant now) {
  PendingActions actions;
  Stream* const stream = stream_.get();
  // Operations requested by listeners are collected until all have been called.
  const bool is_listener = is_telling_ && teller_ == std::this_thread::get_id();
  const StreamState& state = stream_state_;
  const bool can_write = stream != nullptr && state.is_reading && !state.is_writing;
  if (can_write && !state.has_left && !is_listener) {
    const bool may = client_.is_connected() && client_.unconfirmed() < kWindow;
    if (may && (client_.has_message(now) || is_leaving_)) {
      compose(*stream, now);
      actions.writes = stream;
    }
  }
  actions.has_events = !client_.events().empty() && !is_telling_;
  wake_keeper(now);
  return actions;
}

void GrpcClient::compose(Stream& stream, Instant now) {
  ClientMessage message = client_.take(now, cluster::kOpsMax);
  if (is_leaving_ && message.ops.size() < cluster::kOpsMax) {
    message.ops.emplace_back().kind = ClientOp::Kind::kGoodbye;
    stream_state_.has_left = true;
  }
  cluster::to_wire(message, options_.job, stream.out);
  stream_state_.is_writing = true;
}

void GrpcClient::wake_keeper(Instant now) {
  // Overdue messages wait for the stream, which checks again by itself.
  const Instant next = client_.next_tick();
  if (keeper_until_ == kNever || next <= now || next >= keeper_until_) return;
  keeper_until_ = kNever;
  changed_.notify_all();
}

void GrpcClient::run(const PendingActions& actions) {
  if (actions.writes != nullptr) actions.writes->write();
  if (actions.has_events) tell();
}

// Calls listeners until there are no events. One thread at a time does it; others leave their
// events to it.
void GrpcClient::tell() {
  host::MutexLock lock(mutex_);
  if (is_telling_) return;
  is_telling_ = true;
  teller_ = std::this_thread::get_id();
  while (!client_.events().empty()) {
    news_.swap(client_.events());
    for (const LockClient::Event& event : news_) {
      const std::uint32_t slot = slot_of(event.ticket);
      Listener* const listener = slot < listeners_.size() ? listeners_[slot] : nullptr;
      // Released meanwhile, and possibly reused by another ticket.
      if (listener == nullptr || !client_.is_ticket(event.ticket)) continue;
      telling_ = event.ticket;
      lock.unlock();
      listener->lock_event(event);
      lock.lock();
      telling_ = 0;
      told_.notify_all();
    }
    news_.clear();
  }
  is_telling_ = false;
  const PendingActions actions = look(host::boot_now());
  lock.unlock();
  if (actions.writes != nullptr) actions.writes->write();
}

// ---- the application ----

LockClient::Acquired GrpcClient::acquire(std::string_view name, Mode mode, OrWait or_wait,
                                         Listener& listener) {
  LockClient::Acquired acquired;
  PendingActions actions;
  {
    const host::MutexLock lock(mutex_);
    const Instant now = host::boot_now();
    acquired = client_.acquire(name, mode, or_wait, now);
    listen(acquired.ticket, listener);
    if (acquired.is_held && client_.events().empty()) return acquired;
    actions = look(now);
  }
  run(actions);
  return acquired;
}

void GrpcClient::listen(Ticket ticket, Listener& listener) {
  const std::uint32_t slot = slot_of(ticket);
  if (listeners_.size() <= slot) listeners_.resize(slot + 1);
  listeners_[slot] = &listener;
}

LockClient::Converted GrpcClient::convert(Ticket ticket, Mode mode, OrWait or_wait) {
  LockClient::Converted converted;
  PendingActions actions;
  {
    const host::MutexLock lock(mutex_);
    const Instant now = host::boot_now();
    converted = client_.convert(ticket, mode, or_wait, now);
    actions = look(now);
  }
  run(actions);
  return converted;
}

GrpcClient::Ticket GrpcClient::watch(std::string_view name, Mode mode, Listener& listener) {
  Ticket ticket = 0;
  PendingActions actions;
  {
    const host::MutexLock lock(mutex_);
    const Instant now = host::boot_now();
    ticket = client_.watch(name, mode, now);
    listen(ticket, listener);
    actions = look(now);
  }
  run(actions);
  return ticket;
}

void GrpcClient::release(Ticket ticket) {
  PendingActions actions;
  {
    const host::MutexLock lock(mutex_);
    const Instant now = host::boot_now();
    if (client_.is_ticket(ticket)) listeners_[slot_of(ticket)] = nullptr;
    const std::uint64_t said = said_so_far();
    client_.release(ticket, now);
    const bool is_quiet = said == said_so_far() && client_.events().empty();
    if (is_quiet && telling_ != ticket) return;  // into the cache: no notification needed
    actions = look(now);
    if (teller_ != std::this_thread::get_id()) {
      while (telling_ == ticket) told_.wait(lock);
    }
  }
  run(actions);
}

bool GrpcClient::is_held(Ticket ticket) {
  PendingActions actions;
  bool is_held = false;
  {
    const host::MutexLock lock(mutex_);
    const Instant now = host::boot_now();
    client_.tick(now);
    is_held = client_.is_held(ticket);
    actions = look(now);
  }
  run(actions);
  return is_held;
}

template <class Drop>
std::size_t GrpcClient::drop(Drop drop) {
  PendingActions actions;
  std::size_t gone = 0;
  {
    const host::MutexLock lock(mutex_);
    const Instant now = host::boot_now();
    gone = drop(client_, now);
    actions = look(now);
  }
  run(actions);
  return gone;
}

Client::Status GrpcClient::status() const {
  const host::MutexLock lock(mutex_);
  return {.is_connected = client_.is_welcome(),
          .is_refused = is_refused_,
          .trouble = trouble_,
          .held = client_.held(),
          .cached = client_.cached(),
          .lease = client_.lease(),
          .counters = client_.counters()};
}

void GrpcClient::close(Nanoseconds patience) {
  PendingActions actions;
  {
    const host::MutexLock lock(mutex_);
    if (std::exchange(is_leaving_, true)) return;
    actions = look(host::boot_now());
  }
  run(actions);
  {
    const host::MutexLock lock(mutex_);
    const Instant until = host::now() + (client_.is_connected() ? patience : Nanoseconds{0});
    for (Instant now = host::now(); has_stream() && now < until; now = host::now()) {
      changed_.wait_for(lock, until - now);
    }
    if (has_stream()) stream_->context.TryCancel();
    while (has_stream()) changed_.wait(lock);
    is_closed_ = true;
    changed_.notify_all();
  }
  keeper_.join();
}

// ---- the keeper: connects, keeps leases alive, and notices their end ----

v1::Locks::Stub& GrpcClient::stub() {
  std::unique_ptr<v1::Locks::Stub>& one = stubs_[at_];
  if (one == nullptr) one = v1::Locks::NewStub(channel_->open(servers_[at_]));
  return *one;
}

// A keep-alive is sent every quarter of the lease. With other servers, half of the lease is left to
// replay the locks to one of them.
Nanoseconds GrpcClient::silence_max() const {
  const bool has_others = servers_.size() > 1;
  if (!client_.is_welcome()) return has_others ? kWelcomePatienceOfMany : kWelcomePatience;
  return has_others ? client_.lease() / 2 : client_.lease();
}

void GrpcClient::connect(Instant now) {
  mutex_.unlock();
  if (channel_->renew()) {
    for (auto& one : stubs_) one.reset();
  }
  v1::Locks::Stub& stub = this->stub();
  mutex_.lock();
  if (is_leaving_) return;
  server_ = servers_[at_];
  auto made = std::make_unique<Stream>(*this);
  stream_state_ = {};
  stream_state_.heard_at = now;
  client_.connected(now);
  compose(*made, now);
  stream_ = std::move(made);
  Stream& stream = *stream_;
  mutex_.unlock();
  stream.start(stub);
  mutex_.lock();
}

void GrpcClient::forget_stream(Instant now) {
  std::unique_ptr<Stream> gone = std::move(stream_);
  if (stream_state_.was_welcome) failed_ = 0;
  at_ = (at_ + 1) % servers_.size();
  connect_at_ = now;
  if (++failed_ % servers_.size() == 0) {  // all have been tried
    connect_at_ += backoff_;
    backoff_ = std::min(backoff_ * 2, servers_.size() > 1 ? kBackoffMaxOfMany : kBackoffMax);
  }
  mutex_.unlock();
  gone.reset();
  mutex_.lock();
}

void GrpcClient::keep() {
  host::MutexLock lock(mutex_);
  while (!is_closed_) {
    const Instant now = host::boot_now();
    if (stream_ != nullptr && stream_state_.is_done) forget_stream(now);
    if (stream_ == nullptr && !is_leaving_ && now >= connect_at_) connect(now);
    if (pressure_.take()) client_.relieve(now);
    client_.tick(now);
    if (stream_ != nullptr) {
      if (client_.shall_go_away() || now - stream_state_.heard_at > silence_max()) {
        stream_->context.TryCancel();
      }
    }
    keeper_until_ = kNever;  // it is awake, so it need not be woken
    const PendingActions actions = look(now);
    if (actions.writes != nullptr || actions.has_events) {
      lock.unlock();
      run(actions);
      lock.lock();
      continue;
    }
    Instant until = std::min(client_.next_tick(), now + kLookEvery);
    if (stream_ == nullptr && !is_leaving_) until = std::min(until, connect_at_);
    if (stream_ != nullptr && stream_state_.is_done) continue;
    keeper_until_ = std::max(until, now + kOverdue);
    changed_.wait_for(lock, keeper_until_ - now);
    keeper_until_ = kNever;
  }
}

}  // namespace

Result<std::unique_ptr<Client>> Client::create(const ConnectOptions& options) {
  if (auto checked = check(options); !checked) return tl::unexpected(checked.error());
  auto channel = cluster::LockChannel::load(options);
  if (!channel) return tl::unexpected(channel.error());
  return std::make_unique<GrpcClient>(options, *std::move(channel));
}

std::size_t shrink(std::span<Client* const> clients, std::size_t nr) {
  std::vector<std::size_t> counts;
  counts.reserve(clients.size());
  for (Client* const client : clients) counts.push_back(client->shrink(0));
  if (nr > 0) {
    counts = shrink_shares(counts, nr);
    for (std::size_t i = 0; i < clients.size(); ++i) {
      if (counts[i] > 0) counts[i] = clients[i]->shrink(counts[i]);
    }
  }
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace weir::lock
