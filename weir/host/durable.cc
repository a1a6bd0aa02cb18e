// SPDX-License-Identifier: Apache-2.0
#include "weir/host/durable.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/host/fd.h"

namespace weir::host {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> sync_directory_of(const std::string& path) {
  constexpr const char* kHint =
      "a new file may be lost in a power failure: allow the server to read and sync the directory";
  const std::string directory = directory_of(path);
  const Fd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return fail_errno(errno, "directory " + quote(directory), kHint);
  if (fsync(opened.get()) != 0 && errno != EINVAL) {
    return fail_errno(errno, "directory " + quote(directory), kHint);
  }
  return {};
}

}  // namespace weir::host
