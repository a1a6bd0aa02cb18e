// SPDX-License-Identifier: Apache-2.0
//
// Creates the servers of a simulated cluster. The base class creates them unchanged. A subclass
// changes options before they are used, for example to show that a checker detects faulty servers:
//
//   struct MembersNeverGiveUp : ClusterParts {
//     EpochMember::Options member(EpochMember::Options options) const override { ... }
//   };
//   run_cluster(rough_cluster(1), MembersNeverGiveUp()).findings
//
// Functions are called from the one thread of a run, and must always return the same results.
#pragma once

#include <cstddef>
#include <functional>

#include "weir/coordinate/epoch_bundle.h"
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
  // For the slices that a server holds.
  virtual SliceTerms holder(SliceTerms terms) const { return terms; }
  // For a server that becomes leader.
  virtual SliceLeader::Options slices(SliceLeader::Options options) const { return options; }
  virtual EpochLeader::Options leader(EpochLeader::Options options) const { return options; }
  // What a relay sends upwards.
  virtual EpochBundle carry(std::size_t /*relay*/, EpochBundle bundle) const { return bundle; }
  // etcd has confirmed that this server leads. The function returns whether a node can be reached.
  virtual void confirmed(SliceLeader&, std::size_t /*nodes*/,
                         const std::function<bool(std::size_t node)>&) const {}
};

// REQUIRES: the parts outlive the run.
ClusterResult run_cluster(const ClusterOptions& options, const ClusterParts& parts);

}  // namespace weir::sim
