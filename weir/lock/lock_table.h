// SPDX-License-Identifier: Apache-2.0
//
// Holders and waiters of named resources, with locks of six modes (mode.h).
//
//   resource "a/b"   granted:  S(1) S(4)          compatible with each other
//                    waiting:  X(2) S(3)          first come, first served: S(3) waits behind X(2),
//                                                 or a stream of readers would starve the writer
//   parked:          X(7) S(8) ...                of all resources: no room at the moment
//
// enqueue() grants at once if no conflicting lock is held or waits. A holder that blocks a waiter
// is asked for its lock once (Event::kAsked); when it cancels, the next waiters are granted
// (Event::kGranted). After every call no grantable waiter is left: no wake-up is lost.
//
// convert() changes the mode of a granted lock. To one that excludes less: at once. Otherwise it
// waits (Event::kConverted follows) in its old mode, ahead of all new locks; one that would wait
// for itself is refused, and the cycle is named (conversions.h).
//
// watch() is told once when a lock of a mode would be granted at once (Event::kFree). It asks
// holders for their locks, which they may only have cached, but takes no place in the order.
//
// Room. Granted and waiting locks together are at most room(). Further enqueues are parked, in
// order, and enter as others leave. A granted or waiting lock never waits for room, so one cancel
// that admits a thousand readers does not exceed it. Room 0 stops all grants, for recovery, and
// conversions to modes that exclude more.
//
// Fences. Each grant gets a number larger than any before, also before a restart, so that storage
// can reject a writer that has lost its lock: incarnation << 44 | count. The caller counts
// incarnations and keeps that number across restarts. A conversion that had to be granted gets a
// new one, too: a lock that others could be held beside is no longer the latest.
//
// A session owns locks: open() creates it, and close() releases all its locks. Handles identify
// locks; a handle that is stale, invented or of another session is rejected. Names are 1 to
// kNameMax bytes of any value.
//
// Cost: O(1), except for granting or asking for many locks at once. About 150 bytes per lock with
// its own resource (bench/lock prints it). One owner, no clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/index_table.h"
#include "weir/lock/conversions.h"
#include "weir/lock/mode.h"
#include "weir/lock/resource_name.h"

namespace weir::lock {

inline constexpr std::size_t kNameMax = ResourceName::kSizeMax;
inline constexpr unsigned kFenceCountBits = 44;
inline constexpr std::uint64_t kIncarnationMax = (std::uint64_t{1} << 20) - 1;

// Objects in an array of pages, so that growing moves nothing and needs no second copy. Free slots
// are reused.
template <class T>
class Pages {
 public:
  static constexpr std::size_t kPage = 1024;

  T& operator[](std::uint32_t i) { return (*pages_[i / kPage])[i % kPage]; }
  const T& operator[](std::uint32_t i) const { return (*pages_[i / kPage])[i % kPage]; }

  std::uint32_t take() {
    if (!free_.empty()) {
      const std::uint32_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    if (used_ == pages_.size() * kPage) pages_.push_back(std::make_unique<Page>(kPage));
    return static_cast<std::uint32_t>(used_++);
  }
  void give_back(std::uint32_t slot) { free_.push_back(slot); }
  std::size_t used() const { return used_; }

 private:
  using Page = std::vector<T>;
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<std::uint32_t> free_;
  std::size_t used_ = 0;
};

class LockTable {
 public:
  using Handle = std::uint64_t;
  using Session = std::uint32_t;

  enum class State : std::uint8_t { kFree, kParked, kWaiting, kGranted };

  // An event of a lock, to be passed to its session.
  struct Event {
    enum class Kind : std::uint8_t { kGranted, kAsked, kConverted, kFree };
    Kind kind;
    Mode mode;  // of the lock
    Session session;
    Handle handle;         // 0 for kFree
    std::uint64_t cookie;  // the caller's number, given with enqueue() or watch()
    std::uint64_t fence;
  };

  struct Enqueued {
    Handle handle = 0;  // 0: refused, because it would have to wait
    State state = State::kFree;
    std::uint64_t fence = 0;  // of a granted lock
  };

  enum class OrWait : std::uint8_t { kWait, kTry };

  // A lock in a cycle of conversions, each of which waits for the next, and the last for the first.
  struct Step {
    Session session;
    Mode held;
    Mode wanted;
  };
  struct Converted {
    enum class Outcome : std::uint8_t {
      kDone,       // the lock has the mode
      kWaits,      // an event follows
      kWouldWait,  // refused, as are the following; the mode is as before
      kDeadlock,
      kUnknown,  // the session holds no such lock
    };
    Outcome outcome = Outcome::kUnknown;
    std::uint64_t fence = 0;         // of kDone
    std::vector<Step> cycle = {};    // of kDeadlock; the refused conversion is first
    bool has_withdrawn_one = false;  // an earlier conversion of this lock, which still waited
  };

