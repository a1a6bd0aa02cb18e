// SPDX-License-Identifier: Apache-2.0
//
// Simulations of many servers, and their results as files: one limit on many servers, clusters with
// faults, and groups of clients that take turns. Each has
//
//   result.json   all numbers
//   report.html   a self-contained page with tables and figures
//
// The same study gives the same bytes. write_...() create the folder if it does not exist.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/sim/cluster.h"
#include "weir/sim/cluster_limit.h"
#include "weir/sim/group_turns.h"

namespace weir::study {

struct ClusterLimitStudy {
  std::string title;
  sim::ClusterSpec spec;
  std::uint64_t seed = 1;
  std::vector<sim::ClusterLimitOutcome> runs;  // one for each policy
};
Result<void> write_cluster_limit(const ClusterLimitStudy& study, const std::string& folder);

struct FaultStudy {
  struct Run {
    std::uint64_t seed = 1;
    std::size_t servers = 0;
    sim::ClusterResult result;
  };
  std::string title;
  std::vector<Run> runs;
};
Result<void> write_faults(const FaultStudy& study, const std::string& folder);

struct GroupStudy {
  struct Run {
    std::string name;
    sim::GroupTurnsSpec spec;
    sim::GroupTurnsResult result;
  };
  std::string title;
  std::uint64_t seed = 1;
  std::vector<Run> runs;
};
Result<void> write_groups(const GroupStudy& study, const std::string& folder);

}  // namespace weir::study
