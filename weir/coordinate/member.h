// SPDX-License-Identifier: Apache-2.0
//
// The global epoch handler, member's side: turns the calls of a scheduler into messages to the
// leader. It repeats Ready until it is answered, accepts only increasing epochs, and calls
// back once:
//
//   next_epoch --> Ready, again after `resend` ----> Start   -> callback(epoch, reduced)
//                                              |---> Refuse  -> callback(-ESTALE ...)
//                                              '---> nothing -> callback(-ETIMEDOUT)
//
// A Start is confirmed by the next Ready, or by Taken if that is not sent within kConfirmWithin,
// which is before the leader would repeat it. In clusters of more than kFewMembers the time until a
// Ready is repeated doubles with every repetition, and is at least four times what the last answer
// took, up to half of the timeout: a busy leader must not get more messages because it is busy.
//
// The callback is called at most max(timeout, the last known timeout of the round) + grace after
// the call. After an error the scheduler continues alone and calls again with kFirstEpoch.
//
// A call is sent to one leader only: when the leader changes, lose_leader() ends the call, and
// the next one is sent to the new leader. Time is an argument, of one monotonic clock. One owner,
// no locks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/round_payload.h"

namespace weir {

class EpochMember final : public EpochHandler {
 public:
  // As many as a leader serves without relays.
  static constexpr std::uint32_t kFewMembers = 32;
  static constexpr Nanoseconds kConfirmWithin = std::chrono::milliseconds{15};

  struct Options {
    Nanoseconds timeout = std::chrono::milliseconds{100};  // a slower member is evicted
    Nanoseconds grace = std::chrono::milliseconds{50};     // for message delays
    Nanoseconds resend = std::chrono::milliseconds{20};
    // When repetitions become rarer. In small clusters a message that is repeated late delays a
    // round, which leaves servers without slices after the leader has died.
    enum class BackOff : std::uint8_t { kIfMany, kAlways } back_off = BackOff::kIfMany;
    std::uint64_t first_serial = 1;         // larger than any serial that this member used before
    EpochSwab swab = {};                    // for opaque data
    MemberRoundPayload* payload = nullptr;  // outlives the member
  };

  explicit EpochMember(Options options);

  void next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                  Instant now) override;
  void last_epoch(std::int64_t current, Instant now) override;

  // A message from the leader.
  void receive(const EpochMessage& message, Instant now);
  void tick(Instant now);
  Instant next_wake() const;
  // Messages to the leader, in order.
  std::vector<EpochMessage> take_outgoing();
  // There is no leader, or another one: a call in progress ends with -ENOTCONN.
  void lose_leader(Instant now);

  // The number of members from another source, used until a leader has told it.
  void expect_members(std::uint32_t members) {
    if (epoch_ == 0) members_ = members;
  }

  bool is_calling() const { return call_.has_value(); }
  // The epoch of the last callback; 0 before the first.
  std::int64_t epoch() const { return epoch_; }

 private:
  struct Call {
    Ready ready;
    EpochCallback callback;
    Instant called_at;
    Nanoseconds resend_after;
    Instant resend_at;
    Instant give_up_at;
  };
  struct Owed {
    Taken taken;
    Instant due;
  };

  bool backs_off() const {
    return options_.back_off == Options::BackOff::kAlways || members_ > kFewMembers;
  }
  void on_start(const Start& start, Instant now);
  void finish(std::int64_t epoch, EpochView reduced, Instant now);

  Options options_;
  std::uint64_t serial_;
  std::uint64_t started_serial_ = 0;  // of the last call that a Start answered
  std::int64_t epoch_ = 0;
  std::uint32_t members_ = 0;
  Nanoseconds told_timeout_{0};
  Nanoseconds answer_time_{0};  // of the last call that was answered
  std::optional<Call> call_;
  std::optional<Owed> owed_;  // a Start that is not confirmed yet
  std::vector<EpochMessage> out_;
};

}  // namespace weir
