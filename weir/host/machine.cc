// SPDX-License-Identifier: Apache-2.0
#include "weir/host/machine.h"

#include <algorithm>
#include <cstdint>

#include <unistd.h>

namespace weir::host {

Bytes machine_memory() {
  const auto pages = static_cast<std::uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  return Bytes{pages * static_cast<std::uint64_t>(std::max(sysconf(_SC_PAGESIZE), 0L))};
}

}  // namespace weir::host
