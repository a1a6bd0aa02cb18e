// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lock_failover.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weir/base/rng.h"
#include "weir/lock/client.h"
#include "weir/lock/server.h"
#include "weir/lock/term.h"
#include "weir/sim/checkers.h"
#include "weir/sim/lock_check.h"

namespace weir::sim {
namespace {

using lock::Candidate;
using lock::LockClient;
using lock::LockServer;
using std::chrono::milliseconds;

constexpr Nanoseconds kStoreTimeout = milliseconds{500};
constexpr Nanoseconds kNotice = milliseconds{500};  // the store ends leases at most so late
constexpr Nanoseconds kBackoffMin = milliseconds{50};
constexpr Nanoseconds kBackoffMax = milliseconds{200};
constexpr std::int64_t kPpmMax = 30'000;  // of the speed of a clock

// A machine: its clock, and whether it stands still.
struct Machine {
  std::int64_t ppm = 0;
  Nanoseconds offset{0};
  Instant still_until{};

  Instant local(Instant at) const {
    const Nanoseconds passed = at.time_since_epoch();
    return Instant{} + offset + passed + passed / 1'000'000 * ppm;
  }
  // The first time at which its clock shows this.
  Instant global(Instant shown) const {
    if (shown == kNever) return kNever;
    const Nanoseconds passed = shown.time_since_epoch() - offset;
    return Instant{} + passed - passed / (1'000'000 + ppm) * ppm + milliseconds{1};
  }
};

struct Server : Machine {
  Candidate candidate;
  std::unique_ptr<LockServer> locks;
  std::vector<std::function<void()>> held_back;
  std::uint64_t disk = 1;  // the last term it has stored
  std::uint64_t life = 0;  // counts crashes
  Instant wake_at = kNever;
  bool is_up = true;
  bool is_asking = false;
};

struct Client : Machine {
  explicit Client(const Rng& chance) : lock(lock::ClientOptions{}), rng(chance) {}

  LockClient lock;
  Rng rng;
  std::uint32_t server = 0;      // the one it is connected with, or tries next
  std::uint64_t connection = 0;  // 0: none
  std::uint32_t failed = 0;
  Nanoseconds backoff = kBackoffMin;
  Instant heard_at{};  // by its clock
  std::map<LockClient::Ticket, std::uint32_t> using_locks;
};

// The store that all servers share; every question is answered at one moment.
struct Store {
  lock::TermRecord record;
  std::map<std::int64_t, Instant> leases;  // id, end
  std::int64_t ids = 0;
  std::int64_t revision = 0;
};

struct Answer {
  bool is_yes = false;
  std::int64_t lease = 0;
  lock::TermRecord record{};
};

class FailoverWorld {
 public:
  FailoverWorld(const FailoverScenario& scenario, std::uint64_t seed);
  FailoverOutcome run();

 private:
  // Machines as the network sees them: servers, then clients, then the store.
  std::uint32_t client_node(std::uint32_t index) const { return scenario_.servers + index; }
  std::uint32_t store_node() const { return scenario_.servers + scenario_.clients; }
  bool is_cut(std::uint32_t a, std::uint32_t b) const;
  Nanoseconds between(Nanoseconds least, Nanoseconds most);
  void after(Nanoseconds delay, std::function<void()> act) { at(now_ + delay, std::move(act)); }
  void at(Instant when, std::function<void()> act);
  void on_server(std::uint32_t index, Nanoseconds delay, std::function<void()> act);
  void on_client(std::uint32_t index, Nanoseconds delay, std::function<void()> act);

  // ---- the store ----
  void ask(std::uint32_t index, Candidate::Ask ask);
  Answer answer(std::uint32_t index, Candidate::Ask ask, std::int64_t lease, std::uint64_t term,
                std::int64_t term_modified);
  void take_answer(std::uint32_t index, Candidate::Ask ask, const std::optional<Answer>& answer,
                   Instant asked, std::uint64_t term);
  void end_lease(std::int64_t lease);
  void notify();

  // ---- servers ----
  bool is_proven(const Server& server) const;
  void pump_server(std::uint32_t index);
  void become(std::uint32_t index);
  void flush(std::uint32_t index);
  void crash(std::uint32_t index);
  void restart(std::uint32_t index);
  void stop_in_order(std::uint32_t index);
  std::optional<std::uint32_t> active() const;

