// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/tree.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir/host/clock.h"
#include "weir/host/fd.h"

extern char** environ;

namespace weir::lustre {
namespace {

constexpr std::size_t kReadSize = 65536;
// lctl's exit status is an errno modulo 256; this is ENOTSUPP (524).
constexpr int kNotSupportedStatus = 12;

const char* hint_for(int error, std::string_view path) {
  const bool is_debug = path.find("/sys/kernel/debug/") != std::string_view::npos;
  switch (error) {
    case EACCES:
    case EPERM:
      return "run as root";
    case ENOENT:
      return is_debug ? "run it on an OSS with debugfs mounted: mount -t debugfs none "
                        "/sys/kernel/debug"
                      : "run it on an OSS with its targets mounted";
    case ENODEV:
      return "the policy is not running there";
    default:
      return "";
  }
}

}  // namespace

std::string lctl_name(std::string_view path) {
  constexpr std::string_view kFolder = "/lustre/";
  const std::size_t at = path.find(kFolder);
  std::string name(at == std::string_view::npos ? path : path.substr(at + kFolder.size()));
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

Result<std::string> HostTree::read(const std::string& path) {
  const Instant began = host::now();
  auto text = read_whole(path);
  in_files_ += host::now() - began;
  return text;
}

Result<void> HostTree::write(const std::string& path, std::string_view text) {
  const Instant began = host::now();
  auto done = write_whole(path, text);
  in_files_ += host::now() - began;
  return done;
}

Result<std::string> HostTree::read_whole(const std::string& path) {
  const std::string real = options_.root + path;
  const host::Fd fd(open(real.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return fail_errno(errno, real, hint_for(errno, path));
  std::string text;
  for (;;) {
    const std::size_t size = text.size();
    text.resize(size + kReadSize);
    const ssize_t got = ::read(fd.get(), text.data() + size, kReadSize);
    const int error = errno;
    text.resize(size + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return text;
    if (got < 0 && error != EINTR) return fail_errno(error, real, hint_for(error, path));
    if (text.size() > kFileMax) {
      return fail(std::errc::file_too_large, real, "is too long",
                  "check that it is the right file");
    }
  }
}

Result<void> HostTree::write_whole(const std::string& path, std::string_view text) {
  if (options_.lctl == Lctl::kAlways) return write_by_lctl(path, text);
  const std::string real = options_.root + path;
  const host::Fd fd(open(real.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.is_open()) {
    const int error = errno;
    if (may_use_lctl() && (error == ENOENT || error == EACCES || error == EPERM)) {
      if (auto done = write_by_lctl(path, text);
          done || done.error().code != std::errc::no_such_file_or_directory) {
        return done;
      }
    }
    return fail_errno(error, real, hint_for(error, path));
  }
  for (;;) {
    const ssize_t wrote = ::write(fd.get(), text.data(), text.size());
    if (wrote == static_cast<ssize_t>(text.size())) return {};
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return fail_errno(errno, real, hint_for(errno, path));
    return fail(std::errc::io_error, real, "accepted only a part of '" + std::string(text) + "'");
  }
}

bool HostTree::finds_lctl() const {
  const std::string& program = options_.lctl_program;
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (access((std::string(folder) + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

Result<std::string> HostTree::way_of_writing(const std::string& path) const {
  const std::string real = options_.root + path;
  const bool is_open = options_.lctl != Lctl::kAlways && access(real.c_str(), W_OK) == 0;
  if (is_open) return std::string("directly");
  const int error = errno;
  if (may_use_lctl() && finds_lctl()) return std::string("by lctl");
  if (options_.lctl == Lctl::kAlways) {
    return fail_errno(ENOENT, options_.lctl_program, "install the Lustre utilities");
  }
  return fail_errno(error, real, hint_for(error, path));
}

Result<host::Fd> HostTree::lock_server() const {
  const std::string folder = options_.root + "/sys/kernel/debug";
  host::Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return fd;  // reading the files of the server reports what is missing
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return fail_errno(errno, folder);
  return fail(std::errc::device_or_resource_busy, "this server",
              "another weir lustre run adjusts its rules",
              "run one driver per server; a dry run can run beside it");
}

Result<void> HostTree::write_by_lctl(const std::string& path, std::string_view text) {
  std::string program = options_.lctl_program;
  std::string verb = "set_param";
  std::string quiet = "-n";
  std::string pair = lctl_name(path) + "=" + std::string(text);
  char* const arguments[] = {program.data(), verb.data(), quiet.data(), pair.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  pid_t child = -1;
  const int failed = posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return fail_errno(failed, program, "install the Lustre utilities, or mount debugfs");
  }
  ++lctl_started_;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fail_errno(errno, program);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (!WIFEXITED(status)) return fail(std::errc::io_error, program, "was terminated by a signal");
  const int code = WEXITSTATUS(status);
  if (code == 127) return fail_errno(ENOENT, program, "install the Lustre utilities");
  return fail_errno(code == kNotSupportedStatus ? EOPNOTSUPP : code, program + " " + pair);
}

Result<std::vector<std::string>> HostTree::list(const std::string& folder) {
  const std::string real = options_.root + folder;
  DIR* const open_folder = opendir(real.c_str());
  if (open_folder == nullptr) return fail_errno(errno, real, hint_for(errno, folder));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = readdir(open_folder)) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int error = errno;
  closedir(open_folder);
  if (error != 0) return fail_errno(error, real);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weir::lustre
