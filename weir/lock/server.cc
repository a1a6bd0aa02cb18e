// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/server.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir::lock {
namespace {

using Kind = ClientOp::Kind;

// Client numbers increase across restarts like fences, so that none is used twice.
constexpr unsigned kClientCountBits = 32;

ServerOp about(ServerOp::Kind kind, std::uint64_t cookie, std::uint64_t handle = 0,
               std::uint64_t fence = 0) {
  ServerOp op;
  op.kind = kind;
  op.cookie = cookie;
  op.handle = handle;
  op.fence = fence;
  return op;
}

ServerOp answer_of(const LockTable::Event& event) {
  using EventKind = LockTable::Event::Kind;
  switch (event.kind) {
    case EventKind::kAsked:
      return about(ServerOp::Kind::kAsk, event.cookie);
    case EventKind::kFree:
      return about(ServerOp::Kind::kFree, event.cookie);
    case EventKind::kGranted:
      return about(ServerOp::Kind::kGranted, event.cookie, event.handle, event.fence);
    case EventKind::kConverted:
      break;
  }
  ServerOp op = about(ServerOp::Kind::kConverted, event.cookie, event.handle, event.fence);
  op.mode = event.mode;
  return op;
}

}  // namespace

Result<void> check(const ServerOptions& options) {
  if (auto checked = check(options.pool); !checked) return checked;
  if (options.lease < std::chrono::seconds{1} || options.lease > std::chrono::hours{1}) {
    return fail(std::errc::invalid_argument, "lease", "is out of range", "expected 1s to 1h");
  }
  if (options.grace < options.lease + options.lease / 4) {
    return fail(std::errc::invalid_argument, "grace", "must exceed the lease by at least a quarter",
                "otherwise a restarted server could grant locks that clients still hold");
  }
  return {};
}

LockServer::LockServer(const ServerOptions& options, std::uint64_t incarnation, Start start,
                       Instant now, SecretOf secret_of)
    : options_(options),
      incarnation_(incarnation),
      secret_of_(std::move(secret_of)),
      table_(incarnation),
      pool_(options.pool, now),
      is_recovering_(start == Start::kRecovering),
      grace_ends_(now + options.grace) {
  if (is_recovering_) pool_.begin_recovery();
  table_.set_room(room());
}

LockServer::~LockServer() { by_hearing_.clear(); }

std::size_t LockServer::room() const {
  return is_recovering_ ? 0 : static_cast<std::size_t>(pool_.room());
}

// ---- connections ----

void LockServer::connect(Connection connection, Instant, std::string_view principal) {
  WEIR_ASSERT(connection != 0);
  links_.try_emplace(connection).first->second.principal = principal;
}

void LockServer::disconnect(Connection connection) {
  const auto found = links_.find(connection);
  if (found == links_.end()) return;
  if (found->second.session != nullptr) found->second.session->connection = 0;
  links_.erase(found);
}

void LockServer::mark(Connection connection, Link& link) {
  if (std::exchange(link.is_dirty, true)) return;
  dirty_.push_back(connection);
}

ServerMessage LockServer::take(Connection connection) {
  ServerMessage message;
  const auto found = links_.find(connection);
  if (found == links_.end()) return message;
  Link& link = found->second;
  link.is_dirty = false;
  message.confirms = link.number;
  message.ops = std::exchange(link.ops, {});
  message.cycles = std::exchange(link.cycles, {});
  message.holders = std::exchange(link.holders, {});
  message.is_recovering = is_recovering_;
  if (link.session != nullptr && (link.session->features & kFeatureVolume) != 0) {
    message.volume = pool_.volume();
    message.limit = pool_.limit();
    message.lru_size = lru_size_;
    message.lru_max_age = lru_max_age_;
  }
  return message;
}

