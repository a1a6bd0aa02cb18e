// SPDX-License-Identifier: Apache-2.0
//
// A member that carries the messages of others (epoch_tree.h), and the way that a member chooses
// for its own.
//
//   children --up()--> EpochRelay --take_up()--> one bundle to the leader, or to its own relay
//            <--take_down()--     <--down()----- one bundle with the answers
//
// A bundle is sent when all members that were started together have signalled again, and after
// `hold` at the latest: one that is late or dead delays the others by that at most, and is no
// longer waited for in the next round. The relay's own messages travel in its bundles.
//
// A relay only carries: it neither answers for others nor keeps anything that the leader needs. It
// accepts only valid messages of members, so a bundle with an invalid one is the relay's own
// mistake.
//
// Bounds: kEpochMembersMax members, and a bundle of kBundleFull bytes is sent at once. Time is an
// argument. One owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/message.h"

namespace weir {

class EpochRelay {
 public:
  using Link = std::uint64_t;  // a stream to a child
  static constexpr Link kOwn = 0;
  static constexpr Nanoseconds kHold = std::chrono::milliseconds{5};

  struct Down {
    Link to = kOwn;
    EpochBundle bundle;
  };

  // Messages for itself need no link: its own may have gone to the leader by its own stream.
  explicit EpochRelay(MemberId own, Nanoseconds hold = kHold) : hold_(hold), links_{{own, kOwn}} {}

  // A message of a member below it, or its own. EBADMSG and others: it is not valid, and the link
  // must be closed.
  Result<void> up(Link from, CarriedMessage one, Instant now);
  // A bundle from above. Messages for members that no link leads to are dropped.
  void down(EpochBundle bundle);
  // The stream of a child has ended.
  void ended(Link link);

  // The messages that are due; none are left then.
  EpochBundle take_up(Instant now);
  std::vector<Down> take_down() { return std::exchange(down_, {}); }
  Instant next_wake() const { return flush_at_; }
  bool has_children() const;

 private:
  Nanoseconds hold_;
  EpochBundle pending_;
  std::size_t bytes_ = 0;             // in pending_
  std::set<MemberId> signalled_;      // of the slices' epoch, in pending_
  std::set<MemberId> started_;        // in the last epoch
  std::int64_t epoch_ = kFirstEpoch;  // of started_
  std::map<MemberId, Link> links_;    // that lead to members
  Instant flush_at_ = kNever;
  std::vector<Down> down_;
};

// The way of a member's own messages: to its relay, and when that has not brought an answer in
// time, to the leader itself. If the leader then answers by itself, it had not got the first
// message: the relay does not work, and is avoided for a few calls. If the answer comes by the
// relay, it is the round that takes long. One for each course.
class EpochWay {
 public:
  static constexpr std::uint32_t kAvoidCalls = 8;
  enum class Way : std::uint8_t { kLeader, kRelay };

  // For a message that is sent now.
  Way of(const EpochMessage& message, bool has_relay);
  // An answer has come.
  void answered(const EpochMessage& message, Way by);
  // That of the last call.
  Way last() const { return last_; }
  // There is another relay.
  void renew() { avoid_ = 0; }

 private:
  std::uint64_t serial_ = 0;  // of the last Ready
  std::uint32_t avoid_ = 0;   // calls left
  Way last_ = Way::kLeader;
};

}  // namespace weir
