// SPDX-License-Identifier: Apache-2.0
#include "weir/host/mailbox.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>

#include <poll.h>
#include <sys/eventfd.h>

#include "weir/base/assert.h"
#include "weir/host/clock.h"

namespace weir::host {

Result<Fd> make_wake_fd() {
  Fd fd(eventfd(0, EFD_CLOEXEC));
  if (!fd.is_open()) {
    return fail_errno(errno, "eventfd", "raise the limit of open files (ulimit -n)");
  }
  return fd;
}

void Wake::set() const {
  const int failed = eventfd_write(fd_.get(), 1);
  WEIR_ASSERT(failed == 0, errno);
}

void Wake::clear() const {
  eventfd_t count = 0;
  eventfd_read(fd_.get(), &count);
}

bool Wake::wait(Instant until) const {
  constexpr Nanoseconds kMost = std::chrono::hours{1};
  for (;;) {
    const Instant now = host::now();
    const Nanoseconds left =
        until == kNever ? kMost : std::clamp(until - now, Nanoseconds{0}, kMost);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec span{seconds.count(), (left - seconds).count()};
    pollfd waits{fd_.get(), POLLIN, 0};
    if (ppoll(&waits, 1, &span, nullptr) > 0) return true;
    if (until != kNever && host::now() >= until) return false;
  }
}

}  // namespace weir::host
