// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/client.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "weir/base/assert.h"

namespace weir::lock {
namespace {

using OpKind = ClientOp::Kind;

ClientOp op_of(OpKind kind) {
  ClientOp op;
  op.kind = kind;
  return op;
}

}  // namespace

LockClient::LockClient(const ClientOptions& options) : options_(options), lru_(options.lru) {}

// ---- entries and tickets ----

std::uint64_t LockClient::hash_of(std::string_view name) { return LockTable::hash_of(name); }

std::uint32_t LockClient::entry_of(std::string_view name) {
  const std::uint64_t hash = hash_of(name);
  const std::uint32_t found =
      names_.find(hash, [&](std::uint32_t index) { return entries_[index].name == name; });
  if (found != kNone) return found;
  const std::uint32_t index = entries_.take();
  Entry& entry = entries_[index];
  entry.name.assign(name);
  entry.is_live = true;
  names_.insert(hash, index);
  return index;
}

void LockClient::free_entry(std::uint32_t index) {
  Entry& entry = entries_[index];
  WEIR_ASSERT(entry.users == 0 && entry.first_waiter == kNone && !entry.is_linked());
  if (!entry.is_own) names_.erase(hash_of(entry.name), index);
  std::string().swap(entry.name);
  entry.state = EntryState::kIdle;
  entry.conversion = ConvertState::kNone;
  entry.answers_due = 0;
  entry.is_own = false;
  entry.is_live = false;
  entry.is_asked = false;
  entry.is_replaying = false;
  entries_.give_back(index);
}

std::uint32_t LockClient::find_ticket(Ticket ticket) const {
  const auto slot = static_cast<std::uint32_t>(ticket);
  if (slot >= tickets_.used() || tickets_[slot].state == TicketState::kFree) return kNone;
  return ticket_of(slot) == ticket ? slot : kNone;
}

std::uint32_t LockClient::new_ticket(std::uint32_t entry, Mode mode, LockTable::OrWait or_wait) {
  const std::uint32_t slot = tickets_.take();
  TicketSlot& ticket = tickets_[slot];
  ticket.entry = entry;
  ticket.next = kNone;
  ticket.mode = mode;
  ticket.or_wait = or_wait;
  ticket.conversions = 0;
  ticket.state = TicketState::kWaiting;
  return slot;
}

void LockClient::free_ticket(std::uint32_t slot) {
  tickets_[slot].state = TicketState::kFree;
  // 0 is not a valid number of uses: no ticket is 0.
  if (++tickets_[slot].uses == 0) tickets_[slot].uses = 1;
  tickets_.give_back(slot);
}

void LockClient::remove_waiter(Entry& entry, std::uint32_t slot) {
  std::uint32_t before = kNone;
  std::uint32_t at = entry.first_waiter;
  while (at != slot) {
    before = at;
    at = tickets_[at].next;
  }
  (before == kNone ? entry.first_waiter : tickets_[before].next) = tickets_[slot].next;
  if (entry.last_waiter == slot) entry.last_waiter = before;
}

std::uint32_t LockClient::find_cookie(std::uint64_t cookie) const {
  const auto index = static_cast<std::uint32_t>(cookie);
  if (index >= entries_.used() || !entries_[index].is_live) return kNone;
  return cookie_of(index) == cookie ? index : kNone;
}

// ---- users of one resource ----

bool LockClient::can_use(const Entry& entry, Mode mode) const {
  if (entry.state != EntryState::kHeld || entry.is_asked) return false;
  return covers(entry.mode, mode) && entry.used.allow(mode);
}

void LockClient::use(std::uint32_t index, std::uint32_t slot) {
  Entry& entry = entries_[index];
  if (entry.is_linked()) lru_.take(entry);
  ++entry.users;
  entry.used.add(tickets_[slot].mode);
  entry.last_user = slot;
  tickets_[slot].state = TicketState::kHeld;
}

void LockClient::refuse(std::uint32_t slot, Refusal why) {
  tickets_[slot].state = TicketState::kOver;
  events_.push_back({Event::Kind::kRefused, ticket_of(slot), 0, why});
}

bool LockClient::is_try(std::uint32_t slot) const {
  return slot != kNone && tickets_[slot].or_wait == LockTable::OrWait::kTry;
}

void LockClient::refuse_first(Entry& entry, Refusal why) {
  const std::uint32_t slot = entry.first_waiter;
  if (slot == kNone) return;
  remove_waiter(entry, slot);
  refuse(slot, why);
}

LockClient::Acquired LockClient::acquire(std::string_view name, Mode mode,
                                         LockTable::OrWait or_wait, Instant now) {
  if (!LockTable::is_name(name)) {
    const std::uint32_t slot = new_ticket(kNone, mode, or_wait);
    refuse(slot, Refusal::kBadName);
    return {ticket_of(slot), false, 0};
  }
  expire_if_due(now);
  if (!is_supported(mode)) {
    const std::uint32_t slot = new_ticket(kNone, mode, or_wait);
    refuse(slot, Refusal::kUnsupported);
    return {ticket_of(slot), false, 0};
  }
  const std::uint32_t index = entry_of(name);
  Entry& entry = entries_[index];
  const std::uint32_t slot = new_ticket(index, mode, or_wait);
  const Ticket ticket = ticket_of(slot);
  if (entry.first_waiter == kNone && can_use(entry, mode)) {
    ++counters_.hits;
    use(index, slot);
    return {ticket, true, entry.fence};
  }
  const bool is_in_use = entry.users > 0 || entry.first_waiter != kNone;
  if (or_wait == LockTable::OrWait::kTry && is_in_use && !can_separate(entry, mode)) {
    refuse(slot, Refusal::kWouldWait);
    return {ticket, false, 0};
  }
  (entry.last_waiter == kNone ? entry.first_waiter : tickets_[entry.last_waiter].next) = slot;
  entry.last_waiter = slot;
  advance(index, now);
  return {ticket, false, 0};
}

void LockClient::release(Ticket ticket, Instant now) {
  expire_if_due(now);
  const std::uint32_t slot = find_ticket(ticket);
  if (slot == kNone) {
    ++counters_.unknown_releases;
    return;
  }
  const TicketState state = tickets_[slot].state;
  const std::uint32_t index = tickets_[slot].entry;
  if (state == TicketState::kWaiting) remove_waiter(entries_[index], slot);
  if (state == TicketState::kHeld) {
    --entries_[index].users;
    entries_[index].used.remove(tickets_[slot].mode);
  }
  if (state == TicketState::kWatching) unwatch(ticket);
  if (!cycles_.empty()) cycles_.erase(ticket);
  if (!watches_.empty()) watches_.erase(ticket);
  free_ticket(slot);
  if (state == TicketState::kOver || state == TicketState::kWatching) return;
  advance(index, now);
  if (lru_.next_check() <= now) trim(now);
}

// Serves the waiter if possible; otherwise the conflicting lock is returned as soon as it is
// unused. Returns whether the next waiter may be checked.
bool LockClient::serve_waiter(std::uint32_t index, std::uint32_t slot) {
  Entry& entry = entries_[index];
  if (can_use(entry, tickets_[slot].mode)) {
    remove_waiter(entry, slot);
    use(index, slot);
    events_.push_back({Event::Kind::kHeld, ticket_of(slot), entry.fence});
    return true;
  }
  if (can_separate(entry, tickets_[slot].mode)) {
    separate(index, slot);
    return true;
  }
  if (entry.state == EntryState::kHeld && entry.users == 0 && !entry.is_replaying) {
    give_back(index);
  }
  if (entry.state == EntryState::kIdle) enqueue(index);
  return false;
}

// After any change of an entry: serves waiters, caches an unused lock, returns a lock that another
// client waits for, and removes an empty entry.
void LockClient::advance(std::uint32_t index, Instant now) {
  Entry& entry = entries_[index];
  while (entry.first_waiter != kNone) {
    if (!serve_waiter(index, entry.first_waiter)) return;
  }
  if (entry.users > 0) return;
  switch (entry.state) {
    case EntryState::kHeld:
      if ((entry.is_asked || entry.is_own) && !entry.is_replaying) {
        give_back(index);
        free_entry(index);
      } else if (entry.is_own) {
        return;  // returned when the server has answered
      } else if (!entry.is_linked()) {
        lru_.put(entry, now);
      }
      return;
    case EntryState::kQueued:  // no longer needed
      cancel(entry.handle);
      free_entry(index);
      return;
    case EntryState::kEnqueued:
      return;  // the answer contains the handle needed to withdraw it
    case EntryState::kIdle:
      free_entry(index);
      return;
  }
}

void LockClient::enqueue(std::uint32_t index) {
  Entry& entry = entries_[index];
  const TicketSlot& waiter = tickets_[entry.first_waiter];
  entry.state = EntryState::kEnqueued;
  entry.mode = waiter.mode;
  ++entry.sequence;
  if (!is_connected_) return;  // sent with the next hello
  ClientOp op = op_of(OpKind::kEnqueue);
  op.mode = waiter.mode;
  op.or_wait = waiter.or_wait;
  op.cookie = cookie_of(index);
  op.name = entry.name;
  out_.push_back(std::move(op));
  is_urgent_ = true;
  ++counters_.enqueues;
}

// Returns the lock to the server. A cached lock has left the cache before or leaves it here.
void LockClient::give_back(std::uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.is_linked()) lru_.take(entry);
  entry.state = EntryState::kIdle;
  entry.is_asked = false;
  --held_;
  // Without a connection it is not replayed, so the server drops it.
  if (is_connected_) cancel(entry.handle);
}

