// SPDX-License-Identifier: Apache-2.0
#include "weir/host/timer_fd.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <sys/timerfd.h>
#include <unistd.h>

#include "weir/base/assert.h"

namespace weir::host {

Result<TimerFd> TimerFd::create() {
  Fd fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!fd.is_open()) {
    return fail_errno(errno, "timerfd", "raise the limit of open files (ulimit -n)");
  }
  return TimerFd(std::move(fd));
}

void TimerFd::arm(Instant when) {
  itimerspec setting{};
  if (when != kNever) {
    // An expiration of zero would disarm: the earliest instant is one nanosecond.
    const std::int64_t ns = std::max<std::int64_t>(ns_of(when), 1);
    setting.it_value = {ns / 1'000'000'000, ns % 1'000'000'000};
  }
  const int failed = timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &setting, nullptr);
  WEIR_ASSERT(failed == 0, errno);
}

bool TimerFd::acknowledge() {
  std::uint64_t expirations;
  const ssize_t got = read(fd_.get(), &expirations, sizeof expirations);
  WEIR_ASSERT(got == sizeof expirations || errno == EAGAIN || errno == EINTR, errno);
  return got == sizeof expirations;
}

}  // namespace weir::host
