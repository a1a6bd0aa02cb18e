// SPDX-License-Identifier: Apache-2.0
//
// What an administrator can see and change of a lock service, as plain values, for parameters,
// metrics, the page and `weir lock list`.
//
//   control's thread            Console (thread-safe)            the thread that owns LockServer
//   view(), list(), set() ----> passes the call on -----------> look(), list_locks(), turn()
//                         <---- and returns the answer <--------
//
// A service implements Console: each of its calls runs the corresponding function below on the
// thread of its LockServer and returns the result. It may cache a view for a moment. Nothing here
// waits for a network; a call takes milliseconds.
//
// A namespace is one server's lock space; a process may have several, by name.
//
// Example: a namespace "locks" with a limit of 1000 and three clients that hold 600, 300 and 4:
// view() with clients_max = 2 gives granted 904, top {600, 300} and others {clients 1, locks 4}.
//
// Pure: no clock and no thread; `now` is the owner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lock/server.h"

namespace weir::lock {

struct ClientView {
  std::uint64_t client = 0;
  std::string peer = {};      // its address, as given by the transport; may be empty
  std::uint64_t locks = 0;    // granted locks, in use or cached: the server cannot tell which
  std::uint64_t waiting = 0;  // enqueues
  Nanoseconds silent{0};      // since its last message
  bool is_connected = false;
  bool knows_volume = false;  // the feature was negotiated
  // As last reported by the client: CLV of its oldest cached lock, and F. 0: unknown.
  std::uint64_t volume = 0;
  std::uint32_t factor_percent = 0;
};

// Of a server among those that can serve a namespace.
enum class Role : std::uint8_t {
  kAlone,    // there are no others
  kActive,   // it grants the locks
  kStandby,  // another does, or none at the moment: the view is otherwise empty
};
std::string_view role_name(Role role);  // "alone", "active", "standby"

struct NamespaceView {
  std::string name;
  Role role = Role::kAlone;
  std::string active = {};  // name of the active server; empty: alone, or none is active
  Preset preset = Preset::kWeir;
  bool is_recovering = false;

  // The pool, with the names of Lustre's parameters. Rates are per second, of the last period.
  std::uint64_t server_lock_volume = 0;
  std::int64_t limit = 0;
  std::int64_t granted = 0;
  std::int64_t grant_rate = 0;
  std::int64_t cancel_rate = 0;
  std::int64_t grant_speed = 0;
  std::int64_t grant_plan = 0;
  std::int64_t plan_percent = 0;
  Nanoseconds recalc_period{0};
  // As last reported by the clients: the largest CLV, and the range of F. 0: not reported.
  std::uint64_t client_lock_volume = 0;
  std::uint32_t factor_min = 0;
  std::uint32_t factor_max = 0;
  std::string state;  // Lustre's parameter of that name

  // Settings for the clients' caches; 0: none.
  std::uint32_t lru_size = 0;
  Nanoseconds lru_max_age{0};

  std::uint64_t resources = 0;
  std::uint64_t waiting = 0;     // enqueues that wait for a conflicting lock
  std::uint64_t parked = 0;      // enqueues for which there is no room
  std::uint64_t converting = 0;  // granted locks that wait for another mode
  std::uint64_t watches = 0;
  std::uint64_t grants = 0;  // since the start, like the counters
  std::uint64_t cancels = 0;
  LockServer::Counters counters;

  std::vector<ClientView> top;  // the clients with the most locks, in descending order
  struct Others {
    std::uint64_t clients = 0;
    std::uint64_t locks = 0;
    std::uint64_t waiting = 0;
  } others;

  std::uint64_t clients() const { return top.size() + others.clients; }
};

// One lock, granted or requested.
struct LockView {
  std::string name;  // any bytes
  Mode mode = Mode::kShared;
  LockTable::State state = LockTable::State::kGranted;
  std::uint64_t client = 0;
  std::string peer = {};
  std::uint64_t fence = 0;      // 0 if not granted
  bool is_asked = false;        // another client waits for it
  Mode wanted = Mode::kShared;  // the mode that it waits to be converted to; else `mode`
};

struct ListOptions {
  std::string filter = {};  // text that the name contains; empty: all
  std::size_t max = 1000;   // locks in an answer
  std::uint32_t from = 0;   // where the previous page ended
};

// A page of a list: large tables are read in steps, so that clients do not wait.
struct LockList {
  std::vector<LockView> locks;
  std::uint32_t next = 0;  // where to continue; 0: the list is complete
};

// Statistics of the whole service, for `weir lock stats`.
struct LockStats {
  NamespaceView view;
  std::uint64_t incarnation = 0;
  Nanoseconds lease{0};
  std::uint64_t gated = 0;
};

enum class Tunable : std::uint8_t { kLimit, kRecalcPeriod, kLruSize, kLruMaxAge };

// ---- on the thread of the LockServer ----

inline constexpr std::size_t kTopClients = 50;
inline constexpr std::uint32_t kListStep = 16'384;  // places of the table visited in one call

// O(sessions). The caller fills in the peers.
NamespaceView look(const LockServer& server, std::string_view name, Instant now,
                   std::size_t clients_max = kTopClients);
LockList list_locks(const LockServer& server, const ListOptions& options);
// The value is a number of locks for kLimit and kLruSize, nanoseconds for the others. EINVAL: out
// of range.
Result<void> turn(LockServer& server, Tunable tunable, std::int64_t value);
// ENOENT: the client (0: nobody) holds no lock of the resource.
Result<std::size_t> revoke(LockServer& server, std::string_view resource, std::uint64_t client);

// ---- for administrators ----

class Console {
 public:
  Console() = default;
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  virtual ~Console() = default;

  // All namespaces, in a fixed order. At most a moment old.
  virtual std::vector<NamespaceView> view() = 0;
  // ENOENT: no such namespace. EAGAIN: the service is shutting down.
  virtual Result<LockList> list(std::string_view name, const ListOptions& options) = 0;
  // In effect when it returns. ENOENT, EAGAIN; EINVAL: out of range.
  virtual Result<void> set(std::string_view name, Tunable tunable, std::int64_t value) = 0;
  // See LockServer::revoke(). ENOENT: no such namespace, or no such lock is held. EAGAIN.
  virtual Result<std::size_t> revoke(std::string_view name, std::string_view resource,
                                     std::uint64_t client) = 0;
};

// "100", or "50-150" if clients differ; "0" if none was reported. In percent.
std::string factor_text(const NamespaceView& view);
std::string_view state_name(LockTable::State state);  // "granted", "waiting", "parked"

}  // namespace weir::lock