void LockClient::cancel(std::uint64_t handle) {
  ClientOp op = op_of(OpKind::kCancel);
  op.handle = handle;
  out_.push_back(std::move(op));
  ++counters_.cancels;
  is_urgent_ = true;
}

// Drops a cached lock. It is not urgent: the cancel is sent with the next message, or alone after
// a while.
void LockClient::drop(Entry& entry, Instant now) {
  const std::uint32_t index =
      names_.find(hash_of(entry.name), [&](std::uint32_t at) { return &entries_[at] == &entry; });
  const bool was_urgent = is_urgent_;
  if (out_.empty()) linger_until_ = now + kLinger;
  give_back(index);
  is_urgent_ = was_urgent;
  free_entry(index);
}

// ---- the cache ----

void LockClient::trim(Instant now) {
  for (;;) {
    const Lru::Excess excess = lru_.excess(now);
    if (excess.lock == nullptr) break;
    if (excess.why == Lru::Why::kVolume) ++counters_.cancels_for_volume;
    drop(static_cast<Entry&>(*excess.lock), now);
  }
  lru_.checked(now);
}

std::size_t LockClient::shrink(std::size_t nr, Instant now) {
  const std::size_t most = lru_.is_paused() ? 0 : lru_.size();
  if (nr == 0) return most;
  const std::size_t count = std::min(nr, most);
  for (std::size_t i = 0; i < count; ++i) drop(static_cast<Entry&>(*lru_.oldest()), now);
  return count;
}

