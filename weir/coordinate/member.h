// SPDX-License-Identifier: Apache-2.0
//
// The global epoch handler, member's side: turns the calls of a scheduler into messages to the
// leader. It keeps asking until it is answered, takes only epochs that grow, and calls back once:
//
//   next_epoch --> Ready, again every `resend` ----> Start   -> callback(epoch, reduced), Taken
//                                              |---> Refuse  -> callback(-ESTALE ...)
//                                              '---> nothing -> callback(-ETIMEDOUT)
//
// The callback comes at most max(timeout, the round's timeout as last told) + grace after the call.
// After an error the scheduler goes on alone and calls with kFirstEpoch when it likes.
//
// A call goes to one leader only: when there is another, lose_leader() ends the call, and the next
// one goes there. Time is given, of one monotonic clock. One owner, no locks.
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
  struct Options {
    Nanoseconds timeout = std::chrono::milliseconds{100};  // whoever is slower is left behind
    Nanoseconds grace = std::chrono::milliseconds{50};     // for the way there and back
    Nanoseconds resend = std::chrono::milliseconds{20};
    std::uint64_t first_serial = 1;         // larger than any the same member used before
    EpochSwab swab = {};                    // for opaque data
    MemberRoundPayload* payload = nullptr;  // outlives the member
  };

  explicit EpochMember(Options options);

  void next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                  Instant now) override;
  void last_epoch(std::int64_t current, Instant now) override;

  // From the leader.
  void receive(const EpochMessage& message, Instant now);
  void tick(Instant now);
  Instant next_wake() const;
  // To the leader, in order.
  std::vector<EpochMessage> take_outgoing();
  // There is none, or another one: a call under way ends with -ENOTCONN.
  void lose_leader(Instant now);

  bool is_calling() const { return call_.has_value(); }
  // The latest it was called back for; 0 before the first.
  std::int64_t epoch() const { return epoch_; }

 private:
  struct Call {
    Ready ready;
    EpochCallback callback;
    Instant resend_at;
    Instant give_up_at;
  };

  void on_start(const Start& start, Instant now);
  void finish(std::int64_t epoch, EpochView reduced, Instant now);

  Options options_;
  std::uint64_t serial_;
  std::uint64_t started_serial_ = 0;  // of the call that was answered last by a Start
  std::int64_t epoch_ = 0;
  Nanoseconds told_timeout_{0};
  std::optional<Call> call_;
  std::vector<EpochMessage> out_;
};

}  // namespace weir
