// SPDX-License-Identifier: Apache-2.0
//
// The client of the lock service without a network: an application acquires and releases locks,
// messages are sent and received, and time is an argument. It caches locks after their last use
// (lru.h), so that most acquires need no message.
//
//   acquire(name, mode) --cached?--> held at once                      no message
//                       `----------> enqueue ... granted -> Event::kHeld
//   release(ticket)     ----------> to the cache, or back to the server if it asked for the lock
//
// One lock of the server serves all users of a resource in this client, as far as its mode covers
// theirs: readers together, a writer alone, first come, first served. A shared lock is returned
// before an exclusive one is requested: two clients that upgraded in place would deadlock. A user
// with a mode that is not covered, and is compatible with the others', gets a lock of its own.
//
// convert() changes the mode of a lock in place. The lock then belongs to this user alone and is
// not cached. The server refuses a conversion that would wait for itself, and names the cycle.
//
// Lease. It is counted from when the last message that the server confirmed was *sent*. After it
// all locks are lost (Event::kLost to each user), whatever the network does later: only then can
// the server grant them to others. Within the lease a broken connection has no effect: on the next
// connection the locks are replayed. Locks that the server does not confirm are lost.
//
// Two calls drive it: tick() at next_tick(), and take() while has_message(). The caller takes the
// events after each call. One owner; a thread-safe client puts a mutex around it. Tickets are never
// reused. acquire() of a cached lock takes about 100 ns and does not allocate.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/index_table.h"
#include "weir/base/time.h"
#include "weir/lock/lock_table.h"
#include "weir/lock/lru.h"
#include "weir/lock/message.h"

namespace weir::lock {

struct ClientOptions {
  LruOptions lru{};
  std::uint32_t features = kFeatureVolume | kFeatureModes;  // 0: an old client
};

class LockClient {
 public:
  using Ticket = std::uint64_t;

  struct Event {
    enum class Kind : std::uint8_t {
      kHeld,
      kRefused,
      kLost,
      kConverted,     // the lock has the mode
      kNotConverted,  // why; the lock is held in its old mode
      kHolders,       // of a watched resource: see holders()
      kFree,          // a watched resource: the watch has ended
    };
    Kind kind;
    Ticket ticket;
    std::uint64_t fence = 0;
    Refusal why = Refusal::kWouldWait;
    // Of the conversion: the first convert() of a ticket is 1.
    std::uint32_t number = 0;
  };

  struct Acquired {
    Ticket ticket = 0;
    bool is_held = false;  // otherwise an Event follows
    std::uint64_t fence = 0;
  };

  explicit LockClient(const ClientOptions& options);

  // ---- the application ----
  // A try is refused if it would have to wait. An invalid name is refused (an Event).
  Acquired acquire(std::string_view name, Mode mode, LockTable::OrWait or_wait, Instant now);
  // Changes the mode of a held lock. At once if it excludes no more than now; otherwise an Event
  // follows, unless the lock is lost before. A conversion that waits is withdrawn by the next and
  // gets no Event. Refused (an Event) if other users of this client share the lock.
  struct Converted {
    bool is_done = false;
    std::uint64_t fence = 0;
  };
  Converted convert(Ticket ticket, Mode mode, LockTable::OrWait or_wait, Instant now);
  // The conversions that would wait for each other, the refused one first; empty: none. Until the
  // next conversion of this ticket.
  std::vector<Cycle::Step> cycle(Ticket ticket) const;
  // Tells who holds a resource (kHolders), and once when a lock of this mode could be acquired at
  // once (kFree). Takes no place in the order of waiters. release() ends it.
  Ticket watch(std::string_view name, Mode mode, Instant now);
  // As of the last kHolders.
  Holders holders(Ticket ticket) const;
  // Ends a ticket in any state: held, waiting (it is withdrawn), watching, lost or refused. An
  // unknown ticket is ignored and counted.
  void release(Ticket ticket, Instant now);
  // Call when memory is short: drops the oldest `nr` cached locks and returns how many were
  // dropped. 0 drops none and returns how many could be dropped. None can while the cache
  // is paused.
  std::size_t shrink(std::size_t nr, Instant now);
  // The same with the fraction given in the options.
  std::size_t relieve(Instant now);
  std::vector<Event>& events() { return events_; }