  // ---- clients ----
  void connect(std::uint32_t index);
  void disconnect(std::uint32_t index);
  void pump_client(std::uint32_t index);
  void tick_client(std::uint32_t index);
  void check_client(std::uint32_t index);
  void send(std::uint32_t from, std::uint32_t to, std::uint64_t connection,
            std::function<void()> deliver);
  void use(std::uint32_t index);
  void begin(std::uint32_t index, LockClient::Ticket ticket, std::uint64_t fence);
  void end(std::uint32_t index, LockClient::Ticket ticket);
  void stand_still(std::uint32_t index, Nanoseconds time);

  void fault();
  void next_fault();

  const FailoverScenario& scenario_;
  Rng rng_;
  Instant now_{};
  struct Event {
    Instant at;
    std::uint64_t sequence;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return std::pair(at, sequence) > std::pair(other.at, other.sequence);
    }
  };
  std::priority_queue<Event> events_;
  std::uint64_t sequence_ = 0;
  std::uint64_t connections_ = 0;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::uint64_t, std::uint32_t> client_of_;                          // by connection
  std::map<std::pair<std::uint64_t, std::uint32_t>, Instant> last_delivery_;  // by sender
  std::set<std::uint64_t> dead_;  // connections that lost a message
  Store store_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Instant> cuts_;  // until
  Instant gap_from_ = kNever;
  Findings findings_;
  HolderCheck holders_;
  FailoverOutcome outcome_;
};

FailoverWorld::FailoverWorld(const FailoverScenario& scenario, std::uint64_t seed)
    : scenario_(scenario), rng_(Rng(seed).split("failover")), holders_(scenario.locks, findings_) {
  const auto set_clock = [&](Machine& machine) {
    machine.ppm = static_cast<std::int64_t>(rng_.below(2 * kPpmMax + 1)) - kPpmMax;
    machine.offset = between(Nanoseconds{0}, std::chrono::hours{1});
  };
  for (std::uint32_t i = 0; i < scenario.servers; ++i) {
    servers_.push_back(std::make_unique<Server>());
    set_clock(*servers_.back());
  }
  for (std::uint32_t i = 0; i < scenario.clients; ++i) {
    clients_.push_back(std::make_unique<Client>(rng_.split(fmt::format("client{}", i))));
    set_clock(*clients_.back());
  }
}

void FailoverWorld::at(Instant when, std::function<void()> act) {
  events_.push({std::max(when, now_), sequence_++, std::move(act)});
}

Nanoseconds FailoverWorld::between(Nanoseconds least, Nanoseconds most) {
  return least + Nanoseconds{static_cast<std::int64_t>(
                     rng_.below(static_cast<std::uint64_t>((most - least).count()) + 1))};
}

bool FailoverWorld::is_cut(std::uint32_t a, std::uint32_t b) const {
  const auto found = cuts_.find(std::minmax(a, b));
  return found != cuts_.end() && now_ < found->second;
}

// Runs on the server, unless it crashes before; later if it stands still.
void FailoverWorld::on_server(std::uint32_t index, Nanoseconds delay, std::function<void()> act) {
  after(delay, [this, index, life = servers_[index]->life, act = std::move(act)] {
    const Server& server = *servers_[index];
    if (!server.is_up || server.life != life) return;
    if (now_ < server.still_until) return on_server(index, server.still_until - now_, act);
    act();
  });
}

void FailoverWorld::on_client(std::uint32_t index, Nanoseconds delay, std::function<void()> act) {
  after(delay, [this, index, act = std::move(act)] {
    const Client& client = *clients_[index];
    if (now_ < client.still_until) return on_client(index, client.still_until - now_, act);
    act();
  });
}

// ---- the store ----

void FailoverWorld::ask(std::uint32_t index, Candidate::Ask ask) {
  Server& server = *servers_[index];
  server.is_asking = true;
  const Instant asked = server.local(now_);
  const std::uint64_t term = server.candidate.campaign_term(server.disk);
  const std::int64_t lease = server.candidate.lease();
  const std::int64_t modified = server.candidate.record().term_modified;
  const auto answered = std::make_shared<bool>(false);
  const auto finish = [this, index, ask, asked, term,
                       answered](const std::optional<Answer>& answer) {
    if (std::exchange(*answered, true)) return;
    take_answer(index, ask, answer, asked, term);
    pump_server(index);
  };
  on_server(index, kStoreTimeout, [finish] { finish(std::nullopt); });
  after(between(milliseconds{1}, milliseconds{20}), [=, this] {
    if (is_cut(index, store_node())) return;
    const Answer given = answer(index, ask, lease, term, modified);
    if (is_cut(index, store_node())) return;
    on_server(index, between(milliseconds{1}, milliseconds{20}),
              [finish, given] { finish(given); });
  });
}

Answer FailoverWorld::answer(std::uint32_t index, Candidate::Ask ask, std::int64_t lease,
                             std::uint64_t term, std::int64_t term_modified) {
  const auto renew = [this](std::int64_t id) {
    const Instant end = now_ + Candidate::kLength;
    store_.leases[id] = end;
    at(end + between(Nanoseconds{0}, kNotice), [this, id] {
      const auto found = store_.leases.find(id);
      if (found != store_.leases.end() && found->second <= now_) end_lease(id);
    });
  };
  switch (ask) {
    case Candidate::Ask::kLook:
      return {.is_yes = true, .record = store_.record};
    case Candidate::Ask::kGrant:
      renew(++store_.ids);
      return {.is_yes = true, .lease = store_.ids};
    case Candidate::Ask::kRenew:
      if (!store_.leases.contains(lease)) return {};
      renew(lease);
      return {.is_yes = true};
    case Candidate::Ask::kCampaign: {
      lock::TermRecord& record = store_.record;
      const bool may =
          !record.active && record.term_modified == term_modified && store_.leases.contains(lease);
      if (!may) return {};
      record.term = term;
      record.term_modified = ++store_.revision;
      record.active = {
          .term = term, .name = fmt::format("s{}", index), .address = {}, .lease = lease};
      notify();
      return {.is_yes = true};
    }
    case Candidate::Ask::kNothing:
      break;
  }
  return {};
}

void FailoverWorld::take_answer(std::uint32_t index, Candidate::Ask ask,
                                const std::optional<Answer>& answer, Instant asked,
                                std::uint64_t term) {
  Server& server = *servers_[index];
  server.is_asking = false;
  Candidate& candidate = server.candidate;
  const Instant now = server.local(now_);
  if (!answer) return candidate.failed(now);
  switch (ask) {
    case Candidate::Ask::kLook:
      server.disk = std::max(server.disk, answer->record.term);
      return candidate.looked(answer->record, now);
    case Candidate::Ask::kGrant:
      return candidate.granted(answer->lease, Candidate::kLength, asked);
    case Candidate::Ask::kRenew:
      return answer->is_yes ? candidate.renewed(Candidate::kLength, asked)
                            : candidate.lease_is_gone();
    case Candidate::Ask::kCampaign:
      return candidate.campaigned(answer->is_yes, term);
    case Candidate::Ask::kNothing:
      return;
  }
}

void FailoverWorld::end_lease(std::int64_t lease) {
  store_.leases.erase(lease);
  if (!store_.record.active || store_.record.active->lease != lease) return;
  store_.record.active.reset();
  notify();
}

void FailoverWorld::notify() {
  for (std::uint32_t i = 0; i < servers_.size(); ++i) {
    if (is_cut(i, store_node())) continue;
    on_server(i, between(milliseconds{1}, milliseconds{20}), [this, i] {
      servers_[i]->candidate.changed();
      pump_server(i);
    });
  }
}

// ---- servers ----

bool FailoverWorld::is_proven(const Server& server) const {
  return scenario_.acts_unproven || server.local(now_) < server.candidate.proven_until();
}

std::optional<std::uint32_t> FailoverWorld::active() const {
  for (std::uint32_t i = 0; i < servers_.size(); ++i) {
    const Server& server = *servers_[i];
    if (server.is_up && server.locks != nullptr && is_proven(server)) return i;
  }
  return std::nullopt;
}

void FailoverWorld::become(std::uint32_t index) {
  Server& server = *servers_[index];
  const Candidate& candidate = server.candidate;
  if (candidate.leads() == (server.locks != nullptr)) return;
  if (!candidate.leads()) {
    const auto& seen = candidate.record().active;
    if (scenario_.acts_unproven && seen && seen->term == server.locks->incarnation()) return;
    for (const auto& [connection, client] : client_of_) {
      if (clients_[client]->server != index) continue;
      send(index, client_node(client), connection, [this, client = client] { disconnect(client); });
    }
    server.held_back.clear();
    server.locks.reset();
    return;
  }
  server.disk = candidate.term();
  outcome_.terms = std::max(outcome_.terms, candidate.term());
  lock::Succession next =
      lock::succession_of(candidate.before(), candidate.term(), lock::OwnState::kClean,
                          scenario_.lease, candidate.length());
  lock::ServerOptions options;
  options.pool.limit = 1000;
  options.lease = lock::client_lease(scenario_.lease);
  options.grace = next.grace;
  if (scenario_.has_no_grace) next.start = LockServer::Start::kFresh;
  server.locks = std::make_unique<LockServer>(options, next.term, next.start, server.local(now_));
  if (!next.clients.empty() && !scenario_.has_no_grace) server.locks->await(next.clients);
}

void FailoverWorld::pump_server(std::uint32_t index) {
  Server& server = *servers_[index];
  const Instant now = server.local(now_);
  if (!server.is_asking) {
    const Candidate::Ask question = server.candidate.next(now);
    become(index);
    if (question != Candidate::Ask::kNothing) ask(index, question);
  } else {
    become(index);
  }
  if (server.locks == nullptr) server.held_back.clear();
  Instant wake = server.is_asking ? kNever : server.candidate.wakes_at();
  if (server.locks != nullptr && is_proven(server)) {
    for (const auto& message : std::exchange(server.held_back, {})) message();
    if (server.locks->next_tick() <= now) server.locks->tick(now);
    flush(index);
    wake = std::min(wake, server.locks->next_tick());
  }
  const Instant when = std::max(server.global(wake), now_ + milliseconds{1});
  if (when >= server.wake_at) return;
  server.wake_at = when;
  on_server(index, when - now_, [this, index, when] {
    if (servers_[index]->wake_at != when) return;  // there was an earlier one
    servers_[index]->wake_at = kNever;
    pump_server(index);
  });
}

void FailoverWorld::flush(std::uint32_t index) {
  LockServer& locks = *servers_[index]->locks;
  for (const LockServer::Connection connection : std::exchange(locks.dirty(), {})) {
    const auto message = std::make_shared<lock::ServerMessage>(locks.take(connection));
    const auto found = client_of_.find(connection);
    if (found == client_of_.end()) continue;
    const std::uint32_t client = found->second;
    send(index, client_node(client), connection, [this, client, message] {
      Client& one = *clients_[client];
      one.heard_at = one.local(now_);
      one.backoff = kBackoffMin;
      one.failed = 0;
      one.lock.receive(*message, one.local(now_));
      if (one.lock.shall_go_away()) disconnect(client);
      pump_client(client);
    });
  }
}

void FailoverWorld::crash(std::uint32_t index) {
  Server& server = *servers_[index];
  if (!server.is_up) return;
  if (server.locks != nullptr) gap_from_ = now_;
  server.is_up = false;
  ++server.life;
  server.locks.reset();
  server.held_back.clear();
  server.candidate = {};
  server.is_asking = false;
  server.wake_at = kNever;
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i]->connection == 0 || clients_[i]->server != index) continue;
    send(index, client_node(i), clients_[i]->connection, [this, i] { disconnect(i); });
  }
  if (rng_.below(3) == 0) server.disk = 1;  // an empty disk
  after(between(milliseconds{300}, std::chrono::seconds{8}), [this, index] { restart(index); });
}

