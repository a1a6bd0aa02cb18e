// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/cluster_limit.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using std::chrono::seconds;

// The figures of docs/promises.md: within 2 % over any 5 s, within 10 % over any 500 ms, and at
// least 98 % used, with a hot spot that moves every 2 s.
TEST(ClusterLimit, HoldsOnTenServersWhileTheHotSpotMoves) {
  for (const std::uint64_t seed : {1U, 2U}) {
    const ClusterLimitOutcome result =
        run_cluster_limit({.length = seconds{16}}, Contender::kSlices, seed);
    EXPECT_EQ(result.cluster.findings, 0U);
    EXPECT_LE(result.long_windows.most, 1.02);
    EXPECT_GE(result.long_windows.least, 0.98);
    EXPECT_LE(result.short_windows.most, 1.10);
    EXPECT_GE(result.short_windows.least, 0.90);
    EXPECT_GE(result.utilisation, 0.98);
  }
}

// It moves four times as often.
TEST(ClusterLimit, IsUsedWhileTheHotSpotMovesTwiceASecond) {
  for (const Partition partition : {Partition::kSafe, Partition::kLast}) {
    const ClusterLimitOutcome result =
        run_cluster_limit({.move_every = std::chrono::milliseconds{500},
                           .length = seconds{16},
                           .partition = partition},
                          Contender::kSlices, 1);
    EXPECT_EQ(result.cluster.findings, 0U);
    EXPECT_LE(result.long_windows.most, 1.02);
    EXPECT_LE(result.short_windows.most, 1.10);
    EXPECT_GE(result.utilisation, 0.975);
  }
}

// Slices without an end: nearly all of the limit is used while there is no leader, or no etcd.
TEST(ClusterLimit, IsUsedThroughOutagesWithSlicesWithoutAnEnd) {
  for (const auto outage : {ClusterSpec::Outage::kLeader, ClusterSpec::Outage::kEtcd}) {
    ClusterSpec spec{.partition = Partition::kLast, .outage = outage};
    spec.length = ClusterSpec::kOutageAt + spec.outage_length() + seconds{5};
    const ClusterLimitOutcome result = run_cluster_limit(spec, Contender::kSlices, 1);
    EXPECT_EQ(result.cluster.findings, 0U);
    EXPECT_GE(*result.through_outage, 0.95);
    EXPECT_LE(result.long_windows.most, 1.02);
    EXPECT_LE(result.short_windows.most, 1.10);
  }
}

// With leases the rest is 10 % at most: the check sees an outage.
TEST(ClusterLimit, IsHardlyUsedThroughOutagesWithSlicesThatEnd) {
  ClusterSpec spec{.outage = ClusterSpec::Outage::kEtcd};
  spec.length = ClusterSpec::kOutageAt + spec.outage_length() + seconds{5};
  const ClusterLimitOutcome result = run_cluster_limit(spec, Contender::kSlices, 1);
  EXPECT_EQ(result.cluster.findings, 0U);
  EXPECT_LE(*result.through_outage, 0.10);
}

// The checks work: fixed slices waste capacity, and the whole limit on each server multiplies.
TEST(ClusterLimit, FixedSlicesLoseWhatTheHotSpotCannotUse) {
  const ClusterLimitOutcome result =
      run_cluster_limit({.length = seconds{8}}, Contender::kFixed, 1);
  EXPECT_LT(result.utilisation, 0.5);
  EXPECT_GT(result.utilisation, 0.1);
}

TEST(ClusterLimit, WholeLimitsOnEachServerMultiply) {
  ClusterSpec spec{.length = seconds{4}};
  spec.limit = 100;
  spec.trickle = std::chrono::milliseconds{5};
  const ClusterLimitOutcome result = run_cluster_limit(spec, Contender::kEach, 1);
  EXPECT_GT(result.utilisation, 5.0);
}

}  // namespace
}  // namespace weir::sim
