// SPDX-License-Identifier: Apache-2.0
//
// Which of several lock servers grants locks, and from when on. One server at a time is active, for
// a term: a number that a store which all servers share (etcd) gives out once. It is the
// incarnation of the server, so fences and client numbers grow from term to term, whatever the
// disks of the servers contain.
//
//   active      asks |-- E/2: proven --|                        its lease in etcd ends E after
//               etcd   |------------------ E -------------------|  it was renewed: others may lead
//   successor                                                   | campaigns, collects replays
//   its clients lock leases end here at the latest: |------ clients' lease ------|
//
// An active server may act only while it can prove its term: E/2 from when it *asked* for the last
// renewal. It asks every E/4. When etcd gives the key to another server, at least E/2 have passed
// since then. The successor starts that much later with the grace period, less an eighth of E for
// clocks of different speed: it grants after its grace period less 3/8 E.
//
//   crash to new grants, at most:   E + (how late etcd notices) + lease - 3/8 E
//   with E = 2 s and a lease of 30 s, of which clients use 24 s:  2 + 0.5 + 30 - 0.75 = 31.75 s
//
// A server that leaves in order stops acting first and then writes who may hold locks. If none
// does, its successor grants at once; otherwise as soon as all of these have reported their locks.
//
// Candidate decides what to ask the store; it has no clock, no thread and no connection, so the
// simulator runs the same decisions as the service. One question at a time; every answer, or that
// there was none, is told to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/time.h"
#include "weir/lock/server.h"

namespace weir::lock {

// What a server that left in order knew about the clients that may hold locks.
struct Handover {
  enum class Knows : std::uint8_t {
    kNothing,  // it was still collecting replays itself, or there were too many
    kClients,  // these; none: nobody holds a lock
  };
  static constexpr std::size_t kClientsMax = 20'000;

  std::uint64_t term = 0;  // in which it was active
  Knows knows = Knows::kNothing;
  std::vector<std::uint64_t> clients = {};

  bool operator==(const Handover&) const = default;
};

// REQUIRES: the server takes no more messages.
Handover handover_of(const LockServer& server);

// The contents of the store at one moment.
struct TermRecord {
  struct Active {
    std::uint64_t term = 0;
    std::string name;
    std::string address;
    std::int64_t lease = 0;  // with which the key ends

    bool operator==(const Active&) const = default;
  };
  std::uint64_t term = 0;          // the last; 0: there was none
  std::int64_t term_modified = 0;  // revision of the key of the term; 0: it does not exist
  std::optional<Active> active;
  std::optional<Handover> left;

  bool operator==(const TermRecord&) const = default;
};

// How a new active server begins.
struct Succession {
  std::uint64_t term = 0;
  LockServer::Start start = LockServer::Start::kRecovering;
  Nanoseconds grace{0};
  // The grace period ends when these have reported. None: it lasts until its end.
  std::vector<std::uint64_t> clients = {};
};

// The lease of clients, if `lease` is the time after which locks of a lost server are granted
// again: the fifth that is left is for clocks of different speed.
constexpr Nanoseconds client_lease(Nanoseconds lease) { return lease * 4 / 5; }
// Shorter ones could end while the next server takes over.
inline constexpr Nanoseconds kTermsLeaseMin = std::chrono::seconds{6};

// Whether the state on the disk of this server shows that no lock can be held.
enum class OwnState : std::uint8_t { kClean, kUnknown };

// `before` is the record when the campaign was won, `length` the lease in the store.
Succession succession_of(const TermRecord& before, std::uint64_t term, OwnState own,
                         Nanoseconds lease, Nanoseconds length);

class Candidate {
 public:
  // E unless the store grants a longer one: the shortest that etcd grants.
  static constexpr Nanoseconds kLength = std::chrono::seconds{2};
  static constexpr Nanoseconds kRetry = std::chrono::milliseconds{200};
  // A change that was not reported is found within this time.
  static constexpr Nanoseconds kLookEvery = std::chrono::seconds{1};

  enum class Ask : std::uint8_t {
    kNothing,   // until wakes_at(), or changed()
    kLook,      // read the record
    kGrant,     // a lease of kLength
    kRenew,     // lease()
    kCampaign,  // write campaign_term() and the name of this server, with lease(), if the record
                // is unchanged and no server is active
  };
  Ask next(Instant now);
  Instant wakes_at() const;

  // The record may have changed.
  void changed() { has_news_ = true; }
  // Answers. `asked` is when the question was sent.
  void looked(const TermRecord& record, Instant now);
  void granted(std::int64_t lease, Nanoseconds length, Instant asked);
  void renewed(Nanoseconds length, Instant asked);
  void lease_is_gone();
  void campaigned(bool has_won, std::uint64_t term);
  void failed(Instant now);

  bool leads() const { return leads_; }
  // The term in which it leads.
  std::uint64_t term() const { return term_; }
  std::int64_t lease() const { return lease_; }
  Nanoseconds length() const { return length_; }
  // Until then no other server can be active. REQUIRES: it leads.
  Instant proven_until() const { return kept_at_ + length_ / 2; }
  const TermRecord& record() const { return record_; }
  // The record that its last campaign required unchanged.
  const TermRecord& before() const { return before_; }
  // Larger than every term in the store, and than the last of this server's own disk.
  std::uint64_t campaign_term(std::uint64_t own) const;

 private:
  void step_down();

  TermRecord record_;
  TermRecord before_;
  bool has_news_ = true;
  bool leads_ = false;
  std::uint64_t term_ = 0;
  std::int64_t lease_ = 0;  // 0: none
  Nanoseconds length_{0};
  Instant kept_at_{};
  Instant look_at_{};
  Instant retry_at_{};
};

}  // namespace weir::lock