bool LockServer::receive(Connection connection, const ClientMessage& message, Instant now) {
  const auto found = links_.find(connection);
  if (found == links_.end() || found->second.is_broken) return false;
  Link& link = found->second;
  bool is_fine = message.number == link.number + 1;
  if (is_fine) link.number = message.number;
  mark(connection, link);
  for (const ClientOp& op : message.ops) {
    if (!is_fine) break;
    is_fine = apply(connection, link, op, now);
  }
  const bool is_over = is_fine && !message.ops.empty() && message.ops.back().kind == Kind::kGoodbye;
  if (link.session == nullptr && !is_over) is_fine = false;
  if (is_over) {
    link.is_broken = true;
    link.ops.push_back(about(ServerOp::Kind::kGoAway, 0));
  } else if (is_fine) {
    link.session->volume = message.volume;
    link.session->factor_percent = message.factor_percent;
    heard(*link.session, now);
  } else {
    ++counters_.broken_rules;
    link.is_broken = true;
    link.ops.push_back(about(ServerOp::Kind::kGoAway, 0));
  }
  settle_events();
  return is_fine;
}

// ---- operations ----

LockServer::Link* LockServer::open_link(Connection connection) {
  const auto found = links_.find(connection);
  if (found == links_.end() || found->second.is_broken) return nullptr;
  const Session* const session = found->second.session;
  return session == nullptr || session->is_replaying ? nullptr : &found->second;
}

void LockServer::perform(Connection connection, const ClientOp& op) {
  Link* const link = open_link(connection);
  if (link == nullptr) return;
  if (op.kind == Kind::kEnqueue || op.kind == Kind::kConvert) {
    op.kind == Kind::kEnqueue ? enqueue(*link, op) : convert(*link, op);
    mark(connection, *link);
  } else {
    WEIR_ASSERT(op.kind == Kind::kCancel);
    cancel(*link->session, op.handle);
  }
}

bool LockServer::is_return(Connection connection, const ClientOp& op) const {
  if (op.kind == Kind::kCancel) return true;
  if (op.kind != Kind::kConvert) return false;
  const auto found = links_.find(connection);
  return found != links_.end() && found->second.session != nullptr &&
         table_.is_downward(found->second.session->locks, op.handle, op.mode);
}

void LockServer::refuse(Connection connection, const ClientOp& op, Refusal why) {
  Link* const link = open_link(connection);
  if (link == nullptr) return;
  const bool is_conversion = op.kind == Kind::kConvert;
  ServerOp answer =
      about(is_conversion ? ServerOp::Kind::kNotConverted : ServerOp::Kind::kRefused, op.cookie);
  answer.why = why;
  link->ops.push_back(answer);
  if (why == Refusal::kTooMany) ++counters_.too_many;
  mark(connection, *link);
}

bool LockServer::apply(Connection connection, Link& link, const ClientOp& op, Instant now) {
  if (op.kind == Kind::kHello) return hello(connection, link, op, now);
  if (link.session == nullptr) return false;
  Session& session = *link.session;
  switch (op.kind) {
    case Kind::kReplay:
      if (!session.is_replaying) return false;
      replay(link, op);
      return true;
    case Kind::kReplayed: {
      if (!std::exchange(session.is_replaying, false)) return false;
      for (std::size_t held = table_.drop_unkept(session.locks); held > 0; --held) pool_.del();
      session.waiting = 0;
      session.watches = 0;
      reported(session.client, now);
      return true;
    }
    case Kind::kEnqueue:
      if (session.is_replaying) return false;
      enqueue(link, op);
      return true;
    case Kind::kCancel:
      cancel(session, op.handle);
      return true;
    case Kind::kConvert:
      if (session.is_replaying) return false;
      convert(link, op);
      return true;
    case Kind::kWatch:
      if (session.is_replaying) return false;
      watch(link, op);
      return true;
    case Kind::kUnwatch:
      if (table_.unwatch(session.locks, op.cookie)) --session.watches;
      return true;
    case Kind::kGoodbye:
      link.session = nullptr;
      session.connection = 0;
      end(session, now);
      return true;
    case Kind::kHello:
      break;
  }
  return false;
}

