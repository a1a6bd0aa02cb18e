// SPDX-License-Identifier: Apache-2.0
//
// The leader's side of the epochs: which members have joined, their messages, and the answers. It
// adds names to EpochLeader and SliceLeader, which know members only by number, and is independent
// of streams.
//
//   greet(hello)                  a number for the member, or why it is rejected
//   receive(id, course, bytes)    its messages; an invalid one evicts it
//   receive_bundle(id, bytes)     messages of the members below a relay (epoch_tree.h)
//   ended(id)                     its stream has broken
//   set_known(names, running)     the servers of the cluster, running or away
//
// Epochs run in courses, each with its own EpochLeader, numbers and members: the course of slices,
// which has no name, and one for the groups of each service that takes turns (epoch_course.h). They
// are created on demand and kept, because numbers must increase.
//
// A restarted member has another incarnation and gets another number; the old number is dropped
// when all leases it may have held have expired. A name belongs to a member while messages arrive
// from it: a second server of the same name is rejected meanwhile.
//
// A server that is away keeps its reserved amount as long as its name is known. A server without a
// known name has left or was forgotten, and is no longer counted.
//
// A new leader accepts no member until the slices of the previous one have nearly expired: it could
// grant nothing, and an isolated server may use more than that. With slices without an end it
// accepts members at once, and needs no confirmation by etcd (slices.h).
//
// Time is an argument. One owner, no locks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/epoch_tree.h"
#include "weir/coordinate/leader.h"
#include "weir/coordinate/slices.h"
#include "weir/serve/cluster_port.h"

namespace weir::cluster {

// Limits of the cluster's classes by name, in kMilli.
using SliceLimits = std::map<std::string, std::int64_t, std::less<>>;
using MemberNames = std::set<std::string, std::less<>>;

class ClusterLeader {
 public:
  static constexpr std::size_t kNameMax = 31;
  static constexpr std::size_t kRoundsKept = 1024;
  // The maximum number of services of a server; Ready for another course is refused with -ENOSPC.
  static constexpr std::size_t kCoursesMax = 256;
  // After this time without a message, the name of a member can be used by another server.
  static constexpr Nanoseconds kSilence = std::chrono::seconds{2};

  struct Options {
    std::string name;  // of the server
    std::uint32_t term = 1;
    bool is_first = false;  // there was no earlier leader, so no slices are held
    SliceTerms terms = {};
    std::size_t fanout = EpochTree::kFanout;
  };
  struct Hello {
    std::uint32_t protocol = 0;
    std::string name;
    std::uint64_t incarnation = 0;
    std::uint32_t term = 0;
    Partition partition = Partition::kSafe;
    std::string address = {};  // empty: it does not take part in a tree
  };
  struct Welcome {
    MemberId id = 0;
    MemberId replaced = 0;  // the member whose stream must be closed; 0: none
  };
  struct Outgoing {
    MemberId to = 0;
    std::string course;
    EpochMessage message;
  };
  struct Route {
    MemberId to = 0;
    std::string address;  // of its relay; empty: none
  };

  // REQUIRES: the limits outlive it.
  ClusterLeader(const Options& options, const SliceLimits& limits, Instant now);

  std::uint32_t term() const { return options_.term; }

  // EPROTONOSUPPORT: another version of the protocol, or another Partition; ESTALE: another term;
  // EEXIST: the name is taken; EINVAL: the name is not valid; ENOSPC: too many members. The member
  // is sent the error text.
  Result<Welcome> greet(const Hello& hello, Instant now);
  // On failure the member is evicted, and its stream must be closed.
  Result<void> receive(MemberId from, const std::string& course, EpochView bytes, Instant now);
  // Messages of members below a relay, by the relay's stream; those of others are dropped.
  Result<void> receive_bundle(MemberId from, EpochView bytes, Instant now);
  void ended(MemberId member, Instant now);
  const std::string& name_of(MemberId member) const;
  // The number of servers from which a message arrived within kSilence, always including the leader
  // itself. A member that was evicted because it was slow for a moment still counts.
  std::size_t connected(Instant now) const;

  void tick(Instant now);
  Instant next_wake() const;
  std::vector<Outgoing> take_outgoing();
  // Whose stream a message for this member must be sent by.
  MemberId way_to(MemberId member) const { return tree_.way_to(member); }
  std::vector<Route> take_routes();
  void confirm(Instant until);
  // The limits have changed.
  void reload() { slices_.reload(); }
  // The names of all servers and of those that run; call it repeatedly. A server with neither a
  // name nor a stream is forgotten, but none before the first call. A server that runs and has not
  // joined yet uses the amount of a server that is cut off.
  void set_known(MemberNames names, MemberNames running = {});

  serve::LeaderStatus describe(Instant now) const;

 private:
  struct Known {
    MemberId id = 0;
    std::uint64_t incarnation = 0;
    bool is_joined = false;  // its stream is open
    bool has_signalled = false;
    Instant heard{};
    std::string address;
  };

  EpochTree::Copy copy_of(MemberId member, const std::string& course,
                          const EpochMessage& message) const;
  void take(MemberId member, MemberId from, const std::string& course, const EpochMessage& message,
            Instant now);
  void receive_of_course(MemberId from, const std::string& course, const EpochMessage& message,
                         Instant now);
  void count_absent();
  Nanoseconds round_quantile(std::size_t permille) const;

  Options options_;
  Instant speaks_at_;  // messages before this time are ignored
  const SliceLimits& limits_;
  SliceLeader slices_;
  EpochLeader leader_;  // of slices
  EpochTree tree_;
  std::map<std::string, EpochLeader> courses_;  // the other courses, by name
  std::vector<Outgoing> refused_;               // answers for courses beyond kCoursesMax
  Instant confirmed_until_ = kNever;
  std::map<std::string, Known, std::less<>> known_;
  std::map<MemberId, std::string> names_;  // of joined members
  std::optional<MemberNames> named_;
  MemberNames running_;
  MemberId next_id_ = 1;
  std::uint64_t garbage_ = 0;
  std::uint64_t bundles_ = 0;
  std::uint64_t rounds_ = 0;  // rounds whose times are recorded
  std::array<Nanoseconds, kRoundsKept> times_{};
};

}  // namespace weir::cluster
