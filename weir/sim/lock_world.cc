// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lock_world.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <queue>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/rng.h"
#include "weir/lock/client.h"
#include "weir/lock/server.h"
#include "weir/sim/checkers.h"
#include "weir/sim/lock_check.h"

namespace weir::sim {
namespace {

using lock::LockClient;
using lock::LockServer;
using lock::LockTable;
using lock::Mode;

constexpr Nanoseconds kSecond = std::chrono::seconds{1};
constexpr std::string_view kAppetites[] = {"equal", "zipf", "glutton", "pareto"};

// Rates of the clients, largest first, that sum to 1.
std::vector<double> appetite_rates(Appetite appetite, std::uint32_t clients) {
  constexpr double kParetoShape = 1.5;
  constexpr double kGluttonShare = 0.5;
  std::vector<double> rates(clients, 1);
  for (std::uint32_t i = 0; i < clients; ++i) {
    if (appetite == Appetite::kZipf) rates[i] = 1.0 / (i + 1);
    if (appetite == Appetite::kPareto) {
      rates[i] = std::pow((i + 0.5) / clients, -1 / kParetoShape);
    }
    if (appetite == Appetite::kGlutton && i == 0 && clients > 1) {
      rates[i] = (clients - 1) * kGluttonShare / (1 - kGluttonShare);
    }
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  for (double& rate : rates) rate /= sum;
  return rates;
}

struct Client {
  Client(const lock::ClientOptions& options, const Rng& chance) : lock(options), rng(chance) {}

  LockClient lock;
  Rng rng;
  double use_gap_ns = 0;  // 0: never
  double common_gap_ns = 0;
  std::uint64_t fresh = 0;
  LockServer::Connection connection = 0;
  Instant tick_at = kNever;
  bool is_cut = false;  // messages are lost without notice
  double held_sum = 0;
  absl::flat_hash_map<LockClient::Ticket, std::uint32_t> common;  // uses of common locks
};

struct Event {
  enum class Kind : std::uint8_t {
    kUse,
    kCommonUse,
    kRelease,
    kClientTick,
    kToServer,
    kToClient,
    kServerTick,
    kSample,
    kCrash,
    kRestart,
    kReconnect,
    kCut,
    kDropAll
  };
  Instant at;
  std::uint64_t sequence;
  Kind kind;
  std::uint32_t index = 0;    // of the client
  std::uint64_t number = 0;   // a ticket, a connection
  std::uint32_t message = 0;  // a slot

  bool operator<(const Event& other) const {  // the queue returns the largest first
    return std::pair(at, sequence) > std::pair(other.at, other.sequence);
  }
};

class LockWorld {
 public:
  LockWorld(const LockScenario& scenario, Appetite appetite, const LockContender& contender,
            std::uint64_t seed);
  LockOutcome run();

 private:
  using Kind = Event::Kind;

  void push(Nanoseconds after, Kind kind, std::uint32_t index = 0, std::uint64_t number = 0,
            std::uint32_t message = 0);
  void handle(const Event& event);
  void start_server(LockServer::Start start);
  Nanoseconds gap(Client& client, double mean_ns);
  void use(std::uint32_t index);
  void use_common(std::uint32_t index);
  void begin(std::uint32_t index, LockClient::Ticket ticket, std::uint64_t fence);
  void end(std::uint32_t index, LockClient::Ticket ticket);
  void connect(std::uint32_t index);
  void crash();
  void sample();
  void pump_client(std::uint32_t index);
  void pump_server();
  void to_server(const Event& event);
  void to_client(const Event& event);
  void figures();

  template <class Message>
  static std::uint32_t keep(std::vector<Message>& all, std::vector<std::uint32_t>& free,
                            Message message) {
    if (free.empty()) {
      all.push_back(std::move(message));
      return static_cast<std::uint32_t>(all.size() - 1);
    }
    const std::uint32_t slot = free.back();
    free.pop_back();
    all[slot] = std::move(message);
    return slot;
  }

  const LockScenario& scenario_;
  lock::ServerOptions server_options_;
  Rng rng_;
  Instant now_{};
  std::priority_queue<Event> events_;
  std::uint64_t sequence_ = 0;
  std::uint64_t connections_ = 0;
  std::uint64_t incarnation_ = 0;
  std::unique_ptr<LockServer> server_;
  Instant server_tick_ = kNever;
  std::vector<std::unique_ptr<Client>> clients_;
  absl::flat_hash_map<LockServer::Connection, std::uint32_t> client_of_;
  std::vector<lock::ClientMessage> up_;
  std::vector<std::uint32_t> up_free_;
  std::vector<lock::ServerMessage> down_;
  std::vector<std::uint32_t> down_free_;
  Findings findings_;
  HolderCheck holders_;
  LockOutcome outcome_;
};

LockWorld::LockWorld(const LockScenario& scenario, Appetite appetite,
                     const LockContender& contender, std::uint64_t seed)
    : scenario_(scenario),
      rng_(Rng(seed).split("locks")),
      holders_(scenario.common_locks, findings_) {
  outcome_.contender = contender;
  outcome_.appetite = appetite;
  outcome_.limit = scenario.limit;
  server_options_.pool.preset = contender.preset;
  server_options_.pool.limit = scenario.limit;
  if (contender.is_frozen) server_options_.pool.period = std::chrono::hours{1};
  server_options_.lease = scenario.lease;
  server_options_.grace = scenario.grace;
  const std::vector<double> shares = appetite_rates(appetite, scenario.clients);
  clients_.reserve(scenario.clients);
  for (std::uint32_t i = 0; i < scenario.clients; ++i) {
    lock::ClientOptions options;
    options.lru.fixed_size = contender.fixed_size;
    if (i < scenario.hoarders) options.lru.factor_percent = 0;
    clients_.push_back(std::make_unique<Client>(options, rng_.split(fmt::format("client{}", i))));
    Client& client = *clients_.back();
    const double rate = shares[i] * static_cast<double>(scenario.rate);
    outcome_.rates.push_back(rate);
    if (rate > 0) client.use_gap_ns = 1e9 / rate;
    if (scenario.common_rate > 0 && scenario.common_locks > 0) {
      client.common_gap_ns = 1e9 * scenario.clients / static_cast<double>(scenario.common_rate);
    }
  }
}

void LockWorld::push(Nanoseconds after, Kind kind, std::uint32_t index, std::uint64_t number,
                     std::uint32_t message) {
  events_.push({now_ + after, sequence_++, kind, index, number, message});
}

void LockWorld::start_server(LockServer::Start start) {
  server_ = std::make_unique<LockServer>(server_options_, ++incarnation_, start, now_);
  server_tick_ = kNever;
  pump_server();
}

// ---- applications ----

Nanoseconds LockWorld::gap(Client& client, double mean_ns) {
  constexpr double kParts = 9007199254740992.0;  // 2^53
  const double drawn = (static_cast<double>(client.rng.next() >> 11) + 1) / kParts;
  return Nanoseconds{std::llround(-std::log(drawn) * mean_ns)};
}

void LockWorld::use(std::uint32_t index) {
  Client& client = *clients_[index];
  const Nanoseconds next = gap(client, client.use_gap_ns);
  if ((now_ + next).time_since_epoch() < scenario_.until) push(next, Kind::kUse, index);
  const std::uint64_t number =
      scenario_.working_set == 0 ? client.fresh++ : client.rng.below(scenario_.working_set);
  char name[48];
  const auto end = fmt::format_to_n(name, sizeof name, "client{}/file{}", index, number);
  const auto taken =
      client.lock.acquire({name, end.size}, Mode::kShared, LockTable::OrWait::kWait, now_);
  ++outcome_.uses;
  if (taken.is_held) client.lock.release(taken.ticket, now_);
  pump_client(index);
}

void LockWorld::use_common(std::uint32_t index) {
  Client& client = *clients_[index];
  const Nanoseconds next = gap(client, client.common_gap_ns);
  if ((now_ + next).time_since_epoch() < scenario_.until) push(next, Kind::kCommonUse, index);
  const auto which = static_cast<std::uint32_t>(client.rng.below(scenario_.common_locks));
  const auto taken = client.lock.acquire(fmt::format("common/{}", which), Mode::kExclusive,
                                         LockTable::OrWait::kWait, now_);
  client.common[taken.ticket] = which;
  if (taken.is_held) begin(index, taken.ticket, taken.fence);
  pump_client(index);
}

void LockWorld::begin(std::uint32_t index, LockClient::Ticket ticket, std::uint64_t fence) {
  const std::uint32_t which = clients_[index]->common.at(ticket);
  holders_.begin(which, index, fence, now_);
  ++outcome_.common_uses;
  push(scenario_.hold, Kind::kRelease, index, ticket);
}

// Released, or lost before that.
void LockWorld::end(std::uint32_t index, LockClient::Ticket ticket) {
  Client& client = *clients_[index];
  const auto found = client.common.find(ticket);
  if (found == client.common.end()) return;
  holders_.end(found->second, index);
  client.common.erase(found);
  client.lock.release(ticket, now_);
}

// ---- the network ----

void LockWorld::pump_client(std::uint32_t index) {
  Client& client = *clients_[index];
  for (std::size_t i = 0; i < client.lock.events().size(); ++i) {
    const LockClient::Event event = client.lock.events()[i];
    const bool is_common = client.common.contains(event.ticket);
    if (event.kind == LockClient::Event::Kind::kHeld && is_common) {
      begin(index, event.ticket, event.fence);
    } else if (is_common) {
      end(index, event.ticket);
    } else {
      client.lock.release(event.ticket, now_);
    }
  }
  client.lock.events().clear();
  while (client.lock.has_message(now_)) {
    lock::ClientMessage message = client.lock.take(now_);
    push(scenario_.delay, Kind::kToServer, index, client.connection,
         keep(up_, up_free_, std::move(message)));
  }
  const Instant next = client.lock.next_tick();
  if (next < client.tick_at) {
    client.tick_at = next;
    push(std::max(next - now_, Nanoseconds{1}), Kind::kClientTick, index);
  }
}

void LockWorld::pump_server() {
  outcome_.granted_most = std::max(outcome_.granted_most, server_->pool().granted());
  for (const LockServer::Connection connection : server_->dirty()) {
    lock::ServerMessage message = server_->take(connection);
    const auto found = client_of_.find(connection);
    if (found == client_of_.end()) continue;
    push(scenario_.delay, Kind::kToClient, found->second, connection,
         keep(down_, down_free_, std::move(message)));
  }
  server_->dirty().clear();
  const Instant next = server_->next_tick();
  if (next < server_tick_) {
    server_tick_ = next;
    push(std::max(next - now_, Nanoseconds{1}), Kind::kServerTick, 0, incarnation_);
  }
}

void LockWorld::to_server(const Event& event) {
  const lock::ClientMessage message = std::move(up_[event.message]);
  up_free_.push_back(event.message);
  Client& client = *clients_[event.index];
  if (!server_ || client.is_cut || event.number != client.connection) return;
  server_->receive(event.number, message, now_);
  pump_server();
}

void LockWorld::to_client(const Event& event) {
  const lock::ServerMessage message = std::move(down_[event.message]);
  down_free_.push_back(event.message);
  Client& client = *clients_[event.index];
  if (client.is_cut || event.number != client.connection) return;
  client.lock.receive(message, now_);
  if (client.lock.shall_go_away()) {
    client_of_.erase(client.connection);
    if (server_) server_->disconnect(client.connection);
    client.connection = 0;
    client.lock.disconnected();
    push(kSecond, Kind::kReconnect, event.index);
  }
  pump_client(event.index);
}

void LockWorld::connect(std::uint32_t index) {
  Client& client = *clients_[index];
  if (!server_) {
    push(kSecond, Kind::kReconnect, index);
    return;
  }
  client.connection = ++connections_;
  client_of_[client.connection] = index;
  server_->connect(client.connection, now_);
  client.lock.connected(now_);
  pump_client(index);
}

void LockWorld::crash() {
  outcome_.evictions += server_->counters().evictions;
  server_.reset();
  client_of_.clear();
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    client.connection = 0;
    client.lock.disconnected();
    const auto wait = static_cast<std::int64_t>(
        client.rng.below(static_cast<std::uint64_t>(scenario_.reconnect.count()) + 1));
    push(scenario_.down + Nanoseconds{wait}, Kind::kReconnect, i);
  }
  push(scenario_.down, Kind::kRestart);
}

// ---- the run ----

void LockWorld::sample() {
  push(kSecond, Kind::kSample);
  LockSample sample;
  if (server_) {
    const lock::ServerPool& pool = server_->pool();
    sample = {pool.granted(), pool.volume(), pool.grant_rate(), pool.cancel_rate()};
  }
  outcome_.samples.push_back(sample);
  if (now_.time_since_epoch() <= scenario_.settled) return;
  for (const auto& client : clients_) client->held_sum += static_cast<double>(client->lock.held());
}

void LockWorld::handle(const Event& event) {
  switch (event.kind) {
    case Kind::kUse:
      return use(event.index);
    case Kind::kCommonUse:
      return use_common(event.index);
    case Kind::kRelease:
      end(event.index, event.number);
      return pump_client(event.index);
    case Kind::kClientTick: {
      Client& client = *clients_[event.index];
      if (client.tick_at > now_)
        return;  // an earlier one was scheduled since and has been processed
      client.tick_at = kNever;
      client.lock.tick(now_);
      return pump_client(event.index);
    }
    case Kind::kToServer:
      return to_server(event);
    case Kind::kToClient:
      return to_client(event);
    case Kind::kServerTick:
      if (!server_ || event.number != incarnation_ || server_tick_ > now_) return;
      server_tick_ = kNever;
      server_->tick(now_);
      return pump_server();
    case Kind::kSample:
      return sample();
    case Kind::kCrash:
      return crash();
    case Kind::kRestart:
      return start_server(LockServer::Start::kRecovering);
    case Kind::kReconnect:
      return connect(event.index);
    case Kind::kCut:
      clients_[event.index]->is_cut = true;
      return;
    case Kind::kDropAll: {
      Client& client = *clients_[event.index];
      client.lock.shrink(client.lock.cached(), now_);
      return pump_client(event.index);
    }
  }
}

LockOutcome LockWorld::run() {
  start_server(LockServer::Start::kFresh);
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    Client& client = *clients_[i];
    connect(i);
    if (client.use_gap_ns > 0) push(gap(client, client.use_gap_ns), Kind::kUse, i);
    if (client.common_gap_ns > 0) push(gap(client, client.common_gap_ns), Kind::kCommonUse, i);
    for (const Nanoseconds at : scenario_.drop_all) push(at, Kind::kDropAll, i);
    if (i >= clients_.size() - scenario_.vanish) push(scenario_.vanish_at, Kind::kCut, i);
  }
  for (const Nanoseconds at : scenario_.crashes) push(at, Kind::kCrash);
  push(kSecond, Kind::kSample);
  const Instant end = Instant{} + scenario_.length;
  while (!events_.empty() && events_.top().at <= end) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    handle(event);
  }
  figures();
  return std::move(outcome_);
}

