// SPDX-License-Identifier: Apache-2.0
#include "weir/host/clock.h"

#include <ctime>

#include "weir/base/assert.h"

namespace weir::host {
namespace {

Nanoseconds read_clock(clockid_t clock) {
  timespec time;
  const int failed = clock_gettime(clock, &time);
  WEIR_ASSERT(failed == 0, clock);
  return std::chrono::seconds{time.tv_sec} + Nanoseconds{time.tv_nsec};
}

}  // namespace

Instant now() { return Instant{read_clock(CLOCK_MONOTONIC)}; }

Instant boot_now() { return Instant{read_clock(CLOCK_BOOTTIME)}; }

Nanoseconds thread_time() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

std::chrono::sys_time<Nanoseconds> wall_now() {
  return std::chrono::sys_time<Nanoseconds>{read_clock(CLOCK_REALTIME)};
}

}  // namespace weir::host