// nullptr: there are too many.
LockServer::Session* LockServer::open_session(std::uint64_t client, Instant now) {
  if (sessions_.size() >= options_.sessions_max) {
    ++counters_.too_many;
    return nullptr;
  }
  auto session = std::make_unique<Session>();
  session->client = client;
  session->is_from_before = client >> kClientCountBits < incarnation_;
  session->locks = table_.open();
  session->heard_at = now;
  by_hearing_.push_back(*session);
  if (by_slot_.size() <= session->locks) by_slot_.resize(session->locks + 1);
  by_slot_[session->locks] = session.get();
  return sessions_.emplace(client, std::move(session)).first->second.get();
}

// Ends the connection of a session, which stays.
void LockServer::part(Session& session) {
  const auto found = links_.find(std::exchange(session.connection, 0));
  if (found == links_.end()) return;
  found->second.session = nullptr;
  found->second.is_broken = true;
  found->second.ops.push_back(about(ServerOp::Kind::kGoAway, 0));
  mark(found->first, found->second);
}

bool LockServer::hello(Connection connection, Link& link, const ClientOp& op, Instant now) {
  if (link.session != nullptr) return false;
  std::uint64_t client = op.client;
  // A number that was never issued belongs to no client.
  const bool is_known = client != 0 &&
                        client <= (incarnation_ << kClientCountBits | clients_ever_) &&
                        is_same(op.secret, secret_of_(client, link.principal));
  if (!is_known) {
    if (client != 0) ++counters_.wrong_secrets;
    client = incarnation_ << kClientCountBits | ++clients_ever_;
  }
  const auto found = sessions_.find(client);
  Session* const opened =
      found != sessions_.end() ? found->second.get() : open_session(client, now);
  if (opened == nullptr) return false;
  Session& session = *opened;
  part(session);  // it has left its old connection, even if that is still open
  session.connection = connection;
  session.features = op.features & options_.features;
  session.is_replaying = true;
  link.session = &session;
  ServerOp welcome;
  welcome.kind = ServerOp::Kind::kWelcome;
  welcome.client = client;
  welcome.secret = secret_of_(client, link.principal);
  welcome.features = session.features;
  welcome.incarnation = incarnation_;
  welcome.lease = options_.lease;
  link.ops.push_back(welcome);
  return true;
}

// For a handle of this server the handle is enough. A lock of an earlier server is accepted during
// the grace period, if the client is one of that server's and not younger than the lock. Later, or
// from an evicted client, it is rejected: others may have had the lock since.
void LockServer::replay(Link& link, const ClientOp& op) {
  Session& session = *link.session;
  if (op.incarnation == incarnation_) {
    if (table_.keep(session.locks, op.handle, op.mode)) {
      link.ops.push_back(about(ServerOp::Kind::kKept, op.cookie, op.handle));
      if (table_.is_asked(op.handle)) link.ops.push_back(about(ServerOp::Kind::kAsk, op.cookie));
      return;
    }
  } else if (is_recovering_ && session.is_from_before && LockTable::is_name(op.name) &&
             op.fence >> kFenceCountBits < incarnation_ &&
             op.fence >> kFenceCountBits >= session.client >> kClientCountBits) {
    const LockTable::Handle handle =
        table_.replay(session.locks, op.cookie, op.name, op.mode, op.fence);
    if (handle != 0) {
      pool_.add();
      table_.keep(session.locks, handle, op.mode);
      link.ops.push_back(about(ServerOp::Kind::kKept, op.cookie, handle));
      return;
    }
  }
  ++counters_.lost_replays;
  link.ops.push_back(about(ServerOp::Kind::kLost, op.cookie));
}

void LockServer::enqueue(Link& link, const ClientOp& op) {
  Session& session = *link.session;
  ServerOp answer = about(ServerOp::Kind::kRefused, op.cookie);
  if (!LockTable::is_name(op.name)) {
    ++counters_.bad_names;
    answer.why = Refusal::kBadName;
  } else if (session.waiting >= options_.waiting_max) {
    ++counters_.too_many;
    answer.why = Refusal::kTooMany;
  } else {
    const auto entered = table_.enqueue(session.locks, op.cookie, op.name, op.mode, op.or_wait);
    if (entered.state == LockTable::State::kGranted) {
      count_grant(&session);
      answer = about(ServerOp::Kind::kGranted, op.cookie, entered.handle, entered.fence);
    } else if (entered.handle != 0) {
      ++session.waiting;
      answer = about(ServerOp::Kind::kQueued, op.cookie, entered.handle);
    }
  }
  link.ops.push_back(answer);
  settle_events();
}