  // ---- the transport ----
  void connected(Instant now);
  void disconnected();
  void receive(const ServerMessage& message, Instant now);
  bool has_message(Instant now) const;
  // At most this many operations; the others are in the next messages. REQUIRES: connected.
  ClientMessage take(Instant now, std::size_t ops_max = SIZE_MAX);
  // Number of messages that the server has not confirmed.
  std::size_t unconfirmed() const { return sent_at_.size(); }
  void tick(Instant now);
  Instant next_tick() const;

  bool is_connected() const { return is_connected_; }
  // The server has answered the hello.
  bool is_welcome() const { return is_welcome_; }
  // Whether the server knows all modes, conversions and watches. True before the first welcome.
  bool knows_modes() const { return !is_welcome_ || (server_features_ & kFeatureModes) != 0; }
  // 0 before the first welcome.
  Nanoseconds lease() const { return lease_; }
  // Whether the ticket exists and was not released.
  bool is_ticket(Ticket ticket) const { return find_ticket(ticket) != kNone; }
  // Its lock is held, according to the messages received so far.
  bool is_held(Ticket ticket) const {
    const std::uint32_t slot = find_ticket(ticket);
    return slot != kNone && tickets_[slot].state == TicketState::kHeld;
  }
  // The server asks the client to reconnect: the transport closes the connection.
  bool shall_go_away() const { return shall_go_away_; }
  Instant lease_end() const { return lease_end_; }
  std::size_t held() const { return held_; }  // locks of the server, in use or cached
  std::size_t cached() const { return lru_.size(); }
  const Lru& lru() const { return lru_; }

  struct Counters {
    std::uint64_t hits = 0;         // acquires served without a message
    std::uint64_t enqueues = 0;     // sent
    std::uint64_t cancels = 0;      // sent
    std::uint64_t conversions = 0;  // sent
    std::uint64_t watches = 0;      // begun and ended, sent
    std::uint64_t cancels_for_volume = 0;
    std::uint64_t messages = 0;
    std::uint64_t lost = 0;
    std::uint64_t unknown_releases = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::uint32_t kNone = IndexTable::kNone;
  static constexpr Nanoseconds kLinger = std::chrono::seconds{1};

  enum class EntryState : std::uint8_t { kIdle, kEnqueued, kQueued, kHeld };
  enum class ConvertState : std::uint8_t { kNone, kDue, kSent };

  // A resource that this client holds or waits for.
  struct Entry : LruHook {
    std::string name;
    std::uint64_t handle = 0;
    std::uint64_t fence = 0;
    std::uint64_t incarnation = 0;
    std::uint32_t sequence = 0;  // of its cookie: increases with every enqueue
    std::uint32_t users = 0;
    std::uint32_t first_waiter = kNone;
    std::uint32_t last_waiter = kNone;
    std::uint32_t last_user = kNone;
    std::uint32_t answers_due = 0;                         // to conversions
    ModeCounts used;                                       // the modes of its users
    Mode mode = Mode::kShared;                             // of the lock
    Mode wanted = Mode::kShared;                           // of the conversion
    LockTable::OrWait or_wait = LockTable::OrWait::kWait;  // of the conversion
    ConvertState conversion = ConvertState::kNone;
    EntryState state = EntryState::kIdle;
    bool is_live = false;
    bool is_own = false;  // of one user: not found by its name, and not cached
    bool is_asked = false;
    bool is_replaying = false;  // its handle is unknown until the server has answered
  };
  enum class TicketState : std::uint8_t { kFree, kWaiting, kHeld, kOver, kWatching };
  struct TicketSlot {
    std::uint32_t entry = kNone;
    std::uint32_t next = kNone;  // among the waiters of its entry
    std::uint32_t uses = 1;      // times that this slot was used
    std::uint32_t conversions = 0;
    Mode mode = Mode::kShared;
    LockTable::OrWait or_wait = LockTable::OrWait::kWait;
    TicketState state = TicketState::kFree;
  };

