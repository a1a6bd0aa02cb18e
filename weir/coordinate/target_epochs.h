// SPDX-License-Identifier: Apache-2.0
//
// Takes part in epochs for a Target, from its start to its shutdown.
//
//   init()      calls next_epoch once, so that its first epoch starts in step with its peers
//   tick()      calls next_epoch when an epoch has ended; call it in every turn of the driver
//   After shutdown() of the Target, when all queued requests are dispatched: last_epoch, once
//
// The EpochUse defines what epochs are used for. A Target without requests needs no wake-up if its
// handler is local, since no other server waits for it. Time is an argument. One owner, no locks.
#pragma once

#include "weir/base/time.h"
#include "weir/coordinate/participant.h"
#include "weir/target/target.h"

namespace weir {

class TargetEpochs {
 public:
  // REQUIRES: all outlive it.
  TargetEpochs(Target& target, EpochHandler& handler, EpochUse& use,
               const EpochParticipant::Options& options = {})
      : target_(target), participant_(handler, use, options) {}

  void init(Instant now) { participant_.start(now); }
  void tick(Instant now);
  // Whether it has left the epochs.
  bool is_over() const { return is_over_; }
  Instant next_wake() const { return is_over_ ? kNever : participant_.next_wake(); }

  const EpochParticipant& participant() const { return participant_; }

 private:
  Target& target_;
  EpochParticipant participant_;
  bool is_over_ = false;
};

}  // namespace weir
