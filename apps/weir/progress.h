// SPDX-License-Identifier: Apache-2.0
//
// One line on a terminal that shows the progress of a long job, redrawn in place:
//
//   [==========>                   ]  36%  36.0MiB  50.0MiB/s  0:01  left 0:01
//
// Draws nothing if stderr is not a terminal, so logs and pipes stay clean. If the total is unknown
// there is no bar and no remaining time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir::app {

class Progress {
 public:
  // `total` is the amount to do, if known. `enabled` is for --quiet.
  enum class Show : std::uint8_t { kOnTerminal, kNever };
  Progress(std::optional<Bytes> total, Show show);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool is_shown() const { return shown_; }
  void draw(Bytes done, Nanoseconds elapsed);
  // Clears the line, so that a message can be printed.
  void erase();

  // "[=====>     ]  50%". REQUIRES: done <= total > 0.
  static std::string bar(std::uint64_t done, std::uint64_t total);
  // The line itself, without the control characters around it.
  static std::string line(Bytes done, std::optional<Bytes> total, Nanoseconds elapsed);

 private:
  const std::optional<Bytes> total_;
  const bool shown_;
  bool drawn_ = false;
};

// Bytes per second over a time, as "49.9MiB/s".
std::string about_bandwidth(Bytes bytes, Nanoseconds elapsed);

}  // namespace weir::app
