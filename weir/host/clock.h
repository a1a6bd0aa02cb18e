// SPDX-License-Identifier: Apache-2.0
//
// The one place where a clock is read. Everything below host/ is given the time; everything above
// takes it from here, once a turn of its loop. Monotonic: it never steps back and does not follow
// changes of the wall clock. It stops while the machine sleeps, as pacing requires: no client could
// have used the tokens of that time.
#pragma once

#include <chrono>

#include "weir/base/time.h"

namespace weir::host {

Instant now();

// Monotonic too, but goes on while the machine sleeps: for leases, which others count meanwhile.
Instant boot_now();

// Time that goes on between runs and over reboots, for ages of saved state only. It may step.
std::chrono::sys_time<Nanoseconds> wall_now();

}  // namespace weir::host
