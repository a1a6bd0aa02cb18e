// SPDX-License-Identifier: Apache-2.0
//
// The epoch handler of a service whose groups of clients take turns in step with the other servers
// (weir/coordinate/group_epochs.h): a separate course of epochs, named after the service, beside
// the course of slices. Turns are longer than the epochs of slices, and each service has its own.
//
//   TargetEpochs --next_epoch--> EpochCourse --send(message)--> ... the leader, by this course
//                <--callback----             <--receive(message)--
//
// Without a leader a call fails at once with -ENOTCONN, so that the groups take turns locally.
// Messages are sent within the call that creates them. Runs on the server's loop. Time is an
// argument. One owner, no locks.
#pragma once

#include <cstdint>
#include <functional>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/message.h"

namespace weir::cluster {

class EpochCourse final : public EpochHandler {
 public:
  using Send = std::function<void(EpochMessage message)>;

  // REQUIRES: the timeout is longer than the longest turn; the serial is larger than any that this
  // server used in this course before.
  EpochCourse(Nanoseconds timeout, Send send, std::uint64_t first_serial = 1);

  void next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                  Instant now) override;
  void last_epoch(std::int64_t current, Instant now) override;

  // The leader has changed, or is no longer known.
  void follow(bool is_led, Instant now);
  void receive(const EpochMessage& message, Instant now);
  void tick(Instant now);
  Instant next_wake() const { return member_.next_wake(); }

 private:
  void flush();

  EpochMember member_;
  Send send_;
  bool is_led_ = false;
};

}  // namespace weir::cluster
