// SPDX-License-Identifier: Apache-2.0
//
// The only module that reads a clock. Code below host/ gets the time as an argument; code above
// reads it here, once per turn of its loop. Monotonic: it never steps back and does not follow
// changes of the wall clock. It stops while the machine sleeps, as pacing requires: no client could
// have used the tokens of that time.
#pragma once

#include <chrono>

#include "weir/base/time.h"

namespace weir::host {

Instant now();

// Monotonic, but continues while the machine sleeps: for leases, which others count meanwhile.
Instant boot_now();

// Processor time that this thread has used.
Nanoseconds thread_time();

// Time that continues between runs and across reboots, only for the age of saved state. It
// may step.
std::chrono::sys_time<Nanoseconds> wall_now();

}  // namespace weir::host
