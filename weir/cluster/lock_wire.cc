// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_wire.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "weir/base/assert.h"
#include "weir/cluster/lock.pb.h"

namespace weir::cluster {
namespace {

namespace wire = lock::v1;
using In = lock::ClientOp::Kind;
using Out = lock::ServerOp::Kind;

// Maximum of a lease, or of the age of a cached lock; longer ones are not valid.
constexpr Nanoseconds kSpanMax = std::chrono::hours{24 * 365};

struct WireMode {
  lock::Mode mode;
  wire::Mode wire;
};
constexpr WireMode kModes[] = {{lock::Mode::kShared, wire::SHARED},
                               {lock::Mode::kExclusive, wire::EXCLUSIVE},
                               {lock::Mode::kNull, wire::NULL_MODE},
                               {lock::Mode::kConcurrentRead, wire::CONCURRENT_READ},
                               {lock::Mode::kConcurrentWrite, wire::CONCURRENT_WRITE},
                               {lock::Mode::kProtectedWrite, wire::PROTECTED_WRITE}};

wire::Mode to_wire(lock::Mode mode) {
  for (const WireMode& each : kModes) {
    if (each.mode == mode) return each.wire;
  }
  return wire::EXCLUSIVE;
}

bool read_mode(wire::Mode from, lock::Mode& to) {
  for (const WireMode& each : kModes) {
    if (each.wire != from) continue;
    to = each.mode;
    return true;
  }
  return false;
}

struct WireRefusal {
  lock::Refusal why;
  wire::ServerOp::Refusal wire;
};
constexpr WireRefusal kRefusals[] = {
    {lock::Refusal::kWouldWait, wire::ServerOp::WOULD_WAIT},
    {lock::Refusal::kBadName, wire::ServerOp::BAD_NAME},
    {lock::Refusal::kTooMany, wire::ServerOp::TOO_MANY},
    {lock::Refusal::kDeadlock, wire::ServerOp::DEADLOCK},
    {lock::Refusal::kUnknown, wire::ServerOp::UNKNOWN},
    {lock::Refusal::kWithdrawn, wire::ServerOp::WITHDRAWN},
};

wire::ServerOp::Refusal to_wire(lock::Refusal why) {
  for (const WireRefusal& each : kRefusals) {
    if (each.why == why) return each.wire;
  }
  WEIR_ASSERT(false, static_cast<int>(why));
  return wire::ServerOp::WOULD_WAIT;
}

bool read_refusal(wire::ServerOp::Refusal from, lock::Refusal& to) {
  for (const WireRefusal& each : kRefusals) {
    if (each.wire != from) continue;
    to = each.why;
    return true;
  }
  return false;
}

bool read_span(std::int64_t from, Nanoseconds& to) {
  to = Nanoseconds{from};
  return from >= 0 && to <= kSpanMax;
}

void add_replay(const lock::ClientOp& op, wire::Replay& replay) {
  replay.set_cookie(op.cookie);
  replay.set_handle(op.handle);
  replay.set_fence(op.fence);
  replay.set_incarnation(op.incarnation);
  replay.set_mode(to_wire(op.mode));
  replay.set_name(op.name);
}

void add_enqueue(const lock::ClientOp& op, wire::Enqueue& enqueue) {
  enqueue.set_cookie(op.cookie);
  enqueue.set_mode(to_wire(op.mode));
  enqueue.set_only_try(op.or_wait == lock::LockTable::OrWait::kTry);
  enqueue.set_name(op.name);
}

void add_convert(const lock::ClientOp& op, wire::Convert& convert) {
  convert.set_cookie(op.cookie);
  convert.set_handle(op.handle);
  convert.set_mode(to_wire(op.mode));
  convert.set_only_try(op.or_wait == lock::LockTable::OrWait::kTry);
}

void add_watch(const lock::ClientOp& op, wire::Watch& watch) {
  watch.set_cookie(op.cookie);
  watch.set_mode(to_wire(op.mode));
  watch.set_name(op.name);
}

lock::ClientOp& add_op(lock::ClientMessage& message, In kind) {
  lock::ClientOp& op = message.ops.emplace_back();
  op.kind = kind;
  return op;
}

void write_secret(const lock::SessionSecret& secret, std::string& to) {
  to.assign(reinterpret_cast<const char*>(secret.data()), secret.size());
}

// An empty secret means none; older peers send it.
bool read_secret(const std::string& from, lock::SessionSecret& to) {
  if (!from.empty() && from.size() != to.size()) return false;
  std::memcpy(to.data(), from.data(), from.size());
  return true;
}

bool read_replays(wire::ClientBatch& batch, lock::ClientMessage& message) {
  for (wire::Replay& replay : *batch.mutable_replays()) {
    lock::ClientOp& op = add_op(message, In::kReplay);
    op.cookie = replay.cookie();
    op.handle = replay.handle();
    op.fence = replay.fence();
    op.incarnation = replay.incarnation();
    op.name.swap(*replay.mutable_name());
    if (!read_mode(replay.mode(), op.mode)) return false;
  }
  return true;
}

bool read_enqueues(wire::ClientBatch& batch, lock::ClientMessage& message) {
  for (wire::Enqueue& enqueue : *batch.mutable_enqueues()) {
    lock::ClientOp& op = add_op(message, In::kEnqueue);
    op.cookie = enqueue.cookie();
    op.or_wait =
        enqueue.only_try() ? lock::LockTable::OrWait::kTry : lock::LockTable::OrWait::kWait;
    op.name.swap(*enqueue.mutable_name());
    if (!read_mode(enqueue.mode(), op.mode)) return false;
  }
  return true;
}

bool read_converts(const wire::ClientBatch& batch, lock::ClientMessage& message) {
  for (const wire::Convert& convert : batch.converts()) {
    lock::ClientOp& op = add_op(message, In::kConvert);
    op.cookie = convert.cookie();
    op.handle = convert.handle();
    op.or_wait =
        convert.only_try() ? lock::LockTable::OrWait::kTry : lock::LockTable::OrWait::kWait;
    if (!read_mode(convert.mode(), op.mode)) return false;
  }
  return true;
}

bool read_watches(wire::ClientBatch& batch, lock::ClientMessage& message) {
  for (wire::Watch& watch : *batch.mutable_watches()) {
    lock::ClientOp& op = add_op(message, In::kWatch);
    op.cookie = watch.cookie();
    op.name.swap(*watch.mutable_name());
    if (!read_mode(watch.mode(), op.mode)) return false;
  }
  return true;
}

void write_reports(const lock::ServerMessage& message, wire::ServerBatch& batch) {
  for (const lock::Cycle& cycle : message.cycles) {
    wire::Cycle& to = *batch.add_cycles();
    to.set_cookie(cycle.cookie);
    for (const lock::Cycle::Step& step : cycle.steps) {
      wire::Cycle::Step& one = *to.add_steps();
      one.set_client(step.client);
      one.set_held(to_wire(step.held));
      one.set_wanted(to_wire(step.wanted));
    }
  }
  for (const lock::Holders& holders : message.holders) {
    wire::Holders& to = *batch.add_holders();
    to.set_cookie(holders.cookie);
    to.set_count(holders.count);
    for (const lock::Holders::Holder& holder : holders.first) {
      wire::Holders::Holder& one = *to.add_first();
      one.set_client(holder.client);
      one.set_mode(to_wire(holder.mode));
      one.set_fence(holder.fence);
    }
  }
}

bool read_reports(const wire::ServerBatch& batch, lock::ServerMessage& message) {
  for (const wire::Cycle& from : batch.cycles()) {
    if (static_cast<std::size_t>(from.steps_size()) > lock::kCycleMax) return false;
    lock::Cycle& cycle = message.cycles.emplace_back();
    cycle.cookie = from.cookie();
    for (const wire::Cycle::Step& one : from.steps()) {
      lock::Cycle::Step& step = cycle.steps.emplace_back();
      step.client = one.client();
      if (!read_mode(one.held(), step.held) || !read_mode(one.wanted(), step.wanted)) return false;
    }
  }
  for (const wire::Holders& from : batch.holders()) {
    if (static_cast<std::size_t>(from.first_size()) > lock::kHoldersMax) return false;
    lock::Holders& holders = message.holders.emplace_back();
    holders.cookie = from.cookie();
    holders.count = from.count();
    for (const wire::Holders::Holder& one : from.first()) {
      lock::Holders::Holder& holder = holders.first.emplace_back();
      holder.client = one.client();
      holder.fence = one.fence();
      if (!read_mode(one.mode(), holder.mode)) return false;
    }
  }
  return true;
}

wire::ServerOp::Kind kind_to_wire(Out kind) {
  switch (kind) {
    case Out::kGranted:
      return wire::ServerOp::GRANTED;
    case Out::kQueued:
      return wire::ServerOp::QUEUED;
    case Out::kRefused:
      return wire::ServerOp::REFUSED;
    case Out::kAsk:
      return wire::ServerOp::ASK;
    case Out::kKept:
      return wire::ServerOp::KEPT;
    case Out::kLost:
      return wire::ServerOp::LOST;
    case Out::kGoAway:
      return wire::ServerOp::GO_AWAY;
    case Out::kConverted:
      return wire::ServerOp::CONVERTED;
    case Out::kNotConverted:
      return wire::ServerOp::NOT_CONVERTED;
    case Out::kFree:
      return wire::ServerOp::FREE;
    case Out::kNotWatched:
      return wire::ServerOp::NOT_WATCHED;
    case Out::kWelcome:
      break;
  }
  WEIR_ASSERT(false, static_cast<int>(kind));
  return wire::ServerOp::NONE;
}

bool read_kind(wire::ServerOp::Kind from, Out& to) {
  switch (from) {
    case wire::ServerOp::GRANTED:
      to = Out::kGranted;
      return true;
    case wire::ServerOp::QUEUED:
      to = Out::kQueued;
      return true;
    case wire::ServerOp::REFUSED:
      to = Out::kRefused;
      return true;
    case wire::ServerOp::ASK:
      to = Out::kAsk;
      return true;
    case wire::ServerOp::KEPT:
      to = Out::kKept;
      return true;
    case wire::ServerOp::LOST:
      to = Out::kLost;
      return true;
    case wire::ServerOp::GO_AWAY:
      to = Out::kGoAway;
      return true;
    case wire::ServerOp::CONVERTED:
      to = Out::kConverted;
      return true;
    case wire::ServerOp::NOT_CONVERTED:
      to = Out::kNotConverted;
      return true;
    case wire::ServerOp::FREE:
      to = Out::kFree;
      return true;
    case wire::ServerOp::NOT_WATCHED:
      to = Out::kNotWatched;
      return true;
    default:
      return false;
  }
}

bool read_op(const wire::ServerOp& from, lock::ServerOp& to) {
  to.cookie = from.cookie();
  to.handle = from.handle();
  to.fence = from.fence();
  return read_kind(from.kind(), to.kind) && read_refusal(from.why(), to.why) &&
         read_mode(from.mode(), to.mode);
}

}  // namespace

void to_wire(const lock::ClientMessage& message, const std::string& job, wire::ClientBatch& batch) {
  batch.Clear();
  batch.set_number(message.number);
  batch.set_volume(message.volume);
  batch.set_factor_percent(message.factor_percent);
  for (const lock::ClientOp& op : message.ops) {
    switch (op.kind) {
      case In::kHello:
        batch.mutable_hello()->set_client(op.client);
        batch.mutable_hello()->set_features(op.features);
        batch.mutable_hello()->set_job(job);
        if (op.client != 0) write_secret(op.secret, *batch.mutable_hello()->mutable_secret());
        break;
      case In::kReplay:
        add_replay(op, *batch.add_replays());
        break;
      case In::kReplayed:
        batch.set_replayed(true);
        break;
      case In::kEnqueue:
        add_enqueue(op, *batch.add_enqueues());
        break;
      case In::kCancel:
        batch.add_cancels(op.handle);
        break;
      case In::kConvert:
        add_convert(op, *batch.add_converts());
        break;
      case In::kWatch:
        add_watch(op, *batch.add_watches());
        break;
      case In::kUnwatch:
        batch.add_unwatches(op.cookie);
        break;
      case In::kGoodbye:
        batch.set_goodbye(true);
        break;
    }
  }
}

std::optional<lock::ClientMessage> from_wire(wire::ClientBatch& batch) {
  const auto count = static_cast<std::size_t>(batch.replays_size()) +
                     static_cast<std::size_t>(batch.cancels_size()) +
                     static_cast<std::size_t>(batch.enqueues_size()) +
                     static_cast<std::size_t>(batch.converts_size()) +
                     static_cast<std::size_t>(batch.watches_size()) +
                     static_cast<std::size_t>(batch.unwatches_size());
  if (count > kOpsMax) return std::nullopt;
  lock::ClientMessage message;
  message.number = batch.number();
  message.volume = batch.volume();
  message.factor_percent = batch.factor_percent();
  message.ops.reserve(count + 3);
  if (batch.has_hello()) {
    lock::ClientOp& op = add_op(message, In::kHello);
    op.client = batch.hello().client();
    op.features = batch.hello().features();
    if (!read_secret(batch.hello().secret(), op.secret)) return std::nullopt;
  }
  if (!read_replays(batch, message)) return std::nullopt;
  if (batch.replayed()) add_op(message, In::kReplayed);
  for (const std::uint64_t handle : batch.cancels()) add_op(message, In::kCancel).handle = handle;
  if (!read_converts(batch, message)) return std::nullopt;
  if (!read_enqueues(batch, message)) return std::nullopt;
  if (!read_watches(batch, message)) return std::nullopt;
  for (const std::uint64_t cookie : batch.unwatches()) {
    add_op(message, In::kUnwatch).cookie = cookie;
  }
  if (batch.goodbye()) add_op(message, In::kGoodbye);
  return message;
}

std::string job_in(const wire::ClientBatch& batch) { return batch.hello().job(); }

void to_wire(const lock::ServerMessage& message, wire::ServerBatch& batch) {
  batch.Clear();
  batch.set_confirms(message.confirms);
  batch.set_volume(message.volume);
  batch.set_limit(message.limit);
  batch.set_recovering(message.is_recovering);
  batch.set_lru_size(message.lru_size);
  batch.set_lru_max_age_ns(message.lru_max_age.count());
  for (const lock::ServerOp& op : message.ops) {
    if (op.kind == Out::kWelcome) {
      wire::Welcome& welcome = *batch.mutable_welcome();
      welcome.set_client(op.client);
      welcome.set_features(op.features);
      welcome.set_incarnation(op.incarnation);
      welcome.set_lease_ns(op.lease.count());
      write_secret(op.secret, *welcome.mutable_secret());
      continue;
    }
    wire::ServerOp& to = *batch.add_ops();
    to.set_kind(kind_to_wire(op.kind));
    to.set_cookie(op.cookie);
    to.set_handle(op.handle);
    to.set_fence(op.fence);
    to.set_why(to_wire(op.why));
    if (op.kind == Out::kConverted) to.set_mode(to_wire(op.mode));
  }
  write_reports(message, batch);
}

std::optional<lock::ServerMessage> from_wire(const wire::ServerBatch& batch) {
  lock::ServerMessage message;
  message.confirms = batch.confirms();
  message.volume = batch.volume();
  message.limit = batch.limit();
  message.is_recovering = batch.recovering();
  message.lru_size = batch.lru_size();
  if (message.limit < 0 || message.limit > lock::kLimitMax) return std::nullopt;
  if (message.volume > lock::volume_max(lock::kLimitMax)) return std::nullopt;
  if (!read_span(batch.lru_max_age_ns(), message.lru_max_age)) return std::nullopt;
  message.ops.reserve(static_cast<std::size_t>(batch.ops_size()) + 1);
  if (batch.has_welcome()) {
    lock::ServerOp& op = message.ops.emplace_back();
    op.client = batch.welcome().client();
    op.features = batch.welcome().features();
    op.incarnation = batch.welcome().incarnation();
    if (!read_span(batch.welcome().lease_ns(), op.lease)) return std::nullopt;
    if (!read_secret(batch.welcome().secret(), op.secret)) return std::nullopt;
  }
  for (const wire::ServerOp& op : batch.ops()) {
    if (!read_op(op, message.ops.emplace_back())) return std::nullopt;
  }
  if (!read_reports(batch, message)) return std::nullopt;
  return message;
}

void to_wire(const lock::LockList& list, wire::ListReply& reply) {
  using State = lock::LockTable::State;
  using WireState = wire::ListReply::Lock;
  for (const lock::LockView& lock : list.locks) {
    WireState& to = *reply.add_locks();
    to.set_name(lock.name);
    to.set_mode(to_wire(lock.mode));
    to.set_state(lock.state == State::kGranted   ? WireState::GRANTED
                 : lock.state == State::kWaiting ? WireState::WAITING
                                                 : WireState::PARKED);
    to.set_client(lock.client);
    to.set_peer(lock.peer);
    to.set_fence(lock.fence);
    to.set_asked(lock.is_asked);
    to.set_converting(lock.wanted != lock.mode);
    to.set_wanted(to_wire(lock.wanted));
  }
  reply.set_next(list.next);
}

lock::LockList from_wire(const wire::ListReply& reply) {
  using State = lock::LockTable::State;
  lock::LockList list;
  list.locks.reserve(static_cast<std::size_t>(reply.locks_size()));
  for (const auto& from : reply.locks()) {
    lock::LockView& to = list.locks.emplace_back();
    to.name = from.name();
    read_mode(from.mode(), to.mode);
    to.state = from.state() == wire::ListReply::Lock::GRANTED   ? State::kGranted
               : from.state() == wire::ListReply::Lock::WAITING ? State::kWaiting
                                                                : State::kParked;
    to.client = from.client();
    to.peer = from.peer();
    to.fence = from.fence();
    to.is_asked = from.asked();
    to.wanted = to.mode;
    if (from.converting()) read_mode(from.wanted(), to.wanted);
  }
  list.next = reply.next();
  return list;
}

void to_wire(const lock::LockStats& stats, wire::StatsReply& reply) {
  const lock::NamespaceView& view = stats.view;
  reply.set_name(view.name);
  reply.set_preset(std::string(lock::preset_name(view.preset)));
  reply.set_incarnation(stats.incarnation);
  reply.set_recovering(view.is_recovering);
  reply.set_lease_ns(stats.lease.count());
  reply.set_limit(view.limit);
  reply.set_granted(view.granted);
  reply.set_volume(view.server_lock_volume);
  reply.set_grant_rate(view.grant_rate);
  reply.set_cancel_rate(view.cancel_rate);
  reply.set_grant_speed(view.grant_speed);
  reply.set_resources(view.resources);
  reply.set_waiting(view.waiting);
  reply.set_parked(view.parked);
  reply.set_gated(stats.gated);
  reply.set_clients(view.clients());
  reply.set_grants(view.grants);
  reply.set_cancels(view.cancels);
  reply.set_evictions(view.counters.evictions);
  reply.set_unknown_cancels(view.counters.unknown_cancels);
  reply.set_bad_names(view.counters.bad_names);
  reply.set_too_many(view.counters.too_many);
  reply.set_broken_rules(view.counters.broken_rules);
  reply.set_lost_replays(view.counters.lost_replays);
  reply.set_wrong_secrets(view.counters.wrong_secrets);
  reply.set_conversions(view.counters.conversions);
  reply.set_deadlocks(view.counters.deadlocks);
  reply.set_converting(view.converting);
  reply.set_watches(view.watches);
  reply.set_revoked(view.counters.revoked);
  reply.set_role(static_cast<wire::Role>(view.role));
  reply.set_active(view.active);
}

lock::LockStats from_wire(const wire::StatsReply& reply) {
  lock::LockStats stats;
  lock::NamespaceView& view = stats.view;
  view.name = reply.name();
  view.preset = lock::preset_by(reply.preset()).value_or(lock::Preset::kWeir);
  stats.incarnation = reply.incarnation();
  view.is_recovering = reply.recovering();
  stats.lease = Nanoseconds{reply.lease_ns()};
  view.limit = reply.limit();
  view.granted = reply.granted();
  view.server_lock_volume = reply.volume();
  view.grant_rate = reply.grant_rate();
  view.cancel_rate = reply.cancel_rate();
  view.grant_speed = reply.grant_speed();
  view.resources = reply.resources();
  view.waiting = reply.waiting();
  view.parked = reply.parked();
  view.converting = reply.converting();
  view.watches = reply.watches();
  stats.gated = reply.gated();
  view.role = reply.role() == wire::ACTIVE    ? lock::Role::kActive
              : reply.role() == wire::STANDBY ? lock::Role::kStandby
                                              : lock::Role::kAlone;
  view.active = reply.active();
  view.others.clients = reply.clients();
  view.grants = reply.grants();
  view.cancels = reply.cancels();
  view.counters = {.evictions = reply.evictions(),
                   .unknown_cancels = reply.unknown_cancels(),
                   .bad_names = reply.bad_names(),
                   .too_many = reply.too_many(),
                   .broken_rules = reply.broken_rules(),
                   .lost_replays = reply.lost_replays(),
                   .conversions = reply.conversions(),
                   .deadlocks = reply.deadlocks(),
                   .revoked = reply.revoked(),
                   .wrong_secrets = reply.wrong_secrets()};
  return stats;
}

}  // namespace weir::cluster
