// SPDX-License-Identifier: Apache-2.0
//
// One user of a file at a time, by flock(2).
//
// Waits if the holder has ended: the kernel keeps the files of a killed process open until its I/O
// is done. Fails after a moment if the holder runs (holder.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "weir/base/result.h"

namespace weir::host {

enum class LockKind : std::uint8_t { kShared, kExclusive };

// Blocks for kLiving if a process holds the lock, for kGone if none is found that does. EBUSY then:
// the error says which process it is, if that can be told, with the hint.
Result<void> lock_file(int file, LockKind kind, std::string_view where, std::string_view hint);

}  // namespace weir::host
