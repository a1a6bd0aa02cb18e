// SPDX-License-Identifier: Apache-2.0
#include "weir/host/holder.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "weir/host/log.h"

namespace weir::host {
namespace {

constexpr int kTryEveryMs = 10;
constexpr int kLookEveryMs = 100;        // for the holder
constexpr unsigned long kExiting = 0x4;  // PF_EXITING of linux/sched.h: it is freeing its resources

}  // namespace

// proc_pid_stat(5): state, ppid, pgrp, session, tty_nr, tpgid and flags follow the name, which may
// contain any bytes.
bool is_alive(long pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream words(text.substr(name_end + 1));
  char state = 0;
  long skipped = 0;
  unsigned long flags = 0;
  words >> state;
  for (int i = 0; i < 5; ++i) words >> skipped;
  words >> flags;
  return words && state != 'Z' && state != 'X' && (flags & kExiting) == 0;
}

std::optional<long> wait_until_free(const std::function<bool()>& attempt,
                                    const std::function<long()>& holder, std::string_view what,
                                    std::chrono::milliseconds living) {
  long who = 0;
  bool is_told = false;
  for (int waited_ms = 0;; waited_ms += kTryEveryMs) {
    if (attempt()) return std::nullopt;
    if (waited_ms % kLookEveryMs == 0) who = holder();
    if (who == getpid() || waited_ms >= (who != 0 ? living : kGone).count()) return who;
    // Do not log short waits.
    if (who == 0 && waited_ms >= kLookEveryMs && !std::exchange(is_told, true)) {
      log_text(
          fmt::format("weir: waiting for {}: the kernel has not finished the I/O of a process "
                      "that has ended\n",
                      what));
    }
    poll(nullptr, 0, kTryEveryMs);
  }
}

}  // namespace weir::host