void FailoverWorld::restart(std::uint32_t index) {
  Server& server = *servers_[index];
  server.is_up = true;
  server.still_until = now_;
  ++server.disk;
  pump_server(index);
}

// As LockService does: it acts no more, then one transaction, then its lease ends.
void FailoverWorld::stop_in_order(std::uint32_t index) {
  Server& server = *servers_[index];
  if (!server.is_up || server.locks == nullptr || now_ < server.still_until) return;
  const lock::Handover left = lock::handover_of(*server.locks);
  const std::int64_t lease = server.candidate.lease();
  crash(index);
  after(between(milliseconds{1}, milliseconds{40}), [this, index, left, lease] {
    if (is_cut(index, store_node())) return;
    const auto& record = store_.record;
    if (!record.active || record.active->lease != lease) return;
    store_.record.left = left;
    end_lease(lease);
  });
}

// ---- clients ----

// In order and complete up to the first loss, as a stream has it.
void FailoverWorld::send(std::uint32_t from, std::uint32_t to, std::uint64_t connection,
                         std::function<void()> deliver) {
  Nanoseconds delay = between(milliseconds{1}, milliseconds{5});
  if (scenario_.fault_every > Nanoseconds{0} && rng_.below(400) == 0) {
    delay = between(milliseconds{100}, std::chrono::seconds{4});
  }
  Instant& last = last_delivery_[{connection, from}];
  last = std::max(last, now_ + delay);
  const bool is_up = to < scenario_.servers;
  const auto act = [this, from, to, connection, deliver = std::move(deliver)] {
    if (is_cut(from, to)) dead_.insert(connection);
    if (dead_.contains(connection)) return;
    const std::uint32_t client = std::max(from, to) - scenario_.servers;
    if (clients_[client]->connection == connection) deliver();
  };
  is_up ? on_server(to, last - now_, act) : on_client(to - scenario_.servers, last - now_, act);
}

