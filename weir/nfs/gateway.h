// SPDX-License-Identifier: Apache-2.0
//
// What the sessions of one gateway share: the server they forward to, and what must be known across
// connections, because a mount may use several of them (nconnect).
//
//   sessions    of NFS 4.1 and later: how many slots they have and how many hold a parked call.
//               One session serves all users of a mount, so the calls that one user has parked must
//               leave slots to the others: see may_park()
//   recalls     files whose delegation the server wants back from a client: calls on them do not
//               wait until the client has returned it, or for the time of a lease
//   counters    for metrics
//
// Bounds: kSessionsMax sessions, kRecallsMax recalls. A session that is not known has
// kSlotsUnknown slots. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/operation_kind.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/nid.h"
#include "weir/host/mutex.h"
#include "weir/nfs/codec/compound.h"
#include "weir/serve/options.h"
#include "weir/serve/upstream.h"

namespace weir::nfs {

// The address of HOST[:PORT]; asks the resolver, so it may take a while.
Result<serve::ServerAddress> find_server(const std::string& text);

struct Counters {
  using Count = std::atomic<std::uint64_t>;

  Count calls = 0;               // of clients, callbacks not included
  Count free = 0;                // of them, neither charged nor queued
  Count exempt = 0;              // charged, not queued
  Count delayed = 0;             // answered NFS4ERR_DELAY
  Count duplicates_dropped = 0;  // of a call that was parked
  Count duplicates_forwarded = 0;
  Count callbacks = 0;
  Count replies_unmatched = 0;
  Count slots_given_up = 0;  // of calls that the server has not answered for kLate
  Count tls_refused = 0;
  Count server_unreachable = 0;  // connections that ended for this reason
  Count server_closed = 0;
  Count recalls = 0;
  Count layouts = 0;     // granted by the server: their data bypasses the gateway
  Count moved = 0;       // NFS4ERR_MOVED
  Count stalled_ns = 0;  // connections were not read from, for want of memory
};

using SessionId = std::array<std::byte, kSessionIdBytes>;

class Gateway {
 public:
  static constexpr std::size_t kSessionsMax = 65'536;
  static constexpr std::size_t kRecallsMax = 1024;
  static constexpr std::uint32_t kSlotsUnknown = 64;  // what Linux asks for
  static constexpr Nanoseconds kLeaseUnknown = std::chrono::seconds{90};

  Gateway(serve::NfsOptions options, serve::ServerAddress server)
      : options_(std::move(options)), server_(std::move(server)) {}

  const serve::NfsOptions& options() const { return options_; }
  const serve::ServerAddress& server() const { return server_; }
  Counters& counters() { return counters_; }

  void set_lease(Nanoseconds lease) { lease_ = lease; }
  Nanoseconds lease() const { return lease_; }
  // How long a call of a session may wait: max_wait, but never more than a third of a lease.
  Nanoseconds wait_max() const { return std::min(options_.max_wait, lease() / 3); }

  void set_slots(const SessionId& session, std::uint32_t slots);
  // Counts a call that is going to wait, unless too many of its session do: of one user a quarter
  // of the slots, of all users half. A refused WRITE sends its payload again every 0.1 s, so writes
  // may take all but a quarter of the slots (8 at least).
  bool park(const SessionId& session, std::uint32_t uid, OperationKind kind);
  // It waits no more.
  void unpark(const SessionId& session, std::uint32_t uid);
  std::uint32_t parked(const SessionId& session) const;

  void recall(const Nid& client, Bytes file_handle, Instant until);
  void returned(const Nid& client, Bytes file_handle);
  bool is_recalled(const Nid& client, Bytes file_handle, Instant now) const;

  // Whether a warning of this kind was given for this client before.
  enum class Warning : std::uint8_t { kLayouts, kReferral };
  bool is_first(Warning warning, const Nid& client);

 private:
  struct SessionSlots {
    std::uint32_t slots = kSlotsUnknown;
    std::uint32_t parked = 0;
    absl::flat_hash_map<std::uint32_t, std::uint32_t> by_user;
  };
  struct Recall {
    Nid client;
    std::vector<std::byte> file_handle;
    Instant until;
  };
  struct Told {
    Warning warning;
    Nid client;
  };

  SessionSlots& slots_of(const SessionId& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const serve::NfsOptions options_;
  const serve::ServerAddress server_;
  Counters counters_;
  std::atomic<Nanoseconds> lease_ = kLeaseUnknown;
  // Read for each call, so that most need no lock.
  std::atomic<std::size_t> recall_count_ = 0;
  mutable host::Mutex mutex_;
  absl::flat_hash_map<SessionId, SessionSlots> sessions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Recall> recalls_ ABSL_GUARDED_BY(mutex_);
  std::deque<Told> told_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::nfs
