// SPDX-License-Identifier: Apache-2.0
#include "weir/host/file_lock.h"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/host/holder.h"

namespace weir::host {

// From /proc/locks:
//   1: FLOCK  ADVISORY  WRITE 1234 fe:00:262145 0 EOF
// The device is that of the file system, for which stat(2) may return another number: only the
// inode is compared.
long lock_holder(int file) {
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

Result<void> lock_file(int file, LockKind kind, std::string_view where, std::string_view hint) {
  const int operation = (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  int error = 0;
  const auto attempt = [&] {
    error = flock(file, operation) == 0 ? 0 : errno;
    return error != EWOULDBLOCK && error != EINTR;
  };
  const auto holder = wait_until_free(
      attempt, [&] { return lock_holder(file); }, where);
  if (!holder && error != 0) return fail_errno(error, where);
  if (!holder) return {};
  if (*holder == 0) {
    return fail(std::errc::device_or_resource_busy, where,
                "locked, but no process that holds the lock is visible",
                "check the storage below it and servers in other containers");
  }
  const std::string who = *holder == getpid()
                              ? "this server already uses it"
                              : fmt::format("another server uses it: process {}", *holder);
  return fail(std::errc::device_or_resource_busy, where, who, hint);
}

}  // namespace weir::host