  // REQUIRES: incarnation <= kIncarnationMax.
  explicit LockTable(std::uint64_t incarnation);

  Session open();
  // Releases the locks of the session and withdraws its waiting enqueues, in order of arrival.
  // Returns how many it held.
  std::size_t close(Session session);

  // REQUIRES: an open session, and is_name(name).
  Enqueued enqueue(Session session, std::uint64_t cookie, std::string_view name, Mode mode,
                   OrWait or_wait);
  // A lock that was granted before a restart or a broken connection, reported by its holder.
  // Returns 0 if it conflicts with a granted lock, or if its fence cannot have been issued.
  Handle replay(Session session, std::uint64_t cookie, std::string_view name, Mode mode,
                std::uint64_t fence);
  // Releases a lock, or withdraws it while it waits. Returns the state it was in; kFree if the
  // session has no such lock.
  State cancel(Session session, Handle handle);

  // Withdraws an earlier conversion of the lock that still waits.
  Converted convert(Session session, Handle handle, Mode mode, OrWait or_wait);
  // Whether it would be done at once, because the mode excludes no more than the present one.
  bool is_downward(Session session, Handle handle, Mode mode) const;

  // Returns whether a lock of the mode would be granted at once, regardless of room. Otherwise an
  // event follows. REQUIRES: is_name(name).
  bool watch(Session session, std::uint64_t cookie, std::string_view name, Mode mode);
  // Whether the session had such a watch.
  bool unwatch(Session session, std::uint64_t cookie);

  // A session that reconnects names the locks it still has, with their modes: those are kept, with
  // these modes. The others are released: their grants, or the notice of their end, were lost with
  // the connection. So are its waiting conversions and its watches. Returns how many locks of these
  // it held.
  bool keep(Session session, Handle handle, Mode mode);
  std::size_t drop_unkept(Session session);
  // Marks granted locks of a resource, those for whose session `is_meant` returns true: they stay
  // granted, and keep() refuses them. Returns how many.
  template <class IsMeant>
  std::size_t revoke(std::string_view name, IsMeant&& is_meant);

  // 0 stops grants. A larger room admits parked enqueues.
  void set_room(std::size_t room);

  // Events since the last call, in order. The caller takes them after each call.
  std::vector<Event>& events() { return events_; }

  // The same in every run.
  static std::uint64_t hash_of(std::string_view name);
  static bool is_name(std::string_view name) { return !name.empty() && name.size() <= kNameMax; }

  std::size_t granted() const { return granted_; }
  std::size_t waiting() const { return waiting_; }
  std::size_t parked() const { return parked_; }
  std::size_t converting() const { return converting_; }
  std::size_t watches() const { return watching_; }
  std::size_t resources() const { return names_.size(); }
  // In any state.
  std::size_t locks_of(Session session) const { return sessions_[session].locks; }
  State state(Handle handle) const;
  // A lock at this moment. The name belongs to the table.
  struct Seen {
    std::string_view name;
    Mode mode;
    State state;
    Session session;
    std::uint64_t fence;  // 0 if not granted
    bool is_asked;        // another session waits for it
    Mode wanted;          // the mode it waits to be converted to; else its own
  };
  // Locks in any state, in internal order: visits `count` places from `from` on and returns the
  // place to continue from, 0 at the end. Locks that are added or removed between two calls may
  // be missed.
  template <class See>
  std::uint32_t visit(std::uint32_t from, std::uint32_t count, See&& see) const;

  // The granted locks of a resource, in order: visits at most `count` and returns how many there
  // are.
  template <class See>
  std::size_t visit_holders(std::string_view name, std::size_t count, See&& see) const;

  // Whether another session waits for this lock.
  bool is_asked(Handle handle) const;

  // Whether no locks conflict, no grantable waiter is left, and no conversions wait for each other;
  // for tests. O(n).
  bool is_valid() const;

 private:
  static constexpr std::uint32_t kNone = IndexTable::kNone;