std::size_t LockClient::relieve(Instant now) {
  const std::size_t count = lru_.pressure_count();
  return count == 0 ? 0 : shrink(count, now);
}

// ---- lease ----

void LockClient::lose(std::uint32_t index, Instant now) {
  Entry& entry = entries_[index];
  if (entry.is_linked()) lru_.take(entry);
  ++counters_.lost;
  --held_;
  entry.state = EntryState::kIdle;
  entry.is_asked = false;
  entry.is_replaying = false;
  if (entry.users > 0) {
    for (std::uint32_t slot = 0; slot < tickets_.used(); ++slot) {
      TicketSlot& ticket = tickets_[slot];
      if (ticket.state != TicketState::kHeld || ticket.entry != index) continue;
      ticket.state = TicketState::kOver;
      events_.push_back({Event::Kind::kLost, ticket_of(slot), entry.fence});
    }
  }
  entry.users = 0;
  entry.used = {};
  entry.conversion = ConvertState::kNone;
  advance(index, now);
}

void LockClient::expire(Instant now) {
  for (std::uint32_t slot = 0; slot < tickets_.used(); ++slot) {
    TicketSlot& ticket = tickets_[slot];
    if (ticket.state != TicketState::kHeld) continue;
    ticket.state = TicketState::kOver;
    entries_[ticket.entry].users = 0;
    entries_[ticket.entry].used = {};
    events_.push_back({Event::Kind::kLost, ticket_of(slot), entries_[ticket.entry].fence});
  }
  for (std::uint32_t index = 0; index < entries_.used(); ++index) {
    Entry& entry = entries_[index];
    if (!entry.is_live || entry.state != EntryState::kHeld) continue;
    // The server may not know yet if only its answers are slow.
    if (is_connected_ && !entry.is_replaying) cancel(entry.handle);
    lose(index, now);
  }
}

