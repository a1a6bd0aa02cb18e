// SPDX-License-Identifier: Apache-2.0
#include "weir/control/job_sizes.h"

#include <utility>

namespace weir::control {

std::optional<std::string> JobSizes::set(const std::string& job, std::uint64_t nodes, Instant now) {
  if (const auto found = sizes_.find(job); found != sizes_.end()) {
    by_use_.erase(found->second.at);
    sizes_.erase(found);
  }
  if (nodes == 0) return std::nullopt;
  std::optional<std::string> gone;
  if (sizes_.size() >= most_) {
    gone = std::move(by_use_.front());
    by_use_.pop_front();
    sizes_.erase(*gone);
  }
  sizes_[job] = {nodes, now, by_use_.insert(by_use_.end(), job)};
  return gone;
}

void JobSizes::used(const std::string& job, Instant at) {
  const auto found = sizes_.find(job);
  if (found == sizes_.end()) return;
  found->second.used_at = at;
  by_use_.splice(by_use_.end(), by_use_, found->second.at);
}

std::vector<std::string> JobSizes::stale(Instant now, std::size_t count) const {
  std::vector<std::string> found;
  for (const std::string& job : by_use_) {
    if (found.size() == count || now - sizes_.at(job).used_at <= kIdleMax) break;
    found.push_back(job);
  }
  return found;
}

}  // namespace weir::control
