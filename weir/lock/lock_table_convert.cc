// SPDX-License-Identifier: Apache-2.0
//
// The part of the table that changes modes, watches resources and checks the whole.
#include <algorithm>

#include "weir/base/assert.h"
#include "weir/lock/lock_table.h"

namespace weir::lock {

// ---- conversions ----

void LockTable::set_mode(std::uint32_t index, Mode mode) {
  Lock& lock = locks_[index];
  ModeCounts& held = resources_[lock.resource].held;
  held.remove(lock.mode);
  held.add(mode);
  lock.mode = mode;
}

void LockTable::withdraw_conversion(std::uint32_t index) {
  Lock& lock = locks_[index];
  lock.is_converting = false;
  --converting_;
  const auto found = conversions_.find(lock.resource);
  found->second.remove(index);
  if (!found->second.empty()) return;
  conversions_.erase(found);
  resources_[lock.resource].has_conversions = 0;
}

bool LockTable::can_convert(std::uint32_t index, Mode mode) const {
  const Lock& lock = locks_[index];
  const Resource& resource = resources_[lock.resource];
  if (room_ == 0 || !resource.held.allow_beside(lock.mode, mode)) return false;
  return resource.has_conversions == 0 || !conversions_.at(lock.resource).is_ahead_of(lock.mode);
}

void LockTable::grant_conversion(std::uint32_t index, Mode mode) {
  set_mode(index, mode);
  locks_[index].fence = next_fence();
}

bool LockTable::is_downward(Session session, Handle handle, Mode mode) const {
  const std::uint32_t index = find(session, handle);
  return index != kNone && locks_[index].state == State::kGranted &&
         covers(locks_[index].mode, mode);
}

LockTable::Converted LockTable::convert(Session session, Handle handle, Mode mode, OrWait or_wait) {
  Converted answer;
  const std::uint32_t index = find(session, handle);
  if (index == kNone || locks_[index].state != State::kGranted) return answer;
  Lock& lock = locks_[index];
  const std::uint32_t at = lock.resource;
  answer.has_withdrawn_one = lock.is_converting;
  if (lock.is_converting) withdraw_conversion(index);
  answer.outcome = Converted::Outcome::kDone;
  if (covers(lock.mode, mode)) {
    set_mode(index, mode);
    lock.is_asked = false;  // whoever still waits for it asks again
  } else if (can_convert(index, mode)) {
    grant_conversion(index, mode);
  } else if (or_wait == OrWait::kTry) {
    answer.outcome = Converted::Outcome::kWouldWait;
  } else {
    const Conversions::Conversion added{index, lock.mode, mode};
    if (resources_[at].has_conversions != 0) {
      for (const Conversions::Conversion& each : conversions_.at(at).cycle_with(added)) {
        answer.cycle.push_back({locks_[each.lock].session, each.held, each.wanted});
      }
    }
    if (answer.cycle.empty()) {
      answer.outcome = Converted::Outcome::kWaits;
      conversions_[at].add(added);
      resources_[at].has_conversions = 1;
      lock.is_converting = true;
      ++converting_;
      ask(at, mode, index);
      if (answer.has_withdrawn_one) wake(at);
      return answer;
    }
    answer.outcome = Converted::Outcome::kDeadlock;
  }
  answer.fence = lock.fence;
  wake(at);
  return answer;
}

// Grants conversions while one is allowed. If some remain, the holders that the first waits for are
// asked, which may have been converted just now.
void LockTable::convert_waiting(std::uint32_t at) {
  const Resource& resource = resources_[at];
  while (resource.has_conversions != 0) {
    const Conversions& waiting = conversions_.at(at);
    const std::size_t next =
        room_ == 0 ? waiting.line().size() : waiting.first_allowed(resource.held);
    if (next == waiting.line().size()) {
      ask(at, waiting.line().front().wanted, waiting.line().front().lock);
      return;
    }
    const Conversions::Conversion granted = waiting.line()[next];
    withdraw_conversion(granted.lock);
    grant_conversion(granted.lock, granted.wanted);
    tell(Event::Kind::kConverted, granted.lock);
  }
}

// ---- watches ----

bool LockTable::watch(Session session, std::uint64_t cookie, std::string_view name, Mode mode) {
  WEIR_ASSERT(is_name(name), name.size());
  const std::uint32_t found = find_resource(name);
  if (found == kNone) return true;
  Resource& resource = resources_[found];
  if (is_next(resource) && can_grant(resource, mode)) return true;
  ask(found, mode);  // holders may only have it cached
  watches_[found].push_back({session, mode, cookie});
  resource.has_watches = 1;
  ++sessions_[session].watches;
  ++watching_;
  return false;
}

// Tells those for which the resource is free now. The resource may be about to be removed.
void LockTable::tell_watches(std::uint32_t at) {
  Resource& resource = resources_[at];
  if (!is_next(resource)) return;
  const auto found = watches_.find(at);
  std::erase_if(found->second, [&](const Watch& watch) {
    if (!can_grant(resource, watch.mode)) return false;
    --sessions_[watch.session].watches;
    --watching_;
    events_.push_back({Event::Kind::kFree, watch.mode, watch.session, 0, watch.cookie, 0});
    return true;
  });
  if (!found->second.empty()) return;
  watches_.erase(found);
  resource.has_watches = 0;
}

bool LockTable::unwatch(Session session, std::uint64_t cookie) {
  if (sessions_[session].watches == 0) return false;
  for (auto each = watches_.begin(); each != watches_.end(); ++each) {
    const auto is_it = [&](const Watch& watch) {
      return watch.session == session && watch.cookie == cookie;
    };
    const auto found = std::find_if(each->second.begin(), each->second.end(), is_it);
    if (found == each->second.end()) continue;
    each->second.erase(found);
    --sessions_[session].watches;
    --watching_;
    if (each->second.empty()) {
      resources_[each->first].has_watches = 0;
      watches_.erase(each);
    }
    return true;
  }
  return false;
}

void LockTable::drop_watches(Session session) {
  for (auto each = watches_.begin(); sessions_[session].watches > 0;) {
    WEIR_ASSERT(each != watches_.end());
    const auto gone = static_cast<std::uint32_t>(
        std::erase_if(each->second, [&](const Watch& watch) { return watch.session == session; }));
    sessions_[session].watches -= gone;
    watching_ -= gone;
    const auto next = std::next(each);
    if (each->second.empty()) {
      resources_[each->first].has_watches = 0;
      watches_.erase(each);
    }
    each = next;
  }
}

// ---- a session that reconnects ----

// The client may have converted the lock without that the server has heard of it, or the reverse.
bool LockTable::keep(Session session, Handle handle, Mode mode) {
  const std::uint32_t index = find(session, handle);
  if (index == kNone || locks_[index].state != State::kGranted) return false;
  if (locks_[index].is_revoked) return false;
  const bool is_as_before = locks_[index].mode == mode && !locks_[index].is_converting;
  if (!is_as_before &&
      convert(session, handle, mode, OrWait::kTry).outcome != Converted::Outcome::kDone) {
    return false;
  }
  locks_[index].is_kept = true;
  return true;
}

// ---- checks ----

bool LockTable::is_valid() const {
  std::size_t granted = 0;
  std::size_t waiting = 0;
  std::size_t converting = 0;
  for (std::uint32_t i = 0; i < resources_.used(); ++i) {
    const Resource& resource = resources_[i];
    if (resource.locks == 0) continue;
    ModeCounts held;
    for (std::uint32_t l = resource.granted.first; l != kNone; l = locks_[l].next, ++granted) {
      if (!held.allow(locks_[l].mode)) return false;
      held.add(locks_[l].mode);
    }
    if (held != resource.held) return false;
    for (std::uint32_t l = resource.waiting.first; l != kNone; l = locks_[l].next) ++waiting;
    const std::uint32_t first = resource.waiting.first;
    if (first != kNone && is_next(resource) && can_grant(resource, locks_[first].mode))
      return false;
    if ((conversions_.count(i) != 0) != (resource.has_conversions != 0)) return false;
    if ((watches_.count(i) != 0) != (resource.has_watches != 0)) return false;
    if (resource.has_conversions == 0) {
      if (first != kNone && can_grant(resource, locks_[first].mode)) return false;
      continue;
    }
    Conversions ahead;
    for (const Conversions::Conversion& each : conversions_.at(i).line()) {
      if (each.held != locks_[each.lock].mode || !locks_[each.lock].is_converting) return false;
      if (!ahead.cycle_with(each).empty()) return false;
      ahead.add(each);
    }
    if (room_ > 0 && ahead.first_allowed(held) != ahead.line().size()) return false;
    converting += ahead.line().size();
  }
  return granted == granted_ && waiting == waiting_ && converting == converting_ &&
         (parked_list_.first == kNone || !has_room());
}

}  // namespace weir::lock
