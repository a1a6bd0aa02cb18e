// SPDX-License-Identifier: Apache-2.0
#include "weir/host/journald.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace weir::host {

bool is_journal(int fd, const char* stream) {
  struct stat found {};
  if (stream == nullptr || fstat(fd, &found) != 0) return false;
  return fmt::format("{}:{}", found.st_dev, found.st_ino) == stream;
}

std::string journal_entry(std::span<const LogField> fields) {
  std::string entry;
  for (const LogField& field : fields) {
    entry += field.name;
    if (field.value.find('\n') == std::string::npos) {
      entry += '=';
    } else {
      entry += '\n';
      for (unsigned byte = 0; byte < 8; ++byte) {
        entry += static_cast<char>(std::uint64_t{field.value.size()} >> (8 * byte) & 0xff);
      }
    }
    entry += field.value;
    entry += '\n';
  }
  return entry;
}

JournalSocket::JournalSocket(std::string path)
    : path_(std::move(path)), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

bool JournalSocket::send(std::string_view entry) const noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  for (;;) {
    const ssize_t sent = sendto(fd_.get(), entry.data(), entry.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (sent >= 0 || errno != EINTR) return sent == static_cast<ssize_t>(entry.size());
  }
}

}  // namespace weir::host
