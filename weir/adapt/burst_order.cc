// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/burst_order.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

constexpr std::uint64_t kServedMax = std::uint64_t{1} << 40;

}  // namespace

void BurstOrder::follow(const std::vector<JobDemand>& demands) {
  for (const JobDemand& demand : demands) {
    const bool is_idle = demand.state == JobDemand::State::kIdle;
    if (is_idle && !bursts_.contains(demand.job)) continue;
    Burst& burst = bursts_[demand.job];
    if (!is_idle) {
      const std::uint64_t served = std::min(demand.served.count(), kServedMax);
      burst.served = std::min(burst.served + served, kServedMax);
    } else if (burst.served > 0) {
      burst.usual = std::exchange(burst.served, 0);
    }
  }
  if (bursts_.size() <= demands.size()) return;
  absl::erase_if(bursts_, [&](const auto& entry) {
    const auto at =
        std::lower_bound(demands.begin(), demands.end(), entry.first,
                         [](const JobDemand& demand, const JobId& id) { return demand.job < id; });
    return at == demands.end() || at->job != entry.first;
  });
}

std::uint64_t BurstOrder::left_of(const JobId& job) const {
  const auto found = bursts_.find(job);
  if (found == bursts_.end() || found->second.usual <= found->second.served) return 0;
  return found->second.usual - found->second.served;
}

std::optional<JobId> BurstOrder::first(const std::vector<JobDemand>& demands, const JobId& held,
                                       std::uint64_t most) const {
  const JobDemand* shortest = nullptr;
  std::uint64_t count = 0;
  for (const JobDemand& demand : demands) {
    if (demand.state == JobDemand::State::kIdle || demand.job == held) continue;
    const std::uint64_t left = left_of(demand.job);
    if (left == 0) return std::nullopt;
    ++count;
    if (shortest == nullptr || left < left_of(shortest->job)) shortest = &demand;
  }
  if (count < 2 || left_of(shortest->job) > most) return std::nullopt;
  return shortest->job;
}

}  // namespace weir
