// SPDX-License-Identifier: Apache-2.0
//
// A file descriptor with an owner: closed when the Fd goes out of scope, moved but not copied.
//
//   const Fd file(open(path, O_RDONLY | O_CLOEXEC));
//   if (!file.is_open()) return fail_errno(errno, path);
//
// Errors of close(2) are not reported; sync written data first if it matters.
#pragma once

#include <utility>

namespace weir::host {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace weir::host
