// SPDX-License-Identifier: Apache-2.0
//
// Detects memory shortage, so that caches can be reduced before the kernel reclaims memory. Two
// sources, either of which may be missing:
//
//   trigger   a pressure file (PSI): /proc/pressure/memory, or memory.pressure of the cgroup. A
//             threshold is written to it: "some 200000 2000000", tasks stalled for 200 ms of 2 s.
//             poll(2) then returns POLLPRI when it is exceeded, at most once in the 2 s, and
//             POLLERR when the cgroup is removed. (Without CAP_SYS_RESOURCE the kernel requires a
//             window that is a multiple of 2 s.)
//   events    memory.events of the cgroup. Its lines "high N" and "max N" count how often the
//             cgroup exceeded its limits. inotify(7) reports a change as a modification of the
//             file; the numbers show whether it was one of these.
//
//   MemoryPressure pressure(MemoryPressure::of_this_process());
//   if (pressure.take()) drop_something();                            now and then
//   poll(waits, ...);  if (pressure.take(waits[0].revents, waits[1].revents)) ...      at once
//
// Events between two calls of take() are not lost, and count once. One owner, no locks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <poll.h>

#include "weir/host/fd.h"

namespace weir::host {

class MemoryPressure {
 public:
  // Paths; empty: none.
  struct Sources {
    std::string trigger;
    std::string events;
  };
  // Of its cgroup if that has a memory controller (v2), otherwise of the whole machine.
  static Sources of_this_process();

  // A source that cannot be opened is ignored: the kernel does not have it, or it
  // is not accessible.
  explicit MemoryPressure(const Sources& sources);
  // With a trigger that is already set.
  MemoryPressure(Fd trigger, const std::string& events);

  bool has_trigger() const { return trigger_.is_open(); }
  bool has_events() const { return watch_.is_open(); }
  // For poll(2); a missing source has the descriptor -1, which poll ignores.
  std::array<pollfd, 2> waits() const;
  // Whether memory was short since the last call. Does not block.
  bool take();
  // The same with the results of polling waits(), in that order: the kernel reports a trigger once.
  bool take(short of_trigger, short of_events);

 private:
  void watch_events();
  // The sum of both counters; 0 if the file cannot be read.
  std::uint64_t count_events() const;
  bool take_trigger(short happened);
  bool take_events(short happened);

  Fd trigger_;
  Fd watch_;  // inotify
  std::string events_;
  std::uint64_t counted_ = 0;
};

}  // namespace weir::host
