// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_course.h"

#include <cerrno>
#include <utility>

namespace weir::cluster {
namespace {

// For message delays and late threads.
constexpr Nanoseconds kGrace = std::chrono::milliseconds{50};
// An open stream loses nothing; a message dropped by a full mailbox costs this much.
constexpr Nanoseconds kResend = std::chrono::milliseconds{100};

}  // namespace

EpochCourse::EpochCourse(Nanoseconds timeout, Send send, std::uint64_t first_serial)
    : member_(
          {.timeout = timeout, .grace = kGrace, .resend = kResend, .first_serial = first_serial}),
      send_(std::move(send)) {}

void EpochCourse::next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                             Instant now) {
  if (!is_led_) return callback(-ENOTCONN, {}, now);
  member_.next_epoch(current, std::move(data), std::move(callback), now);
  flush();
}

void EpochCourse::last_epoch(std::int64_t current, Instant now) {
  member_.last_epoch(current, now);
  flush();
}

void EpochCourse::follow(bool is_led, Instant now) {
  is_led_ = is_led;
  member_.lose_leader(now);
  flush();
}

void EpochCourse::receive(const EpochMessage& message, Instant now) {
  member_.receive(message, now);
  flush();
}

void EpochCourse::tick(Instant now) {
  member_.tick(now);
  flush();
}

void EpochCourse::flush() {
  for (EpochMessage& message : member_.take_outgoing()) send_(std::move(message));
}

}  // namespace weir::cluster
