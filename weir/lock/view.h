// SPDX-License-Identifier: Apache-2.0
//
// What an administrator can see and change of a lock service, as plain values: parameters, metrics,
// the page and `weir lock list` are based on them.
//
//   control's thread            Console (thread-safe)            the thread that owns LockServer
//   view(), list(), set() ----> carries the call over -------->  look(), list_locks(), turn()
//                         <---- and the answer back   <--------
//
// A service implements Console: each of its calls runs the corresponding function below on the
// thread of its LockServer and returns the result. It may cache a view for a moment. Nothing here
// waits for a network; a call takes milliseconds.
//
// A namespace is one server's lock space; a process may have several, by name.
//
// Worked: a namespace "locks" with a limit of 1000 and three clients that hold 600, 300 and 4:
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
  std::string peer = {};      // where it connects from, as the transport calls it; may be empty
  std::uint64_t locks = 0;    // granted: used or cached, the server cannot tell
  std::uint64_t waiting = 0;  // enqueues
  Nanoseconds silent{0};      // since it was last heard
  bool is_connected = false;
  bool knows_volume = false;  // the feature was agreed on
  // As the client said last: CLV of its oldest cached lock, and F. 0: unknown.
  std::uint64_t volume = 0;
  std::uint32_t factor_percent = 0;
};

struct NamespaceView {
  std::string name;
  Preset preset = Preset::kWeir;
  bool is_recovering = false;

  // The pool, as Lustre's parameters name its numbers. Rates are per second, of the last period.
  std::uint64_t server_lock_volume = 0;
  std::int64_t limit = 0;
  std::int64_t granted = 0;
  std::int64_t grant_rate = 0;
  std::int64_t cancel_rate = 0;
  std::int64_t grant_speed = 0;
  std::int64_t grant_plan = 0;
  std::int64_t plan_percent = 0;
  Nanoseconds recalc_period{0};
  // As the clients said last: the largest CLV, and the range of F. 0: nobody has said.
  std::uint64_t client_lock_volume = 0;
  std::uint32_t factor_min = 0;
  std::uint32_t factor_max = 0;
  std::string state;  // Lustre's parameter of that name, whole

  // What the server says of its clients' caches: 0 for nothing.
  std::uint32_t lru_size = 0;
  Nanoseconds lru_max_age{0};

  std::uint64_t resources = 0;
  std::uint64_t waiting = 0;  // enqueues behind others for a resource
  std::uint64_t parked = 0;   // enqueues for which there is no room
  std::uint64_t grants = 0;   // ever; so are the counters
  std::uint64_t cancels = 0;
  LockServer::Counters counters;

  std::vector<ClientView> top;  // those with most locks, most first
  struct Others {
    std::uint64_t clients = 0;
    std::uint64_t locks = 0;
    std::uint64_t waiting = 0;
  } others;

  std::uint64_t clients() const { return top.size() + others.clients; }
};

// One lock, granted or wanted.
struct LockView {
  std::string name;  // any bytes
  Mode mode = Mode::kShared;
  LockTable::State state = LockTable::State::kGranted;
  std::uint64_t client = 0;
  std::string peer = {};
  std::uint64_t fence = 0;  // 0 if it is not granted
  bool is_asked = false;    // somebody waits for it
};

struct ListOptions {
  std::string filter = {};  // a part of the name; empty: all
  std::size_t max = 1000;   // locks in an answer
  std::uint32_t from = 0;   // where the answer before ended
};

// Part of a list: large tables are looked at in steps, so that clients do not wait for them.
struct LockList {
  std::vector<LockView> locks;
  std::uint32_t next = 0;  // ask again from here; 0: that was all
};

// Of the whole service: what `weir lock stats` shows.
struct LockStats {
  NamespaceView view;
  std::uint64_t incarnation = 0;
  Nanoseconds lease{0};
  std::uint64_t gated = 0;
};

enum class Tunable : std::uint8_t { kLimit, kRecalcPeriod, kLruSize, kLruMaxAge };

// ---- where the LockServer lives ----

inline constexpr std::size_t kTopClients = 50;
inline constexpr std::uint32_t kListStep = 16'384;  // places of the table looked at in one call

// O(sessions). Peers are the caller's to fill in.
NamespaceView look(const LockServer& server, std::string_view name, Instant now,
                   std::size_t clients_max = kTopClients);
LockList list_locks(const LockServer& server, const ListOptions& options);
// Locks for kLimit and kLruSize, nanoseconds for the others. EINVAL: out of range.
Result<void> turn(LockServer& server, Tunable tunable, std::int64_t value);

// ---- where the administrator is ----

class Console {
 public:
  Console() = default;
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  virtual ~Console() = default;

  // All namespaces, in a fixed order. At most a moment old.
  virtual std::vector<NamespaceView> view() = 0;
  // ENOENT: no such namespace. EAGAIN: the service stops.
  virtual Result<LockList> list(std::string_view name, const ListOptions& options) = 0;
  // In force for whatever is asked after it returns. ENOENT, EAGAIN; EINVAL: out of range.
  virtual Result<void> set(std::string_view name, Tunable tunable, std::int64_t value) = 0;
};

// "100", or "50-150" where clients differ; "0" where none has said. In percent.
std::string factor_text(const NamespaceView& view);
std::string_view mode_name(Mode mode);                // "shared", "exclusive"
std::string_view state_name(LockTable::State state);  // "granted", "waiting", "parked"

}  // namespace weir::lock
