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
// One lock of the server serves all users of a resource in this client: readers together, a writer
// alone, first come, first served. A shared lock is returned before an exclusive one is requested:
// two clients that upgraded in place would deadlock.
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
  std::uint32_t features = kFeatureVolume;  // 0: a client without support for the volume
};

class LockClient {
 public:
  using Ticket = std::uint64_t;

  struct Event {
    enum class Kind : std::uint8_t { kHeld, kRefused, kLost };
    Kind kind;
    Ticket ticket;
    std::uint64_t fence = 0;
    Refusal why = Refusal::kWouldWait;
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
  // Ends a ticket in any state: held, waiting (it is withdrawn), lost or refused. An unknown ticket
  // is ignored and counted.
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
    std::uint64_t hits = 0;      // acquires served without a message
    std::uint64_t enqueues = 0;  // sent
    std::uint64_t cancels = 0;   // sent
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
    Mode mode = Mode::kShared;  // of the lock
    EntryState state = EntryState::kIdle;
    bool is_live = false;
    bool is_used_exclusively = false;
    bool is_asked = false;
    bool is_replaying = false;  // its handle is unknown until the server has answered
  };
  enum class TicketState : std::uint8_t { kFree, kWaiting, kHeld, kOver };
  struct TicketSlot {
    std::uint32_t entry = kNone;
    std::uint32_t next = kNone;  // among the waiters of its entry
    std::uint32_t uses = 1;      // times that this slot was used
    Mode mode = Mode::kShared;
    LockTable::OrWait or_wait = LockTable::OrWait::kWait;
    TicketState state = TicketState::kFree;
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
  std::deque<Instant> sent_at_;  // of the messages after confirmed_
  std::uint64_t confirmed_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t client_ = 0;
  SessionSecret secret_{};
  std::uint64_t incarnation_ = 0;
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