void LockWorld::figures() {
  const auto from = static_cast<std::size_t>(scenario_.settled / kSecond);
  std::int64_t sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = from; i < outcome_.samples.size(); ++i) {
    const std::int64_t granted = outcome_.samples[i].granted;
    outcome_.settled_least = count == 0 ? granted : std::min(outcome_.settled_least, granted);
    outcome_.settled_most = std::max(outcome_.settled_most, granted);
    sum += granted;
    ++count;
  }
  if (count > 0) outcome_.settled_mean = static_cast<double>(sum) / static_cast<double>(count);
  double all_held = 0;
  double all_roots = 0;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = *clients_[i];
    const LockClient::Counters& counters = client.lock.counters();
    outcome_.hits += counters.hits;
    outcome_.messages += counters.messages;
    outcome_.enqueues += counters.enqueues;
    outcome_.cancels += counters.cancels;
    outcome_.cancels_for_volume += counters.cancels_for_volume;
    outcome_.lost += counters.lost;
    outcome_.held.push_back(count > 0 ? client.held_sum / static_cast<double>(count) : 0);
    if (i < scenario_.hoarders) continue;
    all_held += outcome_.held.back();
    all_roots += std::sqrt(outcome_.rates[i]);
  }
  if (server_) outcome_.evictions += server_->counters().evictions;
  for (std::size_t i = scenario_.hoarders; i < clients_.size() && all_held > 0; ++i) {
    const double fair = all_held * std::sqrt(outcome_.rates[i]) / all_roots;
    const double error = std::abs(outcome_.held[i] / fair - 1);
    outcome_.proportion_error = std::max(outcome_.proportion_error, error);
    outcome_.proportion_error_mean +=
        error / static_cast<double>(clients_.size() - scenario_.hoarders);
  }
  outcome_.findings = findings_.count();
  outcome_.first_findings = findings_.kept();
}

}  // namespace

