// SPDX-License-Identifier: Apache-2.0
//
// Exclusive use of a file, with flock(2).
//
// Waits if the holder has exited: the kernel keeps the files of a killed process open until its I/O
// is done. Fails after a moment if the holder still runs (holder.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "weir/base/result.h"

namespace weir::host {

enum class LockKind : std::uint8_t { kShared, kExclusive };

// Waits for kLiving if a running process holds the lock, for kGone if none is found. Then EBUSY:
// the error names the process, if known, with the hint.
Result<void> lock_file(int file, LockKind kind, std::string_view where, std::string_view hint);

// A living process that has a lock on the file, 0 if none is found.
long lock_holder(int file);

}  // namespace weir::host
