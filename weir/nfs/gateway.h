// SPDX-License-Identifier: Apache-2.0
//
// State that the sessions of one gateway share: the server they forward to, and facts that must be
// known across connections, because a mount may use several (nconnect).
//
//   sessions    of NFS 4.1 and later: how many slots they have and how many hold a parked call.
//               One session serves all users of a mount, so the calls that one user has parked must
//               leave slots to the others: see park(). A refused write is sent again with its
//               payload, so refusals of writes are spread: see refuse_write()
//   jobs        which job runs on which client, from Slurm
//   exports     which export a file belongs to, by its file handle
//   recalls     files whose delegation the server recalls from a client: calls on them do not wait
//               until the client has returned it, or for the time of a lease
//   owners      which client uses which client owner: two clients with the same one destroy each
//               other's state
//   counters    for metrics
//
// Bounds: kSessionsMax sessions, kRecallsMax recalls, kOwnersMax owners, kMarksMax marks of
// clients. A session that is not known has kSlotsUnknown slots, and is forgotten when none of its
// calls is parked, so that invented sessions cost nothing. Calls of sessions beyond the bound are
// not parked. The oldest owners and marks are forgotten: a warning may then be repeated.
// Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "weir/base/big_endian.h"
#include "weir/base/operation_kind.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/nid.h"
#include "weir/host/mutex.h"
#include "weir/nfs/codec/compound.h"
#include "weir/nfs/counters.h"
#include "weir/nfs/exports.h"
#include "weir/nfs/host_jobs.h"
#include "weir/serve/options.h"
#include "weir/serve/upstream.h"

namespace weir::nfs {

// The address of HOST[:PORT]. Blocks on the resolver.
Result<serve::ServerAddress> find_server(const std::string& text);

using SessionId = std::array<std::byte, kSessionIdBytes>;

// A call of a session that is about to be queued.
struct ParkedCall {
  SessionId session{};
  std::uint32_t uid = 0;
  OperationKind kind = OperationKind::kOther;
  std::uint64_t payload = 0;
  Instant since;
  bool has_memory = true;  // for its payload
  bool waits = false;      // by its limit, or because earlier calls of its user do
};

enum class Parking : std::uint8_t {
  kRefused,     // it would take a slot that others need, or wait for too long
  kParked,      // counted until unpark()
  kNotCounted,  // there are too many sessions; it does not wait
};

class Gateway {
 public:
  static constexpr std::size_t kSessionsMax = 16'384;
  static constexpr std::size_t kRecallsMax = 1024;
  static constexpr std::size_t kOwnersMax = 65'536;
  static constexpr std::size_t kMarksMax = 65'536;
  static constexpr std::uint32_t kSlotsUnknown = 64;  // what Linux asks for
  static constexpr Nanoseconds kLeaseUnknown = std::chrono::seconds{90};
  // Slots of calls that wait for less are free again soon enough, whatever their number.
  static constexpr Nanoseconds kLongWait = std::chrono::milliseconds{20};
  // Each refusal of a write brings its payload back. So a session gets one only when no call of it
  // has left the queue for so long, which would have freed a slot as well; or when payload of this
  // many times its size has left the queue, so that no write is kept for long.
  static constexpr Nanoseconds kSlotEvery = std::chrono::milliseconds{125};
  static constexpr std::uint64_t kWritesForARefusal = 2;

  Gateway(serve::NfsOptions options, serve::ServerAddress server)
      : options_(std::move(options)),
        server_(std::move(server)),
        exports_(std::make_shared<const Exports>(options_.export_handles)) {}

  const serve::NfsOptions& options() const { return options_; }
  const serve::ServerAddress& server() const { return server_; }
  Counters& counters() { return counters_; }
  serve::SourcePorts& source_ports() { return source_ports_; }

  // The server has sent something to one of the clients.
  void heard(Instant now) { heard_at_.store(now, std::memory_order_relaxed); }
  Instant heard_at() const { return heard_at_.load(std::memory_order_relaxed); }

  void set_lease(Nanoseconds lease) { lease_ = lease; }
  Nanoseconds lease() const { return lease_; }
  // How long a call of a session may wait: max_wait, but never more than a third of a lease.
  Nanoseconds wait_max() const { return std::min(options_.max_wait, lease() / 3); }

