// SPDX-License-Identifier: Apache-2.0
//
// Returns the lines of a file or pipe as they arrive, so that a subcommand can be used
// interactively. A line longer than a bound is truncated, so that no input takes more memory; a
// caller recognises it by its length.
//
//   Lines lines(fd, "standard input", 4096);
//   while (value_or_fail(lines.next(line), Exit::kIoErr, "")) ...
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <unistd.h>

#include "weir/base/result.h"

namespace weir::app {

class Lines {
 public:
  // `name` is the name of the input in errors.
  Lines(int fd, std::string name, std::size_t line_max)
      : fd_(fd), name_(std::move(name)), line_max_(line_max) {}

  // The next line without its newline; false at the end.
  Result<bool> next(std::string& line) {
    line.clear();
    for (;;) {
      const std::size_t end = held_.find('\n', at_);
      const bool found = end != std::string::npos;
      const std::size_t stop = found ? end : held_.size();
      const std::size_t room = line_max_ - std::min(line_max_, line.size());
      line.append(held_, at_, std::min(stop - at_, room));
      at_ = found ? end + 1 : held_.size();
      if (found) return true;
      held_.resize(65536);
      const ssize_t count = read(fd_, held_.data(), held_.size());
      held_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
      at_ = 0;
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(errno, name_);
      if (count == 0) return !line.empty();
    }
  }

 private:
  int fd_;
  std::string name_;
  std::size_t line_max_;
  std::string held_;
  std::size_t at_ = 0;
};

}  // namespace weir::app