  struct Watch {
    std::string name;
    Mode mode;
    Holders holders;
  };

  static std::uint64_t hash_of(std::string_view name);
  std::uint32_t entry_of(std::string_view name);
  void free_entry(std::uint32_t index);
  Ticket ticket_of(std::uint32_t slot) const {
    return std::uint64_t{tickets_[slot].uses} << 32 | slot;
  }
  std::uint32_t find_ticket(Ticket ticket) const;
  std::uint32_t new_ticket(std::uint32_t entry, Mode mode, LockTable::OrWait or_wait);
  void free_ticket(std::uint32_t slot);
  void remove_waiter(Entry& entry, std::uint32_t slot);
  std::uint64_t cookie_of(std::uint32_t index) const {
    return std::uint64_t{entries_[index].sequence} << 32 | index;
  }
  std::uint32_t find_cookie(std::uint64_t cookie) const;

  bool can_use(const Entry& entry, Mode mode) const;
  void use(std::uint32_t index, std::uint32_t slot);
  void refuse(std::uint32_t slot, Refusal why);
  bool is_try(std::uint32_t slot) const;
  void refuse_first(Entry& entry, Refusal why);
  void advance(std::uint32_t index, Instant now);
  bool serve_waiter(std::uint32_t index, std::uint32_t slot);
  bool can_separate(const Entry& entry, Mode mode) const;
  void separate(std::uint32_t index, std::uint32_t slot);
  void send_conversion(std::uint32_t index);
  void answer_conversion(std::uint32_t index, const ServerOp& op);
  void refuse_conversion(std::uint32_t slot, Refusal why);
  void send_watch(Ticket ticket, const Watch& watch);
  void apply_watch(const ServerOp& op);
  void unwatch(Ticket ticket);
  void keep_reports(const ServerMessage& message);
  bool is_supported(Mode mode) const {
    return knows_modes() || mode == Mode::kShared || mode == Mode::kExclusive;
  }
  void enqueue(std::uint32_t index);
  void give_back(std::uint32_t index);
  void cancel(std::uint64_t handle);
  void drop(Entry& entry, Instant now);
  Instant next_message() const;
  void lose(std::uint32_t index, Instant now);
  void expire(Instant now);
  void expire_if_due(Instant now) {
    if (held_ > 0 && now >= lease_end_) expire(now);
  }
  void trim(Instant now);
  void apply(const ServerOp& op, Instant now);
  void welcome(const ServerOp& op);
  void set_held(Entry& entry, std::uint64_t handle, std::uint64_t fence);
  void confirm(std::uint64_t number);

  ClientOptions options_;
  Pages<Entry> entries_;
  Pages<TicketSlot> tickets_;
  IndexTable names_{256};
  std::vector<Event> events_;
  std::vector<ClientOp> out_;
  std::map<Ticket, Watch> watches_;
  std::map<Ticket, std::vector<Cycle::Step>> cycles_;  // of refused conversions
  std::deque<Instant> sent_at_;                        // of the messages after confirmed_
  std::uint64_t confirmed_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t client_ = 0;
  SessionSecret secret_{};
  std::uint64_t incarnation_ = 0;
  std::uint32_t server_features_ = 0;
  Nanoseconds lease_{0};
  Instant lease_from_{};
  Instant lease_end_{};
  Instant last_sent_{};
  std::size_t held_ = 0;
  bool is_connected_ = false;
  bool is_welcome_ = false;
  bool shall_go_away_ = false;
  bool is_urgent_ = false;  // another client waits for an operation in out_
  Instant linger_until_{};  // operations in out_ are sent at this time at the latest
  Counters counters_;
  Lru lru_;  // declared after the entries that it links
};

}  // namespace weir::lock
