// SPDX-License-Identifier: Apache-2.0
//
// Waits for something that one process has at a time, such as a locked file. A process that was
// killed may have it for a while: the kernel frees its memory first, and keeps its files open until
// the I/O that was under way in its io_uring is done. So what no living process has is waited for
// up to kGone; what a living one has is refused after kLiving, which a process may need to end.
//
//   const auto holder = wait_until_free(
//       [&] { return flock(file, LOCK_EX | LOCK_NB) == 0; }, [&] { return holder_of(file); },
//       quote(path));
//   if (holder) ...            it stays with process *holder, 0: none is seen that has it
//
// A wait for what no process has is told in the log, once: a start takes longer than usual.
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