void FailoverWorld::connect(std::uint32_t index) {
  Client& client = *clients_[index];
  if (client.connection != 0) return;
  const std::uint64_t connection = ++connections_;
  client.connection = connection;
  client_of_[connection] = index;
  client.heard_at = client.local(now_);
  client.lock.connected(client.heard_at);
  const std::uint32_t server = client.server;
  send(client_node(index), server, connection, [this, index, server, connection] {
    Server& one = *servers_[server];
    if (one.locks != nullptr) return one.locks->connect(connection, one.local(now_));
    send(server, client_node(index), connection, [this, index] { disconnect(index); });
  });
  if (!servers_[server]->is_up) {
    after(milliseconds{2}, [this, index, connection] {
      if (clients_[index]->connection == connection) disconnect(index);
    });
  }
  pump_client(index);
}

void FailoverWorld::disconnect(std::uint32_t index) {
  Client& client = *clients_[index];
  if (client.connection == 0) return;
  const std::uint64_t connection = std::exchange(client.connection, 0);
  client_of_.erase(connection);
  on_server(client.server, milliseconds{2}, [this, server = client.server, connection] {
    if (servers_[server]->locks != nullptr) servers_[server]->locks->disconnect(connection);
  });
  client.lock.disconnected();
  client.server = (client.server + 1) % scenario_.servers;
  Nanoseconds wait{0};
  if (++client.failed % scenario_.servers == 0) {
    wait = client.backoff;
    client.backoff = std::min(client.backoff * 2, kBackoffMax);
  }
  on_client(index, wait + milliseconds{1}, [this, index] { connect(index); });
}

