// SPDX-License-Identifier: Apache-2.0
//
// Which of several bursts is served first, for a server that has only rates (rule_controller.h).
// Jobs of the same size take turns, so bursts that coincide all end late:
//
//   two bursts of 60 and 80, 40 in each interval      60 ends after    80 ends after
//   taking turns                                      3 intervals      4 intervals
//   the shorter one first                             2 intervals      4 intervals
//
// A burst is all that a job is served between two idle times. It is expected to be as long as the
// one before it; a job whose burst is longer than that, or that was never idle, is not ordered,
// and none is ordered while such a job competes. So a wrong guess ends by itself.
//
// Pure; one owner. It knows the jobs of the last follow().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <absl/container/btree_map.h>

#include "weir/adapt/censored_demand.h"
#include "weir/base/job_id.h"

namespace weir {

class BurstOrder {
 public:
  // What jobs were served in a round; all known jobs, in the order of their ids.
  void follow(const std::vector<JobDemand>& demands);

  // Requests that its burst still has if it is as long as the last one; 0: not known, or none.
  std::uint64_t left_of(const JobId& job) const;
  // Of the active jobs but `held`, the one whose burst ends first: at least two, all with requests
  // left, and the shortest has at most `most`. Ties go to the first id.
  std::optional<JobId> first(const std::vector<JobDemand>& demands, const JobId& held,
                             std::uint64_t most) const;

 private:
  struct Burst {
    std::uint64_t served = 0;  // so far
    std::uint64_t usual = 0;   // by the end of the last one
  };

  absl::btree_map<JobId, Burst> bursts_;
};

}  // namespace weir
