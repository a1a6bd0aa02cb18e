// SPDX-License-Identifier: Apache-2.0
#include "weir/host/machine.h"

#include <algorithm>
#include <cstdint>

#include <sched.h>
#include <unistd.h>

namespace weir::host {

Bytes machine_memory() {
  const auto pages = static_cast<std::uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  return Bytes{pages * static_cast<std::uint64_t>(std::max(sysconf(_SC_PAGESIZE), 0L))};
}

std::uint32_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  // It fails on a machine with more processors than a cpu_set_t has bits.
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    return static_cast<std::uint32_t>(std::max(CPU_COUNT(&cores), 1));
  }
  return static_cast<std::uint32_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

}  // namespace weir::host