void LockClient::confirm(std::uint64_t number) {
  if (number <= confirmed_ || number > number_) return;
  while (confirmed_ < number) {
    lease_from_ = std::max(lease_from_, sent_at_.front());
    sent_at_.pop_front();
    ++confirmed_;
  }
  if (is_welcome_) lease_end_ = lease_from_ + lease_;
}

// ---- the transport ----

void LockClient::connected(Instant now) {
  tick(now);
  is_connected_ = true;
  is_welcome_ = false;
  shall_go_away_ = false;
  number_ = 0;
  confirmed_ = 0;
  sent_at_.clear();
  out_.clear();
  lru_.pause();
  ClientOp hello = op_of(OpKind::kHello);
  hello.client = client_;
  hello.secret = secret_;
  hello.features = options_.features;
  out_.push_back(std::move(hello));
  for (std::uint32_t index = 0; index < entries_.used(); ++index) {
    Entry& entry = entries_[index];
    if (!entry.is_live || entry.state != EntryState::kHeld) continue;
    entry.is_replaying = true;
    entry.answers_due = 0;
    if (entry.conversion == ConvertState::kSent) entry.conversion = ConvertState::kDue;
    ClientOp op = op_of(OpKind::kReplay);
    op.mode = entry.mode;
    op.cookie = cookie_of(index);
    op.handle = entry.handle;
    op.fence = entry.fence;
    op.incarnation = entry.incarnation;
    op.name = entry.name;
    out_.push_back(std::move(op));
  }
  out_.push_back(op_of(OpKind::kReplayed));
  is_urgent_ = true;
  for (std::uint32_t index = 0; index < entries_.used(); ++index) {
    Entry& entry = entries_[index];
    if (!entry.is_live || entry.state == EntryState::kHeld) continue;
    entry.state = EntryState::kIdle;
    advance(index, now);
  }
  for (const auto& [ticket, watch] : watches_) send_watch(ticket, watch);
}

void LockClient::disconnected() {
  is_connected_ = false;
  is_welcome_ = false;
  out_.clear();
  is_urgent_ = false;
  lru_.pause();
}

bool LockClient::has_message(Instant now) const {
  if (!is_connected_) return false;
  return is_urgent_ || now >= next_message();
}

// When a message without urgency is due: delayed cancels, the keep-alive, or the request for a
// volume that has become too old.
Instant LockClient::next_message() const {
  if (!is_connected_) return kNever;
  Instant next = out_.empty() ? kNever : linger_until_;
  if (!is_welcome_) return next;
  next = std::min(next, last_sent_ + lease_ / 4);
  const Instant refresh = lru_.refresh_at();
  return refresh == kNever ? next : std::min(next, std::max(refresh, last_sent_ + kLinger));
}

ClientMessage LockClient::take(Instant now, std::size_t ops_max) {
  WEIR_ASSERT(is_connected_);
  ClientMessage message;
  message.number = ++number_;
  message.volume = lru_.oldest_volume(now);
  message.factor_percent = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(lru_.options().factor_percent, UINT32_MAX));
  if (out_.size() <= ops_max) {
    message.ops = std::exchange(out_, {});
    is_urgent_ = false;
  } else {
    const auto end = out_.begin() + static_cast<std::ptrdiff_t>(ops_max);
    message.ops.assign(std::make_move_iterator(out_.begin()), std::make_move_iterator(end));
    out_.erase(out_.begin(), end);
  }
  sent_at_.push_back(now);
  last_sent_ = now;
  ++counters_.messages;
  return message;
}

void LockClient::tick(Instant now) {
  expire_if_due(now);
  if (lru_.next_check() <= now) trim(now);
}

Instant LockClient::next_tick() const {
  Instant next = held_ > 0 ? lease_end_ : kNever;
  next = std::min(next, lru_.next_check());
  return std::min(next, next_message());
}

