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
// Without waiting: acquire() with a Listener, which is told that the lock is held, refused,
// or later lost. A thread of the client calls listeners one at a time, in order, without
// holding a mutex: they may call the client. After release() returns, a ticket has no more
// events.
//
// A connection that breaks costs nothing as long as it, or the server, is back within the lease:
// the client reconnects and replays its locks. Otherwise they are lost, and each user is told when
// the lease ends, whether or not a server can be reached. Certificates that were renewed meanwhile
// are used by the next connection.
//
// It checks once a second whether memory is short, and then drops a share of its
// cache.
//
// Thread-safe. A lock that is cached is taken again and let go in about 100 ns. A fork(2)ed child
// must not use its parent's client.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/memory_pressure.h"
#include "weir/lock/client.h"

namespace weir::lock {

struct ConnectOptions {
  std::string server;  // ADDRESS:PORT, NAME:PORT or unix:PATH
  std::string job;     // whom it works for, where the server lets it say so; may be empty
  ClientOptions client{};
  std::string tls_directory{};  // as credentials.h has it; empty: plain
  // Where to see that memory is short; none: where it shows for this process.
  std::optional<host::MemoryPressure::Sources> pressure = std::nullopt;
};

// EINVAL: no address.
Result<void> check(const ConnectOptions& options);

class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  // kHeld or kRefused once, unless acquire() said so already; kLost after kHeld.
  virtual void lock_event(const LockClient::Event& event) = 0;
};

class Client;

// A lock that is held until this goes away.
class HeldLock {
 public:
  HeldLock(HeldLock&&) noexcept;
  HeldLock& operator=(HeldLock&&) noexcept;
  ~HeldLock();

  std::uint64_t fence() const;
  // By any thread.
  bool is_lost() const;
  void release();

 private:
  friend class Client;
  struct State;
  explicit HeldLock(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;  // empty: released
};

class Client {
 public:
  using Ticket = LockClient::Ticket;
  using OrWait = LockTable::OrWait;

  // Connects in the background. Whoever asks before that waits. An error for certificates that
  // cannot be read.
  static Result<std::unique_ptr<Client>> create(const ConnectOptions& options);
  // As close().
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The listener lives until the ticket is released. Held at once if a cached lock serves.
  virtual LockClient::Acquired acquire(std::string_view name, Mode mode, OrWait or_wait,
                                       Listener& listener) = 0;
  // Ends a ticket in any state. Waits for its listener, if that is being called by another thread.
  virtual void release(Ticket ticket) = 0;
  // Whether the ticket's lock is held at this very moment: it was granted, and the lease has not
  // ended. A listener may be told of the end a little later.
  virtual bool is_held(Ticket ticket) = 0;

  // The same, and waits. ETIMEDOUT: not within the timeout; EAGAIN: refused, since somebody has it
  // (a try); EINVAL: no name; ENOBUFS: this client waits for too many.
  Result<HeldLock> take(std::string_view name, Mode mode,
                        std::optional<Nanoseconds> timeout = std::nullopt);
  Result<HeldLock> try_take(std::string_view name, Mode mode);

  // Memory is short: drops the oldest `nr` cached locks, and says how many went. 0 drops none and
  // says how many could go.
  virtual std::size_t shrink(std::size_t nr) = 0;
  // The same where nobody says how many: the share of the options.
  virtual std::size_t relieve() = 0;

  // Gives all back and leaves. No calls may follow, and none may be under way. Waits for the server
  // as long as `patience`; one that does not hear of it takes the locks back at the lease's end.
  virtual void close(Nanoseconds patience) = 0;
  void close() { close(std::chrono::seconds{2}); }

  struct Status {
    bool is_connected = false;
    bool is_refused = false;  // a server answers, and does not let it in
    std::string trouble;      // why it is not connected, as far as known
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

// Of an application with several servers: shares the `nr` out over its clients by the size of their
// caches. How many went, or with 0 how many could.
std::size_t shrink(std::span<Client* const> clients, std::size_t nr);

}  // namespace weir::lock
