// SPDX-License-Identifier: Apache-2.0
//
// The leader's side of the epochs: which members have joined, their messages, and the answers. It
// adds names to EpochLeader and SliceLeader, which know members only by number, and is independent
// of streams.
//
//   greet(hello)                  a number for the member, or why it is rejected
//   receive(id, course, bytes)    its messages; an invalid one evicts it
//   ended(id)                     its stream has broken
//   set_known(names, running)     the servers of the cluster, running or away
//
// Epochs run in courses, each with a leader's part, numbers and members of its own: that of slices,
// which has no name, and one for the groups of each service that takes turns (epoch_course.h). They
// are created on demand and kept, since numbers may only increase.
//
// A restarted member has another incarnation and gets another number; the old number is forgotten
// when all leases it may have held have expired. A name belongs to a member while it is heard from:
// a second server of the same name is rejected meanwhile.
//
// A server that is away keeps its reserved part as long as its name is known. A server without a
// known name has left or was forgotten, and is no longer counted.
//
// A new leader accepts no member until the slices of the previous one have nearly expired: it could
// only grant nothing, and an isolated server may use more than that.
//
// Time is given. One owner, no locks.
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
  // As many as a server may have services; Ready for another is refused with -ENOSPC.
  static constexpr std::size_t kCoursesMax = 256;
  // Who is not heard of for so long may have its name taken.
  static constexpr Nanoseconds kSilence = std::chrono::seconds{2};

  struct Options {
    std::string name;  // of the server
    std::uint32_t term = 1;
    bool is_first = false;  // nobody has led before: nothing is held
    SliceTerms terms = {};
  };
  struct Hello {
    std::uint32_t protocol = 0;
    std::string name;
    std::uint64_t incarnation = 0;
    std::uint32_t term = 0;
  };
  struct Welcome {
    MemberId id = 0;
    MemberId replaced = 0;  // whose stream is to be ended; 0: nobody's
  };
  struct Outgoing {
    MemberId to = 0;
    std::string course;
    EpochMessage message;
  };

  // The limits outlive it.
  ClusterLeader(const Options& options, const SliceLimits& limits, Instant now);

  std::uint32_t term() const { return options_.term; }

  // EPROTONOSUPPORT: another version of the protocol; ESTALE: another term; EEXIST: the name is
  // taken; EINVAL: no name; ENOSPC: too many. The words are for the member.
  Result<Welcome> greet(const Hello& hello, Instant now);
  // On failure the member is evicted and its stream is to be ended.
  Result<void> receive(MemberId from, const std::string& course, EpochView bytes, Instant now);
  void ended(MemberId member, Instant now);
  const std::string& name_of(MemberId member) const;
  // Servers that said something within kSilence, the leader's own counted in any case. One that is
  // evicted since it was slow for a moment is not lost by that.
  std::size_t connected(Instant now) const;

  void tick(Instant now);
  Instant next_wake() const;
  std::vector<Outgoing> take_outgoing();
  void confirm(Instant until);
  // The limits have changed.
  void reload() { slices_.reload(); }
  // All names there are, and those of servers that run; to be told again and again. Whoever has
  // neither a name nor a stream is forgotten. Until it is told, nobody is. A server that runs and
  // has not come yet serves its clients at what it may use when cut off.
  void set_known(MemberNames names, MemberNames running = {});

  serve::LeaderStatus describe(Instant now) const;

 private:
  struct Known {
    MemberId id = 0;
    std::uint64_t incarnation = 0;
    bool is_joined = false;  // its stream stands
    bool has_signalled = false;
    Instant heard{};
  };

  void receive_of_course(MemberId from, const std::string& course, const EpochMessage& message,
                         Instant now);
  void count_absent();
  Nanoseconds round_quantile(std::size_t permille) const;

  Options options_;
  Instant speaks_at_;  // what comes before is not heard
  const SliceLimits& limits_;
  SliceLeader slices_;
  EpochLeader leader_;                          // of slices
  std::map<std::string, EpochLeader> courses_;  // the others, by name
  std::vector<Outgoing> refused_;               // those of courses there is no room for
  Instant confirmed_until_ = kNever;
  std::map<std::string, Known, std::less<>> known_;
  std::map<MemberId, std::string> names_;  // of those that are joined
  std::optional<MemberNames> named_;
  MemberNames running_;
  MemberId next_id_ = 1;
  std::uint64_t garbage_ = 0;
  std::uint64_t rounds_ = 0;  // of which the times are kept
  std::array<Nanoseconds, kRoundsKept> times_{};
};

}  // namespace weir::cluster