std::string_view appetite_name(Appetite appetite) {
  return kAppetites[static_cast<std::size_t>(appetite)];
}

std::optional<Appetite> appetite_by(std::string_view name) {
  const auto* const found = std::find(std::begin(kAppetites), std::end(kAppetites), name);
  if (found == std::end(kAppetites)) return std::nullopt;
  return static_cast<Appetite>(found - std::begin(kAppetites));
}

std::string LockContender::name() const {
  if (fixed_size > 0) return fmt::format("lru-{}", fixed_size);
  return is_frozen ? "frozen" : std::string(lock::preset_name(preset));
}

std::optional<LockContender> lock_contender_by(std::string_view name) {
  if (name == "frozen") return LockContender{.is_frozen = true};
  if (const auto preset = lock::preset_by(name)) return LockContender{.preset = *preset};
  constexpr std::string_view kFixed = "lru-";
  if (!name.starts_with(kFixed)) return std::nullopt;
  LockContender contender{.preset = lock::Preset::kLustre};
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kFixed.size(), end, contender.fixed_size);
  if (read.ec != std::errc() || read.ptr != end || contender.fixed_size == 0) return std::nullopt;
  return contender;
}

Result<void> check(const LockScenario& scenario) {
  const auto wrong = [](std::string_view where, std::string_view what) {
    return fail(std::errc::invalid_argument, where, what);
  };
  lock::PoolOptions pool;
  pool.limit = scenario.limit;
  if (auto checked = lock::check(pool); !checked) return checked;
  if (scenario.clients == 0) return wrong("clients", "must be at least 1");
  if (scenario.appetites.empty()) return wrong("appetites", "must be at least 1");
  if (scenario.hoarders > scenario.clients) return wrong("hoarders", "exceed clients");
  if (scenario.vanish > scenario.clients) return wrong("vanish", "exceeds clients");
  if (scenario.length <= Nanoseconds{0}) return wrong("length", "must be above 0");
  return {};
}

LockOutcome run_locks(const LockScenario& scenario, Appetite appetite,
                      const LockContender& contender, std::uint64_t seed) {
  return LockWorld(scenario, appetite, contender, seed).run();
}

}  // namespace weir::sim
