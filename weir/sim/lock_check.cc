// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lock_check.h"

#include <algorithm>

#include <fmt/format.h>

namespace weir::sim {

void HolderCheck::begin(std::uint32_t lock, std::uint32_t holder, std::uint64_t fence,
                        Instant now) {
  Lock& held = locks_[lock];
  if (!held.holders.empty()) {
    findings_.add(now, fmt::format("lock {}: client {} holds it while client {} does", lock, holder,
                                   held.holders.front()));
  }
  if (fence < held.fence) {
    findings_.add(now, fmt::format("lock {}: client {} has fence {:#x}, storage has seen {:#x}",
                                   lock, holder, fence, held.fence));
  }
  held.fence = std::max(held.fence, fence);
  held.holders.push_back(holder);
}

void HolderCheck::end(std::uint32_t lock, std::uint32_t holder) {
  std::vector<std::uint32_t>& holders = locks_[lock].holders;
  const auto found = std::find(holders.begin(), holders.end(), holder);
  if (found != holders.end()) holders.erase(found);
}

}  // namespace weir::sim