void LockServer::cancel(Session& session, std::uint64_t handle) {
  switch (table_.cancel(session.locks, handle)) {
    case LockTable::State::kFree:
      ++counters_.unknown_cancels;
      break;
    case LockTable::State::kGranted:
      pool_.del();
      break;
    case LockTable::State::kParked:
    case LockTable::State::kWaiting:
      --session.waiting;
      break;
  }
  settle_events();
}

void LockServer::convert(Link& link, const ClientOp& op) {
  using Outcome = LockTable::Converted::Outcome;
  Session& session = *link.session;
  ServerOp answer = about(ServerOp::Kind::kNotConverted, op.cookie, op.handle);
  const bool has_place = session.waiting < options_.waiting_max;
  const auto or_wait = has_place ? op.or_wait : LockTable::OrWait::kTry;
  const auto done = table_.convert(session.locks, op.handle, op.mode, or_wait);
  if (done.has_withdrawn_one) {
    --session.waiting;
    ServerOp withdrawn = answer;
    withdrawn.why = Refusal::kWithdrawn;
    link.ops.push_back(withdrawn);
  }
  switch (done.outcome) {
    case Outcome::kDone:
      ++counters_.conversions;
      answer = about(ServerOp::Kind::kConverted, op.cookie, op.handle, done.fence);
      answer.mode = op.mode;
      break;
    case Outcome::kWaits:
      ++session.waiting;
      settle_events();
      return;
    case Outcome::kWouldWait:
      answer.why = has_place ? Refusal::kWouldWait : Refusal::kTooMany;
      if (!has_place) ++counters_.too_many;
      break;
    case Outcome::kDeadlock: {
      ++counters_.deadlocks;
      answer.why = Refusal::kDeadlock;
      Cycle cycle{.cookie = op.cookie, .steps = {}};
      for (const LockTable::Step& step : done.cycle) {
        if (cycle.steps.size() == kCycleMax) break;
        cycle.steps.push_back({client_of(step.session), step.held, step.wanted});
      }
      link.cycles.push_back(std::move(cycle));
      break;
    }
    case Outcome::kUnknown:
      answer.why = Refusal::kUnknown;
      break;
  }
  link.ops.push_back(answer);
  settle_events();
}

void LockServer::watch(Link& link, const ClientOp& op) {
  Session& session = *link.session;
  ServerOp answer = about(ServerOp::Kind::kNotWatched, op.cookie);
  if (!LockTable::is_name(op.name)) {
    ++counters_.bad_names;
    answer.why = Refusal::kBadName;
  } else if (session.watches >= options_.waiting_max) {
    ++counters_.too_many;
    answer.why = Refusal::kTooMany;
  } else if (table_.watch(session.locks, op.cookie, op.name, op.mode)) {
    answer = about(ServerOp::Kind::kFree, op.cookie);
  } else {
    ++session.watches;
    Holders& holders = link.holders.emplace_back();
    holders.cookie = op.cookie;
    holders.count = table_.visit_holders(op.name, kHoldersMax, [&](const auto& seen) {
      holders.first.push_back({client_of(seen.session), seen.mode, seen.fence});
    });
    return;
  }
  link.ops.push_back(answer);
}

void LockServer::count_grant(Session* session) {
  pool_.add();
  if (session != nullptr && std::exchange(session->period, period_) != period_) ++active_;
}

