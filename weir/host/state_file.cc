// SPDX-License-Identifier: Apache-2.0
#include "weir/host/state_file.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/host/durable.h"

namespace weir::host {
namespace {

bool same_file(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// The file itself, locked. A user before us may have replaced it between open and lock: then the
// lock is on the old file and the new one has to be opened.
Result<Fd> open_locked(const std::string& path) {
  for (;;) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd.is_open()) return fail_errno(errno, path, "name a file that can be written");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return fail_errno(errno, path);
      return fail(std::errc::device_or_resource_busy, path, "is in use by another run",
                  "wait for it to end or name another file");
    }
    if (same_file(fd.get(), path)) return fd;
  }
}

Result<std::string> read_all(int fd, const std::string& path) {
  std::string text(StateFile::kSizeMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (got == 0) break;
    if (got > 0)
      size += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      return fail_errno(errno, path);
  }
  if (size > StateFile::kSizeMax) {
    return fail(std::errc::file_too_large, path, "is too large to be a state file",
                "name another file");
  }
  text.resize(size);
  return text;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote > 0)
      text.remove_prefix(static_cast<std::size_t>(wrote));
    else if (wrote < 0 && errno != EINTR)
      return false;
  }
  return true;
}

}  // namespace

Result<StateFile> StateFile::open(std::string path) {
  auto lock = open_locked(path);
  if (!lock) return tl::unexpected(lock.error());
  struct stat status;
  if (fstat(lock->get(), &status) != 0) return fail_errno(errno, path);
  if (!S_ISREG(status.st_mode)) {
    return fail(std::errc::invalid_argument, path, "is not a plain file", "name another file");
  }
  if (access(directory_of(path).c_str(), W_OK) != 0) {
    return fail_errno(errno, directory_of(path), "the state is replaced in its folder");
  }
  // An empty one is new, or as good as new.
  if (status.st_size == 0) {
    if (auto synced = sync_directory_of(path); !synced) return tl::unexpected(synced.error());
  }
  auto text = read_all(lock->get(), path);
  if (!text) return tl::unexpected(text.error());
  return StateFile(std::move(path), std::move(*lock), std::move(*text));
}

Result<void> StateFile::replace(std::string_view text) {
  const std::string beside = path_ + ".new";
  // Only the holder of the lock writes here, so what lies there is left over from a crash.
  Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd.is_open()) return fail_errno(errno, beside);
  if (flock(fd.get(), LOCK_EX) != 0 || !write_all(fd.get(), text) || fsync(fd.get()) != 0 ||
      rename(beside.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(beside.c_str());
    return fail_errno(error, path_, "the state is as it was before");
  }
  Result<void> synced = sync_directory_of(path_);
  lock_ = std::move(fd);
  return synced;
}

}  // namespace weir::host