void FailoverWorld::pump_client(std::uint32_t index) {
  Client& client = *clients_[index];
  const Instant now = client.local(now_);
  for (std::size_t i = 0; i < client.lock.events().size(); ++i) {
    const LockClient::Event event = client.lock.events()[i];
    if (event.kind == LockClient::Event::Kind::kHeld) {
      begin(index, event.ticket, event.fence);
    } else {
      if (event.kind == LockClient::Event::Kind::kLost) ++outcome_.lost;
      end(index, event.ticket);
    }
  }
  client.lock.events().clear();
  while (client.connection != 0 && client.lock.has_message(now)) {
    const auto message = std::make_shared<lock::ClientMessage>(client.lock.take(now));
    const std::uint64_t connection = client.connection;
    const std::uint32_t to = client.server;
    send(client_node(index), to, connection, [this, to, connection, message] {
      const auto receive = [this, to, connection, message] {
        Server& server = *servers_[to];
        if (server.locks == nullptr) return;
        server.locks->receive(connection, *message, server.local(now_));
      };
      servers_[to]->held_back.push_back(receive);
      pump_server(to);
    });
  }
}

void FailoverWorld::tick_client(std::uint32_t index) {
  check_client(index);
  after(milliseconds{50}, [this, index] { tick_client(index); });
}

void FailoverWorld::check_client(std::uint32_t index) {
  Client& client = *clients_[index];
  if (now_ < client.still_until) return;
  const Instant now = client.local(now_);
  client.lock.tick(now);
  const Nanoseconds silence =
      client.lock.is_welcome() ? client.lock.lease() / 2 : Nanoseconds{std::chrono::seconds{2}};
  if (client.connection != 0 && now - client.heard_at > silence) disconnect(index);
  pump_client(index);
}

void FailoverWorld::use(std::uint32_t index) {
  Client& client = *clients_[index];
  after(between(milliseconds{50}, milliseconds{900}), [this, index] { use(index); });
  if (now_ < client.still_until || client.using_locks.size() >= 2) return;
  const auto which = static_cast<std::uint32_t>(client.rng.below(scenario_.locks));
  const auto taken = client.lock.acquire(fmt::format("common/{}", which), lock::Mode::kExclusive,
                                         lock::LockTable::OrWait::kWait, client.local(now_));
  client.using_locks[taken.ticket] = which;
  if (taken.is_held) begin(index, taken.ticket, taken.fence);
  pump_client(index);
}

