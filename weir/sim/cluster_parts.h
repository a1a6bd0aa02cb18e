// SPDX-License-Identifier: Apache-2.0
//
// How the servers of a simulated cluster are built. The base class builds them as they are. A
// subclass changes options before they are used, for example to show that a checker finds servers
// that are built wrongly:
//
//   struct MembersNeverGiveUp : ClusterParts {
//     EpochMember::Options member(EpochMember::Options options) const override { ... }
//   };
//   run_cluster(rough_cluster(1), MembersNeverGiveUp()).findings
//
// Functions are called from the one thread of a run, and must give the same answers every time.
#pragma once

#include <cstddef>
#include <functional>

#include "weir/coordinate/leader.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/slices.h"
#include "weir/sim/cluster.h"

namespace weir::sim {

class ClusterParts {
 public:
  ClusterParts() = default;
  ClusterParts(const ClusterParts&) = delete;
  ClusterParts& operator=(const ClusterParts&) = delete;
  virtual ~ClusterParts() = default;

  virtual EpochMember::Options member(EpochMember::Options options) const { return options; }
  virtual EpochParticipant::Options participant(EpochParticipant::Options options) const {
    return options;
  }
  // Of the slices that a server holds.
  virtual SliceTerms holder(SliceTerms terms) const { return terms; }
  // Of a server that begins to lead.
  virtual SliceLeader::Options slices(SliceLeader::Options options) const { return options; }
  virtual EpochLeader::Options leader(EpochLeader::Options options) const { return options; }
  // etcd has confirmed that this server leads. The function says whether a node can be reached.
  virtual void confirmed(SliceLeader&, std::size_t /*nodes*/,
                         const std::function<bool(std::size_t node)>&) const {}
};

// The parts outlive the run.
ClusterResult run_cluster(const ClusterOptions& options, const ClusterParts& parts);

}  // namespace weir::sim
