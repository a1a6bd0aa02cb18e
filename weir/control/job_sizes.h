// SPDX-License-Identifier: Apache-2.0
//
// The number of nodes of jobs that were set through the API, and their removal. The end of a job is
// not reported, and sizes must not fill the table and the journal for ever:
//
//   - a size is removed after its job had no request for kIdleMax, from when it was set or the
//     server started, whichever is later. So it can be set days before its job starts;
//   - beyond kMax the one set or used longest ago is removed.
//
// Sizes from --jobs and Slurm are not stored here: their sources remove them.
//
//   if (auto gone = sizes.set(job, nodes, now)) forget(*gone);
//   for (job : sizes.stale(now, 100))  sizes.used(job, at) or forget(job)
//
// stale() lists candidates; the caller checks the request counters of a job before it removes its
// size. O(log n) each; no clock; one owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/time.h"

namespace weir::control {

class JobSizes {
 public:
  static constexpr std::size_t kMax = 65'536;
  static constexpr Nanoseconds kIdleMax = std::chrono::hours{24 * 7};

  explicit JobSizes(std::size_t most = kMax) : most_(most) {}

  // 0 nodes: removes the size. Returns the job that was removed to make room, if any.
  std::optional<std::string> set(const std::string& job, std::uint64_t nodes, Instant now);
  // A request of the job was seen at this time. Ignored if the job is not listed.
  void used(const std::string& job, Instant at);
  // Up to `count` jobs that, as far as known, had no request for longer than kIdleMax.
  std::vector<std::string> stale(Instant now, std::size_t count) const;

  std::size_t size() const { return sizes_.size(); }
  // In the order of ids: visit(job, nodes).
  template <class Visitor>
  void each(const Visitor& visit) const {
    for (const auto& [job, one] : sizes_) visit(job, one.nodes);
  }

 private:
  using Order = std::list<std::string>;
  struct Size {
    std::uint64_t nodes = 0;
    Instant used_at{};
    Order::iterator at{};
  };

  std::size_t most_;
  std::map<std::string, Size> sizes_;
  Order by_use_;  // the one set or used longest ago is first
};

}  // namespace weir::control
