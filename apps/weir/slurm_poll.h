// SPDX-License-Identifier: Apache-2.0
//
// Runs `squeue --json`, or another program, periodically without waiting for it: a child process
// with a pipe, which the caller's loop watches. One at a time; a process that does not exit within
// kPatience is killed, so a Slurm controller that hangs has no effect except outdated sizes.
//
//   SlurmPoll poll("squeue", 10s);
//   poll.tick(now, [](std::string_view text) { ... });    whenever fd() is readable, and each turn
//
// A process that cannot be started, or is killed, counts as an empty answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/signals.h"
#include "weir/host/timer_fd.h"

namespace weir::app {

class SlurmPoll {
 public:
  static constexpr Nanoseconds kPatience = std::chrono::seconds{30};
  static constexpr std::size_t kTextMax = std::size_t{256} << 20;

  SlurmPoll(std::string program, Nanoseconds every, std::vector<std::string> arguments = {"--json"})
      : program_(std::move(program)), every_(every), arguments_(std::move(arguments)) {}
  SlurmPoll(const SlurmPoll&) = delete;
  SlurmPoll& operator=(const SlurmPoll&) = delete;
  ~SlurmPoll() { end(); }

  // -1 while none is running.
  int fd() const { return pipe_.get(); }
  void tick(Instant now, const std::function<void(std::string_view)>& take);

 private:
  bool start(Instant now);
  void end();

  std::string program_;
  Nanoseconds every_;
  std::vector<std::string> arguments_;
  Instant next_{};
  Instant started_{};
  pid_t child_ = -1;
  host::Fd pipe_;
  std::string text_;
};

// What else a loop waits for: wake() is called when fd is readable, and at wakes_at().
struct AlsoWaitFor {
  int fd = -1;
  std::function<Instant()> wakes_at = {};
  std::function<void(Instant now)> wake = {};
};

// Waits for the timer; meanwhile runs `slurm` and `also`, if there are any. False: a signal has
// arrived.
bool wait_for(host::TimerFd& timer, host::SignalFd& signals, std::optional<SlurmPoll>& slurm,
              const std::function<void(std::string_view)>& take, const AlsoWaitFor& also = {});

}  // namespace weir::app
