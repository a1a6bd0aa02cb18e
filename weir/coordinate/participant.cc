// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/participant.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir {

void EpochParticipant::start(Instant now) {
  WEIR_ASSERT(!is_running_);
  is_running_ = true;
  epoch_ = kFirstEpoch;
  call_when_ready(now);
}

void EpochParticipant::shutdown(Instant now) {
  if (!std::exchange(is_running_, false)) return;
  is_calling_ = false;
  is_ending_ = false;
  call_at_ = kNever;
  handler_.last_epoch(epoch_, now);
}

void EpochParticipant::call_when_ready(Instant now) {
  const Instant ready = use_.ready_at(now);
  is_ending_ = ready > now;
  if (!is_ending_) return call(now);
  call_at_ = ready;
}

void EpochParticipant::call(Instant now) {
  is_calling_ = true;
  call_at_ = kNever;
  handler_.next_epoch(
      epoch_, use_.ready(now),
      [this](std::int64_t epoch, EpochView reduced, Instant at) { started(epoch, reduced, at); },
      now);
  use_.called(now);
}

void EpochParticipant::started(std::int64_t epoch, EpochView reduced, Instant now) {
  is_calling_ = false;
  if (is_epoch_error(epoch)) {
    ++errors_;
    epoch_ = kFirstEpoch;
    call_at_ = now + options_.retry;
    use_.alone(epoch, now);
    return;
  }
  ++epochs_;
  epoch_ = epoch;
  call_at_ = now + use_.start_epoch(epoch, reduced, now);
}

Instant EpochParticipant::next_wake() const {
  if (!is_running_) return kNever;
  return std::min(is_calling_ ? kNever : call_at_, use_.next_wake());
}

void EpochParticipant::tick(Instant now) {
  if (!is_running_) return;
  use_.tick(now);
  if (is_calling_) return;
  const bool is_over = now >= call_at_ || is_ending_;
  if (is_over || (epoch_ != kFirstEpoch && use_.is_done_early(now))) call_when_ready(now);
}

}  // namespace weir
