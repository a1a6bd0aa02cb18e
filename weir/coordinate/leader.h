// SPDX-License-Identifier: Apache-2.0
//
// The global epoch handler, leader's side: a ragged barrier with a reduction. Messages in, messages
// out; sockets, threads and elections are elsewhere.
//
//            Ready                 Ready, first of the round
//   IDLE -----------> WAITING ------------------------------> CLOSING
//     ^                  ^  '-- last member gone --> IDLE        |  all have signalled, left or
//     |                  '------------- Start to each -----------|  been evicted
//     '----------------------------- none remain ----------------'
//
// The timeout runs from the first Ready of a round; it is the largest that any participant
// requested. Members that have not signalled by then, or do not confirm a Start within it, are
// evicted. An evicted or unknown member that names an epoch gets -ESTALE at once and joins again
// with kFirstEpoch; a new member takes part in the round that is closing.
//
// Messages may be lost, late, duplicated and out of order: a repeated Ready gets the same answer
// again, and Starts are repeated until they are confirmed.
//
// Bounds: kEpochMembersMax members, kEpochDataMax of data each, or of all together if they are
// gathered; refusals are counted. Cost of a round: one combine for each member. Time is an
// argument, of one monotonic clock. One owner, no locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/round_payload.h"

namespace weir {

class EpochLeader {
 public:
  enum class State : std::uint8_t { kIdle, kWaiting, kClosing };

  struct Options {
    std::uint32_t term = 1;  // 1 ... kTermMax; no two leaders have the same
    EpochCombine combine;    // none: the data is not used and is dropped
    bool gathers = false;    // instead: all data in the order of members, each with its length
    EpochSwab swab = {};     // for opaque data
    LeaderRoundPayload* payload = nullptr;  // outlives the leader
    // Of a Start that is not confirmed, by the next Ready or by Taken. Twice the time between the
    // last rounds if that is longer, and then at most half of the timeout.
    Nanoseconds resend = std::chrono::milliseconds{20};
  };
  struct Counters {
    std::uint64_t rounds = 0;
    std::uint64_t evictions = 0;
    std::uint64_t stale = 0;    // refused with -ESTALE
    std::uint64_t refused = 0;  // for any other reason
    std::uint64_t garbage = 0;  // evicted because of an invalid payload
    Nanoseconds last_round{0};  // from the first Ready to the Starts
  };
  struct Outgoing {
    MemberId to;
    EpochMessage message;
  };

  explicit EpochLeader(Options options);

  void receive(MemberId from, const EpochMessage& message, Instant now);
  // Call at next_wake(); may be called at any time.
  void tick(Instant now);
  // May be early, never late.
  Instant next_wake() const { return wake_; }
  // Messages to send, in order.
  std::vector<Outgoing> take_outgoing();

  // The leader is confirmed until then, by its own clock; afterwards it sends nothing. Without this
  // call it is always confirmed.
  void confirm(Instant until) {
    confirmed_until_ = until;
    wake_ = earliest_wake();
  }
  // Evicts a member whose message could not be decoded, or whose connection violated the protocol.
  void evict(MemberId member, Instant now);

  // Whether it has received this call of the member and not answered it yet, or a later one.
  bool has_received(MemberId member, const EpochMessage& message) const;

  State state() const { return state_; }
  std::int64_t epoch() const { return epoch_number(options_.term, count_); }
  std::size_t members() const { return members_.size(); }
  // Whether the member takes part in the current epoch; false for all while the leader is
  // not confirmed.
  bool is_in_epochs(MemberId member, Instant now) const {
    return !is_silent(now) && members_.contains(member);
  }
  const Counters& counters() const { return counters_; }
  // This term has no numbers left: the leader sends nothing, and another leader is needed.
  bool has_exhausted_epochs() const { return count_ == UINT32_MAX; }

 private:
  // A participant. Evicted members are removed, but their last serials are kept.
  struct Member {
    bool is_ready = false;
    Nanoseconds timeout{0};
    std::int64_t epoch = kFirstEpoch;  // last epoch that it was sent
    EpochBytes data;
    std::optional<Start> unconfirmed;
    Instant confirm_by = kNever;
    Instant resend_at = kNever;
  };
  struct Answered {
    std::uint64_t serial = 0;
    std::optional<EpochMessage> answer;  // none while its round is open
  };

  void on_ready(MemberId from, const Ready& ready, Instant now);
  void on_taken(MemberId from, const Taken& taken);
  void on_leave(MemberId from, const Leave& leave, Instant now);
  bool waits(MemberId member, const Answered& call) const;
  bool is_stale(MemberId from, std::int64_t epoch) const;
  void refuse(MemberId to, std::uint64_t serial, int error);
  bool remove(MemberId member);
  void drop(MemberId member);
  void begin_closing(Instant now);
  void close_if_all(Instant now);
  void close(Instant now);
  EpochBytes reduce() const;
  EpochBytes gather() const;
  std::size_t data_max() const;
  void follow_absence(Instant now);
  void evict_silent(Instant now);
  void repeat_starts(Instant now);
  bool is_silent(Instant now) const { return now >= confirmed_until_ || has_exhausted_epochs(); }
  Instant closing_deadline() const { return first_signal_ + round_timeout_; }
  void wake_by(Instant at);
  Instant earliest_wake() const;

  Options options_;
  State state_ = State::kIdle;
  std::uint32_t count_ = 0;
  std::map<MemberId, Member> members_;     // ordered, so that rounds are reproducible
  std::map<MemberId, Answered> answered_;  // the last call of every member that was ever seen
  std::size_t ready_ = 0;                  // members that have signalled
  std::size_t gathered_ = 0;               // bytes of their data, with lengths
  Instant first_signal_{};
  Nanoseconds round_timeout_{0};  // the largest of all members
  Instant closed_at_ = kNever;    // the last round
  Nanoseconds resend_{0};         // of its Starts
  Instant wake_ = kNever;         // nothing is due before
  Instant confirmed_until_ = kNever;
  Counters counters_;
  std::vector<Outgoing> out_;
};

}  // namespace weir
