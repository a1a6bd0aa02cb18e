// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/lock_table.h"

#include <algorithm>
#include <cstring>

#include "weir/base/assert.h"
#include "weir/base/hash.h"

namespace weir::lock {

LockTable::LockTable(std::uint64_t incarnation) : incarnation_(incarnation) {
  WEIR_ASSERT(incarnation <= kIncarnationMax, incarnation);
}

// ---- resources ----

std::uint64_t LockTable::hash_of(std::string_view name) {
  std::uint64_t hash = name.size();
  while (!name.empty()) {
    std::uint64_t word = 0;
    const std::size_t part = std::min<std::size_t>(name.size(), sizeof word);
    std::memcpy(&word, name.data(), part);
    hash = hash_words(hash, word);
    name.remove_prefix(part);
  }
  return hash_words(hash, kHashKeys[2]);
}

std::uint32_t LockTable::find_resource(std::string_view name) const {
  return names_.find(hash_of(name),
                     [&](std::uint32_t index) { return resources_[index].name.view() == name; });
}

std::uint32_t LockTable::resource_of(std::string_view name) {
  const std::uint64_t hash = hash_of(name);
  const std::uint32_t found =
      names_.find(hash, [&](std::uint32_t index) { return resources_[index].name.view() == name; });
  if (found != kNone) return found;
  const std::uint32_t index = resources_.take();
  resources_[index].name.assign(name);
  names_.insert(hash, index);
  return index;
}

// ---- locks and the lists they are in ----

std::uint32_t LockTable::add_lock(Session session, std::uint64_t cookie, std::string_view name,
                                  Mode mode) {
  const std::uint32_t resource = resource_of(name);
  ++resources_[resource].locks;
  const std::uint32_t index = locks_.take();
  Lock& lock = locks_[index];
  lock.session = session;
  lock.cookie = cookie;
  lock.fence = 0;
  lock.resource = resource;
  lock.mode = mode;
  lock.is_asked = false;
  lock.is_kept = false;
  lock.is_revoked = false;
  lock.is_converting = false;
  SessionLocks& owner = sessions_[session];
  ++owner.locks;
  lock.prev_of_session = owner.list.last;
  lock.next_of_session = kNone;
  (owner.list.last == kNone ? owner.list.first : locks_[owner.list.last].next_of_session) = index;
  owner.list.last = index;
  return index;
}

void LockTable::drop_lock(std::uint32_t index) {
  Lock& lock = locks_[index];
  Resource& resource = resources_[lock.resource];
  if (--resource.locks == 0) {
    if (resource.has_watches != 0) tell_watches(lock.resource);
    names_.erase(hash_of(resource.name.view()), lock.resource);
    resource.name.clear();
    resources_.give_back(lock.resource);
  }
  SessionLocks& owner = sessions_[lock.session];
  --owner.locks;
  const std::uint32_t prev = lock.prev_of_session;
  const std::uint32_t next = lock.next_of_session;
  (prev == kNone ? owner.list.first : locks_[prev].next_of_session) = next;
  (next == kNone ? owner.list.last : locks_[next].prev_of_session) = prev;
  lock.state = State::kFree;
  // 0 is not a valid number of uses: no handle is 0.
  if (++lock.uses == 0) lock.uses = 1;
  locks_.give_back(index);
}

LockTable::List& LockTable::list_of(const Lock& lock) {
  if (lock.state == State::kParked) return parked_list_;
  Resource& resource = resources_[lock.resource];
  return lock.state == State::kGranted ? resource.granted : resource.waiting;
}

void LockTable::append(std::uint32_t index, State state) {
  Lock& lock = locks_[index];
  lock.state = state;
  List& list = list_of(lock);
  lock.prev = list.last;
  lock.next = kNone;
  (list.last == kNone ? list.first : locks_[list.last].next) = index;
  list.last = index;
  if (state == State::kGranted) resources_[lock.resource].held.add(lock.mode);
  ++(state == State::kGranted ? granted_ : state == State::kWaiting ? waiting_ : parked_);
}

void LockTable::remove(std::uint32_t index) {
  const Lock& lock = locks_[index];
  List& list = list_of(lock);
  (lock.prev == kNone ? list.first : locks_[lock.prev].next) = lock.next;
  (lock.next == kNone ? list.last : locks_[lock.next].prev) = lock.prev;
  const State state = lock.state;
  if (state == State::kGranted) resources_[lock.resource].held.remove(lock.mode);
  --(state == State::kGranted ? granted_ : state == State::kWaiting ? waiting_ : parked_);
}

void LockTable::tell(Event::Kind kind, std::uint32_t index) {
  const Lock& lock = locks_[index];
  events_.push_back({kind, lock.mode, lock.session, handle_of(index), lock.cookie, lock.fence});
}

// ---- granting ----

std::uint64_t LockTable::next_fence() {
  ++grants_ever_;
  WEIR_ASSERT(grants_ever_ >> kFenceCountBits == 0, grants_ever_);
  return incarnation_ << kFenceCountBits | grants_ever_;
}

void LockTable::grant(std::uint32_t index) {
  append(index, State::kGranted);
  locks_[index].fence = next_fence();
}

// Asks all holders whose locks conflict with a waiter of this mode, except the waiter itself.
void LockTable::ask(std::uint32_t resource, Mode mode, std::uint32_t except) {
  for (std::uint32_t i = resources_[resource].granted.first; i != kNone; i = locks_[i].next) {
    Lock& holder = locks_[i];
    if (holder.is_asked || i == except || !conflict(holder.mode, mode)) continue;
    holder.is_asked = true;
    tell(Event::Kind::kAsked, i);
  }
}

// A lock for which there is room enters: it is granted or waits.
void LockTable::admit(std::uint32_t index) {
  const std::uint32_t at = locks_[index].resource;
  const Resource& resource = resources_[at];
  if (is_next(resource) && can_grant(resource, locks_[index].mode)) {
    grant(index);
    return;
  }
  append(index, State::kWaiting);
  ask(at, locks_[index].mode);
}

// Converts and grants the first in line if possible. If one remains, its conflicting holders are
// asked, which may have been granted just now.
void LockTable::wake(std::uint32_t at) {
  const Resource& resource = resources_[at];
  if (resource.has_conversions != 0) convert_waiting(at);
  while (resource.waiting.first != kNone && resource.has_conversions == 0) {
    const std::uint32_t index = resource.waiting.first;
    if (!can_grant(resource, locks_[index].mode)) {
      ask(at, locks_[index].mode);
      return;
    }
    remove(index);
    grant(index);
    tell(Event::Kind::kGranted, index);
  }
  if (resource.has_watches != 0) tell_watches(at);
}

void LockTable::unpark() {
  while (parked_list_.first != kNone && has_room()) {
    const std::uint32_t index = parked_list_.first;
    remove(index);
    admit(index);
    if (locks_[index].state == State::kGranted) tell(Event::Kind::kGranted, index);
  }
}

void LockTable::set_room(std::size_t room) {
  const bool had_none = room_ == 0;
  room_ = room;
  for (auto each = conversions_.begin(); had_none && each != conversions_.end();) {
    const std::uint32_t resource = each->first;
    ++each;  // wake() may remove it
    wake(resource);
  }
  unpark();
}

// ---- the calls ----

LockTable::Enqueued LockTable::enqueue(Session session, std::uint64_t cookie, std::string_view name,
                                       Mode mode, OrWait or_wait) {
  WEIR_ASSERT(is_name(name), name.size());
  const std::uint32_t index = add_lock(session, cookie, name, mode);
  const Resource& resource = resources_[locks_[index].resource];
  const bool enters = parked_list_.first == kNone && has_room();
  if (or_wait == OrWait::kTry && !(enters && is_next(resource) && can_grant(resource, mode))) {
    drop_lock(index);
    return {};
  }
  if (enters) {
    admit(index);
  } else {
    append(index, State::kParked);
  }
  return {handle_of(index), locks_[index].state, locks_[index].fence};
}

LockTable::Handle LockTable::replay(Session session, std::uint64_t cookie, std::string_view name,
                                    Mode mode, std::uint64_t fence) {
  WEIR_ASSERT(is_name(name), name.size());
  const std::uint64_t latest = incarnation_ << kFenceCountBits | grants_ever_;
  if (fence == 0 || fence > latest) return 0;
  const std::uint32_t index = add_lock(session, cookie, name, mode);
  Lock& lock = locks_[index];
  Resource& resource = resources_[lock.resource];
  if (!can_grant(resource, mode)) {
    drop_lock(index);
    return 0;
  }
  append(index, State::kGranted);
  lock.fence = fence;
  if (resource.waiting.first != kNone) ask(lock.resource, locks_[resource.waiting.first].mode);
  return handle_of(index);
}

void LockTable::give_back(std::uint32_t index) {
  const State was = locks_[index].state;
  const std::uint32_t resource = locks_[index].resource;
  if (locks_[index].is_converting) withdraw_conversion(index);
  remove(index);
  // The last lock removes the resource; then no waiter is left.
  const bool has_others = resources_[resource].locks > 1;
  drop_lock(index);
  if (has_others && was != State::kParked) wake(resource);
  unpark();
}

LockTable::State LockTable::cancel(Session session, Handle handle) {
  const std::uint32_t index = find(session, handle);
  if (index == kNone) return State::kFree;
  const State was = locks_[index].state;
  give_back(index);
  return was;
}

// ---- sessions ----

LockTable::Session LockTable::open() {
  const Session session = sessions_.take();
  sessions_[session] = {};
  return session;
}

std::size_t LockTable::close(Session session) {
  // In the second call nothing is marked as kept any more.
  const std::size_t held = drop_unkept(session) + drop_unkept(session);
  WEIR_ASSERT(sessions_[session].watches == 0);
  sessions_.give_back(session);
  return held;
}

// Waiting enqueues first: a closing session must not be granted a lock that another waits for.
std::size_t LockTable::drop_unkept(Session session) {
  drop_watches(session);
  std::size_t held = 0;
  for (const bool granted : {false, true}) {
    std::uint32_t next = kNone;
    for (std::uint32_t i = sessions_[session].list.first; i != kNone; i = next) {
      next = locks_[i].next_of_session;
      if ((locks_[i].state == State::kGranted) != granted) continue;
      if (locks_[i].is_kept) {
        locks_[i].is_kept = false;
        continue;
      }
      if (granted) ++held;
      give_back(i);
    }
  }
  return held;
}

std::uint32_t LockTable::find(Session session, Handle handle) const {
  const auto index = static_cast<std::uint32_t>(handle);
  if (index >= locks_.used()) return kNone;
  const Lock& lock = locks_[index];
  const bool is_it = lock.state != State::kFree && handle_of(index) == handle;
  return is_it && lock.session == session ? index : kNone;
}

LockTable::State LockTable::state(Handle handle) const {
  const auto index = static_cast<std::uint32_t>(handle);
  if (index >= locks_.used() || handle_of(index) != handle) return State::kFree;
  return locks_[index].state;
}

bool LockTable::is_asked(Handle handle) const {
  return state(handle) == State::kGranted && locks_[static_cast<std::uint32_t>(handle)].is_asked;
}

LockTable::Seen LockTable::seen(const Lock& lock) const {
  Seen seen{resources_[lock.resource].name.view(),
            lock.mode,
            lock.state,
            lock.session,
            lock.fence,
            lock.is_asked,
            lock.mode};
  if (!lock.is_converting) return seen;
  for (const Conversions::Conversion& each : conversions_.at(lock.resource).line()) {
    if (&locks_[each.lock] == &lock) seen.wanted = each.wanted;
  }
  return seen;
}

}  // namespace weir::lock