  struct List {
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
  };
  struct Lock {
    std::uint64_t cookie = 0;
    std::uint64_t fence = 0;
    Session session = 0;
    std::uint32_t resource = kNone;
    std::uint32_t next = kNone;  // in the list of its state
    std::uint32_t prev = kNone;
    std::uint32_t next_of_session = kNone;
    std::uint32_t prev_of_session = kNone;
    std::uint32_t uses = 1;  // times that this slot was used
    Mode mode = Mode::kShared;
    State state = State::kFree;
    bool is_asked = false;
    bool is_kept : 1 = false;
    bool is_converting : 1 = false;
    bool is_revoked : 1 = false;
  };
  struct SessionLocks {
    List list;
    std::uint32_t locks = 0;
    std::uint32_t watches = 0;
  };
  struct Resource {
    ResourceName name;
    List granted;
    List waiting;
    ModeCounts held;               // the modes of the granted locks
    std::uint32_t locks : 30 = 0;  // in any state; the resource is removed with the last
    std::uint32_t has_conversions : 1 = 0;
    std::uint32_t has_watches : 1 = 0;
  };
  struct Watch {
    Session session;
    Mode mode;
    std::uint64_t cookie;
  };

  Seen seen(const Lock& lock) const;
  std::uint32_t find_resource(std::string_view name) const;
  std::uint32_t resource_of(std::string_view name);
  std::uint32_t add_lock(Session session, std::uint64_t cookie, std::string_view name, Mode mode);
  void drop_lock(std::uint32_t index);
  List& list_of(const Lock& lock);
  void append(std::uint32_t index, State state);
  void remove(std::uint32_t index);
  void give_back(std::uint32_t index);
  // Whether the holders allow it; and: nobody is ahead.
  bool can_grant(const Resource& resource, Mode mode) const {
    return resource.granted.first == kNone || resource.held.allow(mode);
  }
  bool is_next(const Resource& resource) const {
    return resource.waiting.first == kNone && resource.has_conversions == 0;
  }
  bool has_room() const { return granted_ + waiting_ < room_; }
  void grant(std::uint32_t index);
  void admit(std::uint32_t index);
  void wake(std::uint32_t resource);
  void unpark();
  void ask(std::uint32_t resource, Mode mode, std::uint32_t except = kNone);
  std::uint64_t next_fence();
  void set_mode(std::uint32_t index, Mode mode);
  void withdraw_conversion(std::uint32_t index);
  bool can_convert(std::uint32_t index, Mode mode) const;
  void grant_conversion(std::uint32_t index, Mode mode);
  void convert_waiting(std::uint32_t resource);
  void tell_watches(std::uint32_t resource);
  void drop_watches(Session session);
  void tell(Event::Kind kind, std::uint32_t index);
  std::uint32_t find(Session session, Handle handle) const;
  Handle handle_of(std::uint32_t index) const {
    return std::uint64_t{locks_[index].uses} << 32 | index;
  }

  Pages<Lock> locks_;
  Pages<Resource> resources_;
  Pages<SessionLocks> sessions_;
  std::map<std::uint32_t, Conversions> conversions_;     // by resource
  std::map<std::uint32_t, std::vector<Watch>> watches_;  // by resource
  IndexTable names_{1024};
  List parked_list_;
  std::vector<Event> events_;
  std::uint64_t incarnation_;
  std::uint64_t grants_ever_ = 0;
  std::size_t room_ = SIZE_MAX;
  std::size_t granted_ = 0;
  std::size_t waiting_ = 0;
  std::size_t parked_ = 0;
  std::size_t converting_ = 0;
  std::size_t watching_ = 0;
};

template <class See>
std::uint32_t LockTable::visit(std::uint32_t from, std::uint32_t count, See&& see) const {
  const std::size_t end = std::min<std::size_t>(std::size_t{from} + count, locks_.used());
  for (std::uint32_t i = from; i < end; ++i) {
    const Lock& lock = locks_[i];
    if (lock.state == State::kFree) continue;
    see(seen(lock));
  }
  return end == locks_.used() ? 0 : static_cast<std::uint32_t>(end);
}

template <class See>
std::size_t LockTable::visit_holders(std::string_view name, std::size_t count, See&& see) const {
  const std::uint32_t found = find_resource(name);
  if (found == kNone) return 0;
  std::size_t holders = 0;
  for (std::uint32_t i = resources_[found].granted.first; i != kNone; i = locks_[i].next) {
    if (holders++ < count) see(seen(locks_[i]));
  }
  return holders;
}

template <class IsMeant>
std::size_t LockTable::revoke(std::string_view name, IsMeant&& is_meant) {
  const std::uint32_t found = find_resource(name);
  if (found == kNone) return 0;
  std::size_t count = 0;
  for (std::uint32_t i = resources_[found].granted.first; i != kNone; i = locks_[i].next) {
    if (!is_meant(locks_[i].session)) continue;
    locks_[i].is_revoked = true;
    ++count;
  }
  return count;
}

}  // namespace weir::lock
