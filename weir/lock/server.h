// SPDX-License-Identifier: Apache-2.0
//
// The server of the lock service without a network: messages in, messages out; time is an argument.
// It combines the table (holders), the pool (counts and volume) and leases (live clients).
//
//             receive(connection, message)                 take(connection) -> message
//   client --------------------------------> LockServer ---------------------------------> client
//                                             |     ^  dirty(): connections with messages
//                                   tick(now) recalc, evict, end of grace; next_tick(): when
//
// Safety depends on three times. A client counts its lease from when it *sent* the last confirmed
// message; the server from when it *received* that message, which is later, and waits an eighth
// longer for clocks of different speed. So when a dead client is evicted and its locks are granted
// to others, the client has already given them up:
//
//   client   sent |----------- lease -----------|  all locks lost
//   server        received |----------- lease -----------|-- 1/8 --| evicted
//
// A server that restarts has no locks. It grants nothing for the grace period, which is longer than
// the lease (checked): by then every holder has replayed its lock or lost it. With a grace of 0 two
// clients would hold one exclusive lock; the simulator's checker shows it.
//
// Access. A session belongs to the client that was welcomed with its number and presents its
// secret (secret.h), on a connection of the same principal; any other client that names the number
// is welcomed as a new one. Handles are valid only in the session they were given to. During the
// grace period, locks of an earlier server are accepted only from clients of that time, which the
// secret proves.
//
// The transport opens and closes connections by number. A peer that violates the protocol (an
// operation before hello, a second hello, numbers out of order) is told to disconnect, and its
// connection accepts no more messages.
//
// Bounds: sessions_max sessions, waiting_max waiting enqueues and conversions for each and as many
// watches, names of kNameMax. One owner; allocates for messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <boost/intrusive/list.hpp>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lock/lock_table.h"
#include "weir/lock/message.h"
#include "weir/lock/pool.h"
#include "weir/lock/secret.h"

namespace weir::lock {

struct ServerOptions {
  PoolOptions pool{};
  Nanoseconds lease = std::chrono::seconds{30};
  Nanoseconds grace = std::chrono::seconds{45};
  std::uint32_t features = kFeatureVolume | kFeatureModes;  // 0: an old server
  std::size_t sessions_max = 100'000;
  std::size_t waiting_max = 10'000;  // waiting enqueues and conversions of a session, and watches

  bool operator==(const ServerOptions&) const = default;
};

// Also checks that the grace period is longer than the lease.
Result<void> check(const ServerOptions& options);

class LockServer {
 public:
  enum class Start : std::uint8_t { kFresh, kRecovering };
  using Connection = std::uint64_t;

  // `incarnation` counts starts and is kept across them; the first is 1. A server whose predecessor
  // ever granted a lock starts with kRecovering. `secret_of` is the same function in all
  // incarnations. REQUIRES: valid pool options; the grace is not checked, so that tests can show
  // the effect of a short one.
  LockServer(const ServerOptions& options, std::uint64_t incarnation, Start start, Instant now,
             SecretOf secret_of = open_secret);
  ~LockServer();
  LockServer(const LockServer&) = delete;
  LockServer& operator=(const LockServer&) = delete;

  // Only these clients can hold locks of the earlier server: the grace period ends when they have
  // reported. REQUIRES: recovering, at least one client, called before the first message.
  void await(const std::vector<std::uint64_t>& clients);

  // ---- the transport ----
  // `principal` is the authenticated name of the peer; empty: not authenticated.
  void connect(Connection connection, Instant now, std::string_view principal = {});
  // The session stays, with its locks, until its lease ends.
  void disconnect(Connection connection);
  // False: the peer violated the protocol. Send the messages of take(), then close.
  bool receive(Connection connection, const ClientMessage& message, Instant now);
  // For a transport that lets some operations wait: they are passed in later than their
  // message, one by one. Those of a closed or broken connection are ignored. REQUIRES: an
  // enqueue, a cancel or a conversion.
  void perform(Connection connection, const ClientOp& op);
  void refuse(Connection connection, const ClientOp& op, Refusal why);
  // Whether the operation lets others in and waits for nobody: a cancel, or a conversion to a mode
  // that excludes less.
  bool is_return(Connection connection, const ClientOp& op) const;
  // Connections with new messages since the last call, each once. The caller clears it.
  std::vector<Connection>& dirty() { return dirty_; }
  // The next message, with the current volume and limit.
  ServerMessage take(Connection connection);

  // ---- time ----
  void tick(Instant now);
  Instant next_tick() const;

