// SPDX-License-Identifier: Apache-2.0
//
// Waits for an object that only one process can hold at a time, such as a locked file. A killed
// process may hold it for a while: the kernel frees its memory first, and keeps its files open
// until the I/O in progress in its io_uring has ended. So the wait takes up to kGone if no running
// process holds it, and kLiving, the time a process may need to exit, if one does.
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

// False for a process that has exited, is a zombie, or is about to exit.
bool is_alive(long pid);

// Blocks. `attempt` is called every 10 ms until it returns true: success, or not worth another try.
// `holder` returns the running process that holds the object, 0 if there is none; it may be slow,
// and is called every 100 ms. Waits up to `living` for a running process, and not for this one.
std::optional<long> wait_until_free(const std::function<bool()>& attempt,
                                    const std::function<long()>& holder, std::string_view what,
                                    std::chrono::milliseconds living = kLiving);

}  // namespace weir::host
