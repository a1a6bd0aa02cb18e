// SPDX-License-Identifier: Apache-2.0
#include "weir/host/files.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/host/fd.h"

namespace weir::host {

Result<std::string> read_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return fail_errno(errno, quote(path));
  constexpr std::size_t kPiece = 1 << 20;
  std::string text;
  for (;;) {
    const std::size_t held = text.size();
    if (held > kFileMax) return fail_errno(EFBIG, quote(path));
    text.resize(held + kPiece);
    const ssize_t count = read(file.get(), text.data() + held, kPiece);
    if (count < 0 && errno != EINTR) return fail_errno(errno, quote(path));
    text.resize(held + (count > 0 ? static_cast<std::size_t>(count) : 0));
    if (count == 0) return text;
  }
}

Result<ByteSource> open_source(const std::string& path) {
  auto file = std::make_shared<Fd>(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file->is_open()) return fail_errno(errno, quote(path));
  return ByteSource([file, path](std::span<char> to) -> Result<std::size_t> {
    std::size_t filled = 0;
    while (filled < to.size()) {
      const ssize_t count = read(file->get(), to.data() + filled, to.size() - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(errno, quote(path));
      if (count == 0) break;
      filled += static_cast<std::size_t>(count);
    }
    return filled;
  });
}

Result<void> write_file(const std::string& path, std::string_view text) {
  const std::string beside = path + ".new";
  {
    const Fd file(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.is_open()) return fail_errno(errno, quote(beside));
    while (!text.empty()) {
      const ssize_t count = write(file.get(), text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        const int error = errno;
        unlink(beside.c_str());
        return fail_errno(error, quote(beside));
      }
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(beside.c_str());
    return fail_errno(error, quote(path));
  }
  return {};
}

Result<void> make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return fail_errno(error.value(), quote(path));
  if (!std::filesystem::is_directory(path, error)) return fail_errno(ENOTDIR, quote(path));
  return {};
}

}  // namespace weir::host
