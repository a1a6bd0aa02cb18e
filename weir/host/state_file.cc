// SPDX-License-Identifier: Apache-2.0
#include "weir/host/state_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/host/durable.h"
#include "weir/host/file_lock.h"
#include "weir/host/holder.h"

namespace weir::host {
namespace {

bool same_file(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// The temporary file that is renamed.
std::string beside(const std::string& path) { return path + ".new"; }

mode_t mode_of(StateFile::Readers readers) {
  return readers == StateFile::Readers::kOwner ? 0600 : 0666;
}

struct Locked {
  Fd fd;
  bool is_new = false;
};

// One attempt: nothing if another user has it, whose lock is then on `fd`.
std::optional<Result<Locked>> try_to_lock(const std::string& path, mode_t mode, Fd& fd) {
  for (;;) {
    fd = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    const bool is_new = !fd.is_open() && errno == ENOENT;
    const std::string name = is_new ? beside(path) : path;
    if (is_new) fd = Fd(::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!fd.is_open()) return fail_errno(errno, path, "name a writable file");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) return std::nullopt;
      return fail_errno(errno, path);
    }
    const bool was_created = is_new && ::access(path.c_str(), F_OK) == 0;
    if (same_file(fd.get(), name) && !was_created) return Locked{std::move(fd), is_new};
  }
}

// The file itself, locked. An earlier user may have replaced it between open and lock: then the
// lock is on the old file and the new one must be opened. If there is no file, the one that it will
// be renamed from is locked, so that of two users one creates it.
Result<Locked> open_locked(const std::string& path, mode_t mode) {
  std::optional<Result<Locked>> locked;
  Fd fd;
  wait_until_free(
      [&] {
        locked = try_to_lock(path, mode, fd);
        return locked.has_value();
      },
      [&] { return lock_holder(fd.get()); }, quote(path), std::chrono::milliseconds{0});
  if (locked) return *std::move(locked);
  return fail(std::errc::device_or_resource_busy, path, "is in use by another process",
              "wait for it to end or name another file");
}

Result<std::string> read_all(int fd, const std::string& path) {
  constexpr std::size_t kPiece = 65536;
  std::string text;
  for (;;) {
    const std::size_t size = text.size();
    text.resize(size + kPiece);
    const ssize_t got = pread(fd, text.data() + size, kPiece, static_cast<off_t>(size));
    if (got < 0 && errno != EINTR) return fail_errno(errno, path);
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
    if (text.size() > StateFile::kSizeMax) {
      return fail(std::errc::file_too_large, path, "is too large to be a state file",
                  "name another file");
    }
  }
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

Result<StateFile> StateFile::open(std::string path, Readers readers) {
  auto locked = open_locked(path, mode_of(readers));
  if (!locked) return tl::unexpected(locked.error());
  struct stat status;
  if (fstat(locked->fd.get(), &status) != 0) return fail_errno(errno, path);
  if (!S_ISREG(status.st_mode)) {
    return fail(std::errc::invalid_argument, path, "is not a regular file", "name another file");
  }
  if (access(directory_of(path).c_str(), W_OK) != 0) {
    return fail_errno(errno, directory_of(path),
                      "the server must be able to write to its directory");
  }
  // A temporary file without the file is left over from a crash.
  auto text = locked->is_new ? Result<std::string>() : read_all(locked->fd.get(), path);
  if (!text) return tl::unexpected(text.error());
  return StateFile(std::move(path), readers, std::move(locked->fd), locked->is_new,
                   std::move(*text));
}

// Only the holder of the lock writes there, so an existing one is left over from a crash.
Result<Fd> StateFile::open_beside() {
  const std::string name = beside(path_);
  const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  Fd fd(::open(name.c_str(), flags, mode_of(readers_)));
  // For a new file this one is already locked; one left by a crash may have other permissions.
  const bool is_ours = readers_ == Readers::kOwner;
  const bool is_ready = fd.is_open() && (!has_file_ || flock(fd.get(), LOCK_EX) == 0) &&
                        ftruncate(fd.get(), 0) == 0 &&
                        (!is_ours || fchmod(fd.get(), mode_of(readers_)) == 0);
  if (!is_ready) return fail_errno(errno, name);
  return fd;
}

Result<void> StateFile::replace(std::string_view text) {
  auto opened = open_beside();
  if (!opened) return tl::unexpected(opened.error());
  Fd fd = *std::move(opened);
  const std::string name = beside(path_);
  if (!write_all(fd.get(), text) || fsync(fd.get()) != 0 ||
      rename(name.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    if (has_file_) unlink(name.c_str());
    return fail_errno(error, path_, "the previous state is kept");
  }
  Result<void> synced = sync_directory_of(path_);
  // A lock belongs to its descriptor: for a new file that is the first one.
  if (std::exchange(has_file_, true)) lock_ = std::move(fd);
  return synced;
}

}  // namespace weir::host
