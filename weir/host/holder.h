// SPDX-License-Identifier: Apache-2.0
//
// Waits for something that only one process can hold at a time, such as a locked file. A killed
// process may hold it for a while: the kernel frees its memory first, and keeps its files open
// until the I/O in progress in its io_uring has ended. So the wait takes up to kGone if no running
// process holds it, and kLiving, the time a process may need to end, if one does.
//
//   const auto holder = wait_until_free(
//       [&] { return flock(file, LOCK_EX | LOCK_NB) == 0; }, [&] { return holder_of(file); },
//       quote(path));
//   if (holder) ...            process *holder still holds it; 0: no holder is visible
//
// A wait without a visible holder is logged once, since the start then takes longer than usual.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>

namespace weir::host {

inline constexpr std::chrono::milliseconds kLiving{2000};
inline constexpr std::chrono::milliseconds kGone{10'000};

// Not of one that is gone, a zombie, or about to end.
bool is_alive(long pid);

// Blocks. `attempt` is called every 10 ms until it says true: done, or not worth another try.
// `holder` tells the living process that has it, 0 if there is none; it may be costly, and is
// called every 100 ms. This process itself is not waited for.
std::optional<long> wait_until_free(const std::function<bool()>& attempt,
                                    const std::function<long()>& holder, std::string_view what);

}  // namespace weir::host
