// SPDX-License-Identifier: Apache-2.0
//
// Takes part in epochs for a scheduler: it calls the handler's next_epoch at the start, is called
// back when the epoch starts, and calls again when the length of the epoch has passed; at shutdown
// it leaves. An EpochUse defines what epochs are used for:
//
//   start() --next_epoch(0)--> ... started(epoch) -> use.start_epoch()
//                                    | length has passed, or the use wants the next, and the
//                                    | use is ready
//              use.ready() -> data --next_epoch(epoch)--> ... started(epoch') ...
//   shutdown() --last_epoch-->
//
// Between the call and the callback the scheduler continues as before. After an error it continues
// alone (use.alone()) and joins again after `retry`. Time is an argument. One owner, no locks.
#pragma once

#include <cstdint>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"

namespace weir {

class EpochUse {
 public:
  EpochUse() = default;
  EpochUse(const EpochUse&) = delete;
  EpochUse& operator=(const EpochUse&) = delete;
  virtual ~EpochUse() = default;

  // The epoch has ended, or the first one is about to start: the time at which the use can signal
  // that it is ready. If that is later than now, it is asked again with every tick, at the latest
  // at that time.
  virtual Instant ready_at(Instant now) { return now; }
  // About to signal: returns the data to submit.
  virtual EpochBytes ready(Instant now) = 0;
  // The signal was sent, with its claims.
  virtual void called(Instant /*now*/) {}
  // The epoch starts with this reduced data; returns its approximate length.
  virtual Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) = 0;
  // There is no epoch: a negative errno.
  virtual void alone(std::int64_t error, Instant now) = 0;
  // Whether the epoch may end before its length has passed.
  virtual bool is_done_early(Instant /*now*/) { return false; }
  // Called with every tick, whatever the handler does, and at next_wake() at the latest.
  virtual void tick(Instant /*now*/) {}
  virtual Instant next_wake() const { return kNever; }
};

class EpochParticipant {
 public:
  struct Options {
    Nanoseconds retry = std::chrono::milliseconds{10};
  };

  // REQUIRES: both outlive the participant.
  EpochParticipant(EpochHandler& handler, EpochUse& use, const Options& options)
      : handler_(handler), use_(use), options_(options) {}
  EpochParticipant(const EpochParticipant&) = delete;
  EpochParticipant& operator=(const EpochParticipant&) = delete;

  void start(Instant now);
  void shutdown(Instant now);
  // Call at next_wake() and whenever is_done_early may have changed.
  void tick(Instant now);
  Instant next_wake() const;

  // 0 while in no epoch.
  std::int64_t epoch() const { return epoch_; }
  bool is_calling() const { return is_calling_; }
  std::uint64_t epochs() const { return epochs_; }
  std::uint64_t errors() const { return errors_; }

 private:
  void call_when_ready(Instant now);
  void call(Instant now);
  void started(std::int64_t epoch, EpochView reduced, Instant now);

  EpochHandler& handler_;
  EpochUse& use_;
  Options options_;
  std::int64_t epoch_ = kFirstEpoch;
  bool is_running_ = false;
  bool is_calling_ = false;
  bool is_ending_ = false;  // the epoch has ended, but the use is not ready for the next
  Instant call_at_ = kNever;
  std::uint64_t epochs_ = 0;
  std::uint64_t errors_ = 0;
};

}  // namespace weir