void LockClient::receive(const ServerMessage& message, Instant now) {
  if (!is_connected_) return;
  // The welcome contains the length of the lease, so it is processed before what it confirms.
  if (!message.ops.empty() && message.ops.front().kind == ServerOp::Kind::kWelcome) {
    welcome(message.ops.front());
  }
  confirm(message.confirms);
  tick(now);
  if (message.volume > 0) {
    lru_.hear(message.volume, message.limit, now);
    lru_.advise(message.lru_size, message.lru_max_age, now);
  }
  if (is_welcome_ && !message.is_recovering) {
    lru_.resume();
  } else {
    lru_.pause();
  }
  keep_reports(message);
  for (const ServerOp& op : message.ops) apply(op, now);
  trim(now);
}

void LockClient::welcome(const ServerOp& op) {
  is_welcome_ = true;
  client_ = op.client;
  secret_ = op.secret;
  incarnation_ = op.incarnation;
  server_features_ = op.features;
  lease_ = std::max<Nanoseconds>(op.lease, std::chrono::milliseconds{1});
  if ((op.features & kFeatureVolume) == 0) lru_.fall_back();
}

void LockClient::set_held(Entry& entry, std::uint64_t handle, std::uint64_t fence) {
  entry.state = EntryState::kHeld;
  entry.handle = handle;
  entry.fence = fence;
  entry.incarnation = incarnation_;
  entry.is_asked = false;
  ++held_;
}

void LockClient::apply(const ServerOp& op, Instant now) {
  if (op.kind == ServerOp::Kind::kGoAway) shall_go_away_ = true;
  if (op.kind == ServerOp::Kind::kFree || op.kind == ServerOp::Kind::kNotWatched) {
    return apply_watch(op);
  }
  const std::uint32_t index = find_cookie(op.cookie);
  // A message about a lock that no longer exists was sent before its end.
  if (index == kNone) {
    if (op.kind == ServerOp::Kind::kKept) cancel(op.handle);
    return;
  }
  Entry& entry = entries_[index];
  const bool is_wanted = entry.state == EntryState::kEnqueued || entry.state == EntryState::kQueued;
  switch (op.kind) {
    case ServerOp::Kind::kQueued:
      if (entry.state != EntryState::kEnqueued) return;
      entry.state = EntryState::kQueued;
      entry.handle = op.handle;
      // Requested by a user that has released it since and that would have waited.
      if (is_try(entry.first_waiter)) refuse_first(entry, Refusal::kWouldWait);
      break;
    case ServerOp::Kind::kGranted:
      if (!is_wanted) return;
      set_held(entry, op.handle, op.fence);
      // Too late to use it: the server may evict this client at any moment. Request it again.
      if (now >= lease_end_) give_back(index);
      break;
    case ServerOp::Kind::kRefused:
      if (!is_wanted) return;
      entry.state = EntryState::kIdle;
      // A refusal because it would wait is not an answer for a user that waits: request it again.
      if (op.why != Refusal::kWouldWait || is_try(entry.first_waiter)) {
        refuse_first(entry, op.why);
      }
      break;
    case ServerOp::Kind::kAsk:
      if (entry.state != EntryState::kHeld) return;
      entry.is_asked = true;
      if (entry.is_linked()) lru_.take(entry);
      break;
    case ServerOp::Kind::kKept:
      if (!std::exchange(entry.is_replaying, false)) {
        cancel(op.handle);  // it was lost with the lease while its report was on the way
        return;
      }
      entry.handle = op.handle;
      entry.incarnation = incarnation_;
      if (entry.conversion == ConvertState::kDue) send_conversion(index);
      break;
    case ServerOp::Kind::kConverted:
    case ServerOp::Kind::kNotConverted:
      answer_conversion(index, op);
      break;
    case ServerOp::Kind::kLost:
      if (entry.is_replaying) lose(index, now);
      return;
    case ServerOp::Kind::kWelcome:
    case ServerOp::Kind::kGoAway:
    case ServerOp::Kind::kFree:
    case ServerOp::Kind::kNotWatched:
      return;
  }
  advance(index, now);
}

}  // namespace weir::lock
