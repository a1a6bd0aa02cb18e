// SPDX-License-Identifier: Apache-2.0
#include "weir/host/file_lock.h"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weir::host {
namespace {

constexpr int kTryEveryMs = 10;
constexpr int kLivingMs = 500;   // a process that is killed just now needs some time to be gone
constexpr int kGoneMs = 10'000;  // I/O that is under way needs some more

// Neither gone nor a zombie: /proc/PID/stat has the state behind the name, which may hold anything.
bool is_alive(long pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state != 'Z' && state != 'X';
}

// A living process that has a lock on the file, 0 if there is none. From /proc/locks:
//   1: FLOCK  ADVISORY  WRITE 1234 fe:00:262145 0 EOF
// The device is that of the file system, which stat(2) may give another number: the inode decides.
long holder_of(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) return 0;
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, place;
    long pid = 0;
    words >> number >> kind >> advisory >> mode >> pid >> place;
    const std::string inode = fmt::format(":{}", status.st_ino);
    if (kind == "FLOCK" && place.ends_with(inode) && is_alive(pid)) return pid;
  }
  return 0;
}

}  // namespace

Result<void> lock_file(int file, LockKind kind, std::string_view where, std::string_view hint) {
  const int operation = (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  long holder = 0;
  for (int waited = 0;; waited += kTryEveryMs) {
    if (flock(file, operation) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno(errno, where);
    holder = holder_of(file);
    if (waited >= (holder != 0 ? kLivingMs : kGoneMs)) break;
    poll(nullptr, 0, kTryEveryMs);
  }
  const std::string who = holder == getpid() ? "this server has it already"
                          : holder != 0 ? fmt::format("another server has it: process {}", holder)
                                        : "another server has it";
  return fail(std::errc::device_or_resource_busy, where, who, hint);
}

}  // namespace weir::host