// Sends the events of locks to holders and waiters. Events without a receiver still count.
void LockServer::settle_events() {
  using EventKind = LockTable::Event::Kind;
  for (const LockTable::Event& event : table_.events()) {
    Session* const session = by_slot_[event.session];
    const bool is_grant = event.kind == EventKind::kGranted;
    if (is_grant) count_grant(session);
    if (event.kind == EventKind::kConverted) ++counters_.conversions;
    if (session == nullptr) continue;
    if (is_grant || event.kind == EventKind::kConverted) {
      if (session->waiting > 0) --session->waiting;
    } else if (event.kind == EventKind::kFree && session->watches > 0) {
      --session->watches;
    }
    if (session->connection == 0) continue;
    // Locks and watches not named in the replay are dropped at its end, so they need no event.
    if (event.kind != EventKind::kAsked && session->is_replaying) continue;
    Link& link = links_.find(session->connection)->second;
    link.ops.push_back(answer_of(event));
    mark(session->connection, link);
  }
  table_.events().clear();
}

// ---- leases ----

void LockServer::heard(Session& session, Instant now) {
  session.heard_at = now;
  by_hearing_.splice(by_hearing_.end(), by_hearing_, by_hearing_.iterator_to(session));
}

Instant LockServer::evict_at(const Session& session) const {
  return session.heard_at + options_.lease + options_.lease / 8;
}

void LockServer::evict(Session& session, Instant now) {
  ++counters_.evictions;
  end(session, now);
}

void LockServer::await(const std::vector<std::uint64_t>& clients) {
  WEIR_ASSERT(is_recovering_ && !clients.empty() && sessions_.empty());
  awaited_.insert(clients.begin(), clients.end());
}

void LockServer::reported(std::uint64_t client, Instant now) {
  if (awaited_.erase(client) > 0 && awaited_.empty()) grace_ends_ = std::min(grace_ends_, now);
}

// Releases all locks of the session.
void LockServer::end(Session& session, Instant now) {
  reported(session.client, now);
  for (std::size_t held = table_.close(session.locks); held > 0; --held) pool_.del();
  by_slot_[session.locks] = nullptr;
  part(session);
  settle_events();
  by_hearing_.erase(by_hearing_.iterator_to(session));
  sessions_.erase(session.client);
}

void LockServer::tick(Instant now) {
  while (!by_hearing_.empty() && evict_at(by_hearing_.front()) <= now) {
    evict(by_hearing_.front(), now);
  }
  if (is_recovering_ && now >= grace_ends_) {
    is_recovering_ = false;
    pool_.end_recovery(now);
  }
  if (pool_.recalc(now, active_)) {
    ++period_;
    active_ = 0;
  }
  table_.set_room(room());
  settle_events();
}

// ---- the administrator ----

Result<void> LockServer::set_limit(std::int64_t limit) {
  if (auto set = pool_.set_limit(limit); !set) return set;
  table_.set_room(room());
  settle_events();
  return {};
}

std::size_t LockServer::revoke(std::string_view name, std::uint64_t client) {
  std::vector<Session*> holders;
  const std::size_t count = table_.revoke(name, [&](LockTable::Session slot) {
    Session* const session = by_slot_[slot];
    if (session == nullptr || (client != 0 && session->client != client)) return false;
    holders.push_back(session);
    return true;
  });
  for (Session* const session : holders) part(*session);
  counters_.revoked += count;
  return count;
}

void LockServer::advise(std::uint32_t lru_size, Nanoseconds lru_max_age) {
  lru_size_ = lru_size;
  lru_max_age_ = lru_max_age;
}

// ---- looking ----

LockServer::Seen LockServer::seen(const Session& session) const {
  const std::size_t locks = table_.locks_of(session.locks);
  return {.client = session.client,
          .connection = session.connection,
          .features = session.features,
          .heard_at = session.heard_at,
          .locks = locks - std::min(locks, session.waiting),
          .waiting = session.waiting,
          .volume = session.volume,
          .factor_percent = session.factor_percent};
}

std::uint64_t LockServer::client_of(LockTable::Session session) const {
  const Session* const found = session < by_slot_.size() ? by_slot_[session] : nullptr;
  return found == nullptr ? 0 : found->client;
}

Instant LockServer::next_tick() const {
  Instant next = is_recovering_ ? grace_ends_ : pool_.next_recalc();
  if (!by_hearing_.empty()) next = std::min(next, evict_at(by_hearing_.front()));
  return next;
}

}  // namespace weir::lock
