// SPDX-License-Identifier: Apache-2.0
//
// Takes part in epochs for a Target, from its start to its shutdown: the life of a local request
// scheduler as the epoch handler sees it.
//
//   init()      calls next_epoch once, so that its first epoch begins in step with its peers
//   tick()      next_epoch again when an epoch is over; to be called with every turn of the driver
//   the Target's shutdown(), and everything queued handed out: last_epoch, once, and then nothing
//
// What is done with epochs is the EpochUse's. A Target without requests needs no wake-up if its
// handler is local, since no other server waits for it. Time is given. One owner, no locks.
#pragma once

#include "weir/base/time.h"
#include "weir/coordinate/participant.h"
#include "weir/target/target.h"

namespace weir {

class TargetEpochs {
 public:
  // All outlive it.
  TargetEpochs(Target& target, EpochHandler& handler, EpochUse& use,
               const EpochParticipant::Options& options = {})
      : target_(target), participant_(handler, use, options) {}

  void init(Instant now) { participant_.start(now); }
  void tick(Instant now);
  // Whether it has left its peers.
  bool is_over() const { return is_over_; }
  Instant next_wake() const { return is_over_ ? kNever : participant_.next_wake(); }

  const EpochParticipant& participant() const { return participant_; }

 private:
  Target& target_;
  EpochParticipant participant_;
  bool is_over_ = false;
};

}  // namespace weir