void FailoverWorld::begin(std::uint32_t index, LockClient::Ticket ticket, std::uint64_t fence) {
  const Client& client = *clients_[index];
  holders_.begin(client.using_locks.at(ticket), index, fence, now_);
  ++outcome_.uses;
  const bool is_next_term = fence >> lock::kFenceCountBits >= outcome_.terms;
  if (gap_from_ != kNever && is_next_term && active()) {
    outcome_.gaps.push_back(now_ - std::exchange(gap_from_, kNever));
  }
  on_client(index, between(milliseconds{20}, scenario_.hold), [this, index, ticket] {
    end(index, ticket);
    pump_client(index);
  });
}

void FailoverWorld::end(std::uint32_t index, LockClient::Ticket ticket) {
  Client& client = *clients_[index];
  const auto found = client.using_locks.find(ticket);
  if (found == client.using_locks.end()) return;
  holders_.end(found->second, index);
  client.using_locks.erase(found);
  client.lock.tick(client.local(now_));
  client.lock.release(ticket, client.local(now_));
}

// While it stands still it does nothing, and it checks its lease before it continues: at the end of
// its lease it is no holder.
void FailoverWorld::stand_still(std::uint32_t index, Nanoseconds time) {
  Client& client = *clients_[index];
  client.still_until = now_ + time;
  at(client.still_until, [this, index] { check_client(index); });  // before any message
  const Instant end_of_lease = client.global(client.lock.lease_end());
  for (const auto& [ticket, which] : client.using_locks) {
    if (!client.lock.is_held(ticket) || end_of_lease > client.still_until) continue;
    at(end_of_lease - milliseconds{1}, [this, index, which = which] {
      if (now_ < clients_[index]->still_until) holders_.end(which, index);
    });
  }
}

// ---- faults ----

void FailoverWorld::next_fault() {
  if (scenario_.fault_every == Nanoseconds{0}) return;
  after(between(Nanoseconds{0}, 2 * scenario_.fault_every), [this] {
    fault();
    next_fault();
  });
}

void FailoverWorld::fault() {
  ++outcome_.faults;
  const auto any_server = static_cast<std::uint32_t>(rng_.below(scenario_.servers));
  const std::uint32_t server = rng_.below(3) == 0 ? any_server : active().value_or(any_server);
  const auto client = static_cast<std::uint32_t>(rng_.below(scenario_.clients));
  const Nanoseconds time = between(milliseconds{100}, std::chrono::seconds{20});
  const auto cut = [&](std::uint32_t a, std::uint32_t b) {
    if (a != b) cuts_[std::minmax(a, b)] = now_ + time;
  };
  switch (rng_.below(8)) {
    case 0:
      return crash(server);
    case 1:
      servers_[server]->still_until = now_ + time;
      return;
    case 2:
      return stand_still(client, time);
    case 3:
      return cut(server, store_node());
    case 4:
      return cut(server, client_node(client));
    case 5:
      for (std::uint32_t i = 0; i < scenario_.servers; ++i) cut(i, store_node());
      return;
    case 6:  // a new leader of the store renews all leases
      for (auto& [id, end] : store_.leases) {
        end = now_ + Candidate::kLength;
        at(end + kNotice, [this, id = id] {
          const auto found = store_.leases.find(id);
          if (found != store_.leases.end() && found->second <= now_) end_lease(id);
        });
      }
      return;
    default:
      return stop_in_order(server);
  }
}

FailoverOutcome FailoverWorld::run() {
  for (std::uint32_t i = 0; i < servers_.size(); ++i) {
    after(between(Nanoseconds{0}, milliseconds{100}), [this, i] { pump_server(i); });
  }
  for (std::uint32_t i = 0; i < clients_.size(); ++i) {
    connect(i);
    tick_client(i);
    use(i);
  }
  for (const Nanoseconds when : scenario_.crashes) {
    at(Instant{} + when, [this] {
      if (const auto one = active()) crash(*one);
    });
  }
  for (const Nanoseconds when : scenario_.stops) {
    at(Instant{} + when, [this] {
      if (const auto one = active()) stop_in_order(*one);
    });
  }
  next_fault();
  const Instant over = Instant{} + scenario_.length;
  while (!events_.empty() && events_.top().at <= over) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.act();
  }
  outcome_.findings = findings_.count();
  outcome_.first_findings = findings_.kept();
  return std::move(outcome_);
}

}  // namespace

FailoverOutcome run_failover(const FailoverScenario& scenario, std::uint64_t seed) {
  return FailoverWorld(scenario, seed).run();
}

}  // namespace weir::sim