  // As in the pool; if there is more room, waiting enqueues enter at once.
  Result<void> set_limit(std::int64_t limit);
  // Takes the locks of a resource away from their holders, or from one client (0: from all). A
  // holder is disconnected, and its lock is lost when it reports it; others get the lock then, or
  // after the lease of a holder that does not report. Returns the number of locks.
  std::size_t revoke(std::string_view name, std::uint64_t client = 0);
  // Settings for the caches of all clients, sent with their next message; 0: no setting.
  void advise(std::uint32_t lru_size, Nanoseconds lru_max_age);
  std::uint32_t lru_size() const { return lru_size_; }
  Nanoseconds lru_max_age() const { return lru_max_age_; }

  // A client that has, or may have, locks.
  struct Seen {
    std::uint64_t client;
    Connection connection;  // 0: not connected
    std::uint32_t features;
    Instant heard_at;
    std::size_t locks;  // granted
    std::size_t waiting;
    std::uint64_t volume;          // last reported CLV of its oldest cached lock
    std::uint32_t factor_percent;  // F; 0: not reported
  };
  // Each session; the one silent for longest is first.
  template <class See>
  void visit_sessions(See&& see) const {
    for (const Session& session : by_hearing_) see(seen(session));
  }
  // The client that owns a lock of the table; 0 if it has just left.
  std::uint64_t client_of(LockTable::Session session) const;

  ServerPool& pool() { return pool_; }
  const ServerPool& pool() const { return pool_; }
  const LockTable& table() const { return table_; }
  bool is_recovering() const { return is_recovering_; }
  std::uint64_t incarnation() const { return incarnation_; }
  std::size_t sessions() const { return sessions_.size(); }

  struct Counters {
    std::uint64_t evictions = 0;
    std::uint64_t unknown_cancels = 0;  // cancels of locks that the session does not have
    std::uint64_t bad_names = 0;
    std::uint64_t too_many = 0;
    std::uint64_t broken_rules = 0;
    std::uint64_t lost_replays = 0;
    std::uint64_t conversions = 0;    // granted
    std::uint64_t deadlocks = 0;      // conversions refused
    std::uint64_t revoked = 0;        // locks taken away by an administrator
    std::uint64_t wrong_secrets = 0;  // hello with the number of a session and a wrong secret
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Session : boost::intrusive::list_base_hook<> {
    std::uint64_t client = 0;
    LockTable::Session locks = 0;
    std::uint32_t features = 0;
    Connection connection = 0;  // 0: not connected
    Instant heard_at{};
    bool is_replaying = false;
    bool is_from_before = false;  // welcomed by an earlier incarnation
    std::size_t waiting = 0;      // enqueues and conversions
    std::size_t watches = 0;
    std::uint64_t volume = 0;
    std::uint32_t factor_percent = 0;
    std::uint64_t period = 0;  // in which it last got a grant
  };
  struct Link {
    Session* session = nullptr;  // nullptr before hello
    std::string principal;
    std::uint64_t number = 0;
    bool is_dirty = false;
    bool is_broken = false;
    std::vector<ServerOp> ops;
    std::vector<Cycle> cycles;
    std::vector<Holders> holders;
  };

  bool apply(Connection connection, Link& link, const ClientOp& op, Instant now);
  bool hello(Connection connection, Link& link, const ClientOp& op, Instant now);
  Session* open_session(std::uint64_t client, Instant now);
  void part(Session& session);
  Link* open_link(Connection connection);
  void replay(Link& link, const ClientOp& op);
  void enqueue(Link& link, const ClientOp& op);
  void cancel(Session& session, std::uint64_t handle);
  void convert(Link& link, const ClientOp& op);
  void watch(Link& link, const ClientOp& op);
  void settle_events();
  void reported(std::uint64_t client, Instant now);
  void count_grant(Session* session);
  void evict(Session& session, Instant now);
  void end(Session& session, Instant now);
  void mark(Connection connection, Link& link);
  void heard(Session& session, Instant now);
  Instant evict_at(const Session& session) const;
  Seen seen(const Session& session) const;
  std::size_t room() const;

  ServerOptions options_;
  std::uint64_t incarnation_;
  SecretOf secret_of_;
  std::uint64_t clients_ever_ = 0;
  std::uint64_t period_ = 1;  // of the pool
  std::int64_t active_ = 0;   // clients with a grant in the period
  LockTable table_;
  ServerPool pool_;
  std::uint32_t lru_size_ = 0;
  Nanoseconds lru_max_age_{0};
  bool is_recovering_;
  Instant grace_ends_;
  absl::flat_hash_set<std::uint64_t> awaited_;                             // clients; see await()
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Session>> sessions_;  // by client
  boost::intrusive::list<Session> by_hearing_;  // the one silent for longest is first
  std::vector<Session*> by_slot_;               // by session of the table
  absl::flat_hash_map<Connection, Link> links_;
  std::vector<Connection> dirty_;
  Counters counters_;
};

}  // namespace weir::lock
