// SPDX-License-Identifier: Apache-2.0
//
// The part of the client that changes modes and watches resources.
#include <utility>

#include "weir/base/assert.h"
#include "weir/lock/client.h"

namespace weir::lock {

// ---- locks of their own ----

// A user whose mode the lock does not cover, although no user excludes it: it would wait for them
// without need.
bool LockClient::can_separate(const Entry& entry, Mode mode) const {
  return entry.state == EntryState::kHeld && entry.users > 0 && !covers(entry.mode, mode) &&
         entry.used.allow(mode);
}

// REQUIRES: the ticket is the first waiter of the entry, or its only user.
void LockClient::separate(std::uint32_t index, std::uint32_t slot) {
  Entry& shared = entries_[index];
  remove_waiter(shared, slot);
  const std::uint32_t own = entries_.take();
  Entry& entry = entries_[own];
  entry.name = shared.name;
  entry.is_live = true;
  entry.is_own = true;
  entry.first_waiter = slot;
  entry.last_waiter = slot;
  tickets_[slot].entry = own;
  tickets_[slot].next = kNone;
  enqueue(own);
}

// ---- conversions ----

void LockClient::refuse_conversion(std::uint32_t slot, Refusal why) {
  events_.push_back(
      {Event::Kind::kNotConverted, ticket_of(slot), 0, why, tickets_[slot].conversions});
}

LockClient::Converted LockClient::convert(Ticket ticket, Mode mode, LockTable::OrWait or_wait,
                                          Instant now) {
  expire_if_due(now);
  const std::uint32_t slot = find_ticket(ticket);
  if (slot == kNone) {
    ++counters_.unknown_releases;
    return {};
  }
  cycles_.erase(ticket);
  ++tickets_[slot].conversions;
  if (tickets_[slot].state != TicketState::kHeld) {
    refuse_conversion(slot, Refusal::kUnknown);
    return {};
  }
  if (!knows_modes()) {
    refuse_conversion(slot, Refusal::kUnsupported);
    return {};
  }
  const std::uint32_t index = tickets_[slot].entry;
  Entry& entry = entries_[index];
  if (!entry.is_own) {
    if (entry.users > 1 || entry.first_waiter != kNone) {
      refuse_conversion(slot, Refusal::kInUse);
      return {};
    }
    names_.erase(hash_of(entry.name), index);
    entry.is_own = true;
  }
  const bool is_down = covers(entry.mode, mode);
  const bool was_waiting = entry.conversion != ConvertState::kNone;
  const bool is_news = !is_down || entry.mode != mode || was_waiting;
  entry.wanted = mode;
  entry.or_wait = or_wait;
  if (is_down) {
    entry.used.remove(tickets_[slot].mode);
    entry.used.add(mode);
    tickets_[slot].mode = mode;
    entry.mode = mode;
    entry.conversion = ConvertState::kNone;
  }
  if (is_news) {
    // Without a connection, the next one replays the lock with its new mode.
    if (!is_down || (is_connected_ && entry.is_replaying)) entry.conversion = ConvertState::kDue;
    if (is_connected_ && !entry.is_replaying) send_conversion(index);
  }
  return {is_down, is_down ? entry.fence : 0};
}

void LockClient::send_conversion(std::uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.conversion == ConvertState::kDue) {
    // A conversion downward has been done already, and needs no Event.
    entry.conversion = covers(entry.mode, entry.wanted) ? ConvertState::kNone : ConvertState::kSent;
  }
  ClientOp op;
  op.kind = ClientOp::Kind::kConvert;
  op.mode = entry.wanted;
  op.or_wait = entry.or_wait;
  op.cookie = cookie_of(index);
  op.handle = entry.handle;
  out_.push_back(std::move(op));
  ++entry.answers_due;
  ++counters_.conversions;
  is_urgent_ = true;
}

// Only the answer to the last conversion counts: the others were withdrawn by it.
void LockClient::answer_conversion(std::uint32_t index, const ServerOp& op) {
  Entry& entry = entries_[index];
  if (entry.state != EntryState::kHeld || entry.answers_due == 0 || --entry.answers_due > 0) return;
  if (entry.conversion != ConvertState::kSent) return;
  entry.conversion = ConvertState::kNone;
  const std::uint32_t slot = entry.last_user;
  if (op.kind == ServerOp::Kind::kNotConverted) return refuse_conversion(slot, op.why);
  entry.mode = op.mode;
  entry.fence = op.fence;
  if (entry.users == 0) return;
  entry.used = {};
  entry.used.add(op.mode);
  tickets_[slot].mode = op.mode;
  events_.push_back({Event::Kind::kConverted, ticket_of(slot), op.fence, Refusal::kWouldWait,
                     tickets_[slot].conversions});
}

std::vector<Cycle::Step> LockClient::cycle(Ticket ticket) const {
  const auto found = cycles_.find(ticket);
  return found == cycles_.end() ? std::vector<Cycle::Step>{} : found->second;
}

// ---- watches ----

LockClient::Ticket LockClient::watch(std::string_view name, Mode mode, Instant now) {
  expire_if_due(now);
  const std::uint32_t slot = new_ticket(kNone, mode, LockTable::OrWait::kWait);
  if (!LockTable::is_name(name) || !knows_modes()) {
    refuse(slot, LockTable::is_name(name) ? Refusal::kUnsupported : Refusal::kBadName);
    return ticket_of(slot);
  }
  tickets_[slot].state = TicketState::kWatching;
  const Ticket ticket = ticket_of(slot);
  const Watch& watch = watches_[ticket] = {std::string(name), mode, {}};
  if (is_connected_) send_watch(ticket, watch);
  return ticket;
}

void LockClient::send_watch(Ticket ticket, const Watch& watch) {
  ClientOp op;
  op.kind = ClientOp::Kind::kWatch;
  op.cookie = ticket;
  op.mode = watch.mode;
  op.name = watch.name;
  out_.push_back(std::move(op));
  ++counters_.watches;
  is_urgent_ = true;
}

void LockClient::unwatch(Ticket ticket) {
  if (!is_connected_) return;
  ClientOp op;
  op.kind = ClientOp::Kind::kUnwatch;
  op.cookie = ticket;
  out_.push_back(std::move(op));
  ++counters_.watches;
  is_urgent_ = true;
}

void LockClient::apply_watch(const ServerOp& op) {
  const std::uint32_t slot = find_ticket(op.cookie);
  if (slot == kNone || tickets_[slot].state != TicketState::kWatching) return;
  if (op.kind == ServerOp::Kind::kNotWatched) return refuse(slot, op.why);
  tickets_[slot].state = TicketState::kOver;
  events_.push_back({Event::Kind::kFree, ticket_of(slot)});
}

Holders LockClient::holders(Ticket ticket) const {
  const auto found = watches_.find(ticket);
  return found == watches_.end() ? Holders{} : found->second.holders;
}

// What belongs to operations of the message, or is of interest by itself.
void LockClient::keep_reports(const ServerMessage& message) {
  for (const Cycle& cycle : message.cycles) {
    const std::uint32_t index = find_cookie(cycle.cookie);
    if (index == kNone || entries_[index].users == 0) continue;
    cycles_[ticket_of(entries_[index].last_user)] = cycle.steps;
  }
  for (const Holders& holders : message.holders) {
    const auto found = watches_.find(holders.cookie);
    if (found == watches_.end()) continue;
    found->second.holders = holders;
    events_.push_back({Event::Kind::kHolders, holders.cookie});
  }
}

}  // namespace weir::lock