  // What CREATE_SESSION returned, and the highest slot that SEQUENCE last asked the client to use.
  void set_slots(const SessionId& session, std::uint32_t slots);
  void set_highest_slot(const SessionId& session, std::uint32_t slot);
  // Counts a call that is about to be queued and would wait for `expected` at least; longer if
  // earlier calls of its user in the session have waited longer. Refused if that exceeds
  // wait_max(), or if it waits and there is no memory for it or too many calls of the session
  // do: those of one user may take a quarter of the slots, those of all users half. A refused WRITE
  // sends its payload again, so writes may take all but a quarter of the slots (8 at least).
  Parking park(ParkedCall& call, Nanoseconds expected);
  // REQUIRES: it was parked. It no longer waits.
  void unpark(const ParkedCall& call, Instant now);
  // Whether to refuse a write with this payload now: `now`, or else when to ask again.
  Instant refuse_write(const SessionId& session, std::uint64_t payload, Instant now);
  // Calls of the session that wait.
  std::uint32_t waiting(const SessionId& session) const;
  std::size_t session_count() const;

  void recall(const Nid& client, Bytes file_handle, Instant until);
  void returned(const Nid& client, Bytes file_handle);
  bool is_recalled(const Nid& client, Bytes file_handle, Instant now) const;

  // ---- jobs ----

  // Replaces all.
  void set_jobs(HostJobs jobs);
  // Changes with set_jobs(), so that a session asks once; 0: never called.
  std::uint64_t jobs_version() const { return jobs_version_; }
  std::optional<JobId> job_of(const Nid& client) const;

  // ---- exports ----

  // A snapshot: another one after exports_version() has changed.
  std::shared_ptr<const Exports> exports() const;
  std::uint64_t exports_version() const { return exports_version_; }
  // After a successful MNT. Returns kKnown for an unknown form if that was returned before.
  Exports::Lesson learn_export(std::string_view path, Bytes root);

  // What is remembered about a client: warnings that were logged, and that it has an NFS session
  // here.
  enum class Mark : std::uint8_t { kLayouts, kReferral, kTls, kOwner, kBypass, kSession };
  // False: it has the mark already.
  bool mark(Mark mark, const Nid& client);
  bool has(Mark mark, const Nid& client) const;
  // The client that has used this client owner before, if it is another one.
  std::optional<Nid> other_user(Bytes client_owner, const Nid& client);

 private:
  struct UserCalls {
    std::uint32_t parked = 0;
    Nanoseconds last_wait{0};  // of the last one that has left the queue
    Instant moved_at;          // when it left, or when the first one was parked
  };
  struct SessionSlots {
    std::uint32_t created = kSlotsUnknown;
    std::uint32_t wanted = ~std::uint32_t{0};  // of the server, by its last SEQUENCE
    std::uint32_t waiting = 0;                 // parked calls that wait
    bool is_learned = false;                   // the server has reported its slots
    Instant freed_at;                          // a slot, by a refusal or a call that has waited
    std::uint64_t moved = 0;                   // payload that has waited, since the last refusal
    absl::flat_hash_map<std::uint32_t, UserCalls> by_user;

    std::uint32_t slots() const { return std::max(std::min(created, wanted), 1U); }
    bool is_idle() const { return by_user.empty(); }
    bool has_slot_for(std::uint32_t own, OperationKind kind) const;
  };
  // Two words of it are faster to hash than 16 bytes.
  using SessionKey = std::pair<std::uint64_t, std::uint64_t>;
  static SessionKey key_of(const SessionId& id) {
    return {load_be<std::uint64_t>(id.data()), load_be<std::uint64_t>(id.data() + 8)};
  }
  struct Recall {
    Nid client;
    std::vector<std::byte> file_handle;
    Instant until;
  };

  // nullptr: there are too many.
  SessionSlots* slots_of(const SessionId& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const serve::NfsOptions options_;
  const serve::ServerAddress server_;
  Counters counters_;
  serve::SourcePorts source_ports_;
  std::atomic<Instant> heard_at_ = Instant{};
  std::atomic<Nanoseconds> lease_ = kLeaseUnknown;
  // Read for each call, so that most need no lock.
  std::atomic<std::size_t> recall_count_ = 0;
  mutable host::Mutex mutex_;
  absl::flat_hash_map<SessionKey, SessionSlots> sessions_ ABSL_GUARDED_BY(mutex_);
  bool are_all_busy_ ABSL_GUARDED_BY(mutex_) = false;  // kSessionsMax sessions have parked calls
  std::deque<Recall> recalls_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> exports_version_ = 1;
  std::shared_ptr<const Exports> exports_ ABSL_GUARDED_BY(mutex_);
  bool has_unknown_form_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<std::uint64_t> jobs_version_ = 0;
  HostJobs jobs_ ABSL_GUARDED_BY(mutex_);
  // By a hash of both; and in order of arrival.
  absl::flat_hash_set<std::uint64_t> marks_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> marked_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::uint64_t, Nid> owners_ ABSL_GUARDED_BY(mutex_);  // by a hash
  std::deque<std::uint64_t> owned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::nfs
