// SPDX-License-Identifier: Apache-2.0
//
// Detects memory shortage, so that caches can be reduced before the kernel reclaims memory. Two
// sources, either of which may be missing:
//
//   trigger   a pressure file (PSI): /proc/pressure/memory, or memory.pressure of the cgroup. A
//             threshold is written to it: "some 200000 2000000", tasks stalled for 200 ms of 2 s.
//             From then on poll(2) says POLLPRI when it is exceeded, at most once in the 2 s, and
//             POLLERR when the cgroup is gone. (Without CAP_SYS_RESOURCE the kernel wants a window
//             that is a multiple of 2 s.)
//   events    memory.events of the cgroup. Its lines "high N" and "max N" count how often the
//             cgroup was above its limits. The kernel reports a change as a modification of the
//             file, which inotify(7) sees; the numbers say whether it was one of these.
//
//   MemoryPressure pressure(MemoryPressure::of_this_process());
//   if (pressure.take()) drop_something();                            now and then
//   poll(waits, ...);  if (pressure.take(waits[0].revents, waits[1].revents)) ...      at once
//
// What happens between two calls of take() is not lost, and counts once. One owner, no locks.
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
  // Of its cgroup where there is one with a memory controller (v2), else of the whole machine.
  static Sources of_this_process();

  // A source that cannot be opened is left out: a kernel without it, or a file that is not ours.
  explicit MemoryPressure(const Sources& sources);
  // With a trigger that is set already.
  MemoryPressure(Fd trigger, const std::string& events);

  bool has_trigger() const { return trigger_.is_open(); }
  bool has_events() const { return watch_.is_open(); }
  // For poll(2); an entry that is missing has a descriptor of -1, which poll ignores.
  std::array<pollfd, 2> waits() const;
  // Whether memory was short since the last call. Does not wait.
  bool take();
  // The same for one who has polled waits(), in that order: the kernel tells of a trigger once.
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
