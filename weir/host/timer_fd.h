// SPDX-License-Identifier: Apache-2.0
//
// A one-shot timer that any event loop can wait for: a timerfd on the monotonic clock, which
// becomes readable when its time has come. Non-blocking and close-on-exec.
//
// It is armed for an absolute Instant, so the time between computing a deadline and arming it is
// not added, and a deadline that has passed fires at once instead of disarming (a relative timer of
// 0 would never fire). Not thread-safe.
#pragma once

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"

namespace weir::host {

class TimerFd {
 public:
  static Result<TimerFd> create();

  int fd() const { return fd_.get(); }

  // Fires once at `when`; replaces the earlier time. kNever disarms.
  void arm(Instant when);
  void disarm() { arm(kNever); }
  // True if the timer has fired since the last call; makes the descriptor unreadable again.
  bool acknowledge();

 private:
  explicit TimerFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace weir::host
