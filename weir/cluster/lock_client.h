// SPDX-License-Identifier: Apache-2.0
//
// A client of the lock service: named locks that hold across machines. It caches locks it no longer
// uses, so that taking one again costs no message, and returns them when the server asks.
//
//   auto client = lock::Client::create({.server = "10.0.0.1:10811"});
//   auto lock = (*client)->take("project/run42", lock::Mode::kExclusive, 30s);   waits for it
//   write_to_storage(data, lock->fence());     storage rejects fences below the largest it has seen
//   if (lock->is_lost()) ...                   another client may have it now: stop
//
// Six modes (weir/lock/mode.h). A lock can be converted while it is held:
//
//   lock->convert(lock::Mode::kShared)        at once: others may read now
//   lock->convert(lock::Mode::kExclusive)     waits; EDEADLK names the clients that wait in a
//   circle
//
// Without waiting: acquire() with a Listener, which is notified when the lock is held, refused, or
// later lost. A thread of the client calls listeners one at a time, in order, without holding a
// mutex: they may call the client. After release() returns, there are no more events for a ticket.
//
// A broken connection loses no lock if the client reaches the server again within the lease: it
// reconnects and replays its locks. Otherwise they are lost, and each user is notified when the
// lease ends, whether or not a server can be reached. The next connection uses certificates that
// were renewed meanwhile.
//
// With several servers, of which one is active (weir/lock/term.h), it tries one after the other
// until one accepts it, and again after the connection breaks. It leaves a server that has not
// answered for half of the lease, so that the other half is left for the next.
//
// It checks once a second whether memory is short, and then drops a fraction of its cache.
//
// Thread-safe. Acquiring and releasing a cached lock takes about 100 ns. A forked child must not
// use its parent's client.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/memory_pressure.h"
#include "weir/lock/client.h"

namespace weir::lock {

struct ConnectOptions {
  // ADDRESS:PORT, NAME:PORT or unix:PATH; several, separated by commas, of one cluster.
  std::string server;
  std::string job;  // claimed job, if the server accepts the claim; may be empty
  ClientOptions client{};
  std::string tls_directory{};  // see credentials.h; empty: plain text
  // Sources of memory pressure; none: those of this process.
  std::optional<host::MemoryPressure::Sources> pressure = std::nullopt;
};

// EINVAL: not an address, or too many.
Result<void> check(const ConnectOptions& options);
// REQUIRES: checked.
std::vector<std::string> servers_of(const ConnectOptions& options);

class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  // kHeld or kRefused once, unless acquire() already returned it; kLost after kHeld; kConverted or
  // kNotConverted after convert(), unless it already returned it or the lock is lost. For watch():
  // kHolders, again after each new connection, and kFree or kRefused once.
  virtual void lock_event(const LockClient::Event& event) = 0;
};

class Client;

// A lock that is held until this object is destroyed.
class HeldLock {
 public:
  HeldLock(HeldLock&&) noexcept;
  HeldLock& operator=(HeldLock&&) noexcept;
  ~HeldLock();

  std::uint64_t fence() const;
  // May be called by any thread.
  bool is_lost() const;
  // Waits until the lock is held in this mode, then fence() may be a new one. On failure the lock
  // is held in its old mode: ETIMEDOUT; EAGAIN: another client holds it (try_convert); EDEADLK: it
  // would wait for itself; EBUSY: other users of this client share the lock; ENOLCK: it is lost.
  Result<void> convert(Mode mode, std::optional<Nanoseconds> timeout = std::nullopt);
  Result<void> try_convert(Mode mode);
  void release();

 private:
  friend class Client;
  Result<void> convert(Mode mode, LockTable::OrWait or_wait, std::optional<Nanoseconds> timeout);
  struct State;
  explicit HeldLock(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;  // empty: released
};

class Client {
 public:
  using Ticket = LockClient::Ticket;
  using OrWait = LockTable::OrWait;

  // Connects in the background; earlier calls wait for the connection. Fails if certificates cannot
  // be read.
  static Result<std::unique_ptr<Client>> create(const ConnectOptions& options);
  // Calls close().
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The listener must live until the ticket is released. Held at once if a cached lock can be used.
  virtual LockClient::Acquired acquire(std::string_view name, Mode mode, OrWait or_wait,
                                       Listener& listener) = 0;
  // See LockClient.
  virtual LockClient::Converted convert(Ticket ticket, Mode mode, OrWait or_wait) = 0;
  virtual std::vector<Cycle::Step> cycle(Ticket ticket) const = 0;
  // The listener must live until the ticket is released.
  virtual Ticket watch(std::string_view name, Mode mode, Listener& listener) = 0;
  virtual Holders holders(Ticket ticket) const = 0;
  // Ends a ticket in any state. Waits for its listener if another thread is calling it.
  virtual void release(Ticket ticket) = 0;
  // Whether the ticket's lock is held now: it was granted, and the lease has not ended. A listener
  // may be notified of the end a little later.
  virtual bool is_held(Ticket ticket) = 0;

  // Acquires a lock and waits for it. ETIMEDOUT: not within the timeout; EAGAIN: another client
  // holds it (try_take); EINVAL: not a valid name; ENOBUFS: this client waits for too many locks.
  Result<HeldLock> take(std::string_view name, Mode mode,
                        std::optional<Nanoseconds> timeout = std::nullopt);
  Result<HeldLock> try_take(std::string_view name, Mode mode);

  // Call when memory is short: drops the oldest `nr` cached locks and returns how many were
  // dropped. 0 drops none and returns how many could be dropped.
  virtual std::size_t shrink(std::size_t nr) = 0;
  // The same with the fraction given in the options.
  virtual std::size_t relieve() = 0;

  // Returns all locks and disconnects. No call may follow or be in progress. Waits up to `patience`
  // for the server; if it does not answer, it revokes the locks when the lease ends.
  virtual void close(Nanoseconds patience) = 0;
  void close() { close(std::chrono::seconds{2}); }

  struct Status {
    bool is_connected = false;
    bool is_refused = false;  // a server answers but refuses this client
    std::string trouble;      // why it is not connected, if known
    std::size_t held = 0;
    std::size_t cached = 0;
    Nanoseconds lease{0};
    LockClient::Counters counters;
  };
  virtual Status status() const = 0;

 protected:
  Client() = default;

 private:
  Result<HeldLock> wait_for(std::string_view name, Mode mode, OrWait or_wait,
                            std::optional<Nanoseconds> timeout);
};

// "client 1 holds shared and wants exclusive, client 2 ...; each would wait for the next ...".
std::string cycle_text(const std::vector<Cycle::Step>& cycle);

// For an application with several servers: divides `nr` over its clients by the size of their
// caches. Returns how many locks were dropped, or with 0 how many could be dropped.
std::size_t shrink(std::span<Client* const> clients, std::size_t nr);

}  // namespace weir::lock
