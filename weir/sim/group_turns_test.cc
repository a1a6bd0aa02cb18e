// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/group_turns.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

GroupTurnsSpec spec_of(GroupMode mode, std::uint64_t seed = 1) {
  GroupTurnsSpec spec;
  spec.mode = mode;
  spec.seed = seed;
  spec.servers = 4;
  spec.slots = 2;
  spec.service = milliseconds{2};
  spec.window = 16;
  spec.length = seconds{2};
  return spec;
}

// Starts reach the servers within the largest difference between two message delays.
TEST(GroupTurns, AllServersPreferTheSameGroupButForTheRaggedness) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const GroupTurnsResult result = run_group_turns(spec_of(GroupMode::kTogether, seed));
    EXPECT_LE(result.ragged_max, std::chrono::microseconds{450});
    EXPECT_LE(result.ragged_sum, milliseconds{40}) << "of 1 s";
    EXPECT_EQ(result.idle_findings, 0U);
    EXPECT_EQ(result.errors, 0U);
    for (const auto& group : result.groups) EXPECT_GT(group.operations, 200U);
  }
}

// The check works: it fails if servers take turns independently.
TEST(GroupTurns, ServersThatTakeTurnsByThemselvesDoNotAgree) {
  const GroupTurnsResult result = run_group_turns(spec_of(GroupMode::kApart));
  EXPECT_GT(result.ragged_max, milliseconds{5});
  EXPECT_EQ(result.idle_findings, 0U);
}

TEST(GroupTurns, StripedOperationsAreQuickerWhereServersMoveTogether) {
  const GroupTurnsResult together = run_group_turns(spec_of(GroupMode::kTogether));
  const GroupTurnsResult apart = run_group_turns(spec_of(GroupMode::kApart));
  EXPECT_LT(together.groups[0].latency.quantile(50, 100),
            apart.groups[0].latency.quantile(50, 100));
}

TEST(GroupTurns, WithAQuietPhaseNothingOfOneEpochRunsIntoTheNext) {
  GroupTurnsSpec spec = spec_of(GroupMode::kTogether);
  spec.quiesce = true;
  const GroupTurnsResult result = run_group_turns(spec);
  EXPECT_EQ(result.crossing_findings, 0U);
  EXPECT_EQ(result.idle_findings, 0U);
  EXPECT_GT(result.epochs, 80U);
  // Servers that take turns independently are quiet at different times, and the check detects it.
  spec.mode = GroupMode::kApart;
  EXPECT_GT(run_group_turns(spec).crossing_findings, 0U);
}

TEST(GroupTurns, AServerThatIsCutOffGoesOnAloneAndComesBack) {
  GroupTurnsSpec spec = spec_of(GroupMode::kTogether);
  spec.cut = {.server = 3, .from = milliseconds{1000}, .to = milliseconds{1500}};
  const GroupTurnsResult result = run_group_turns(spec);
  EXPECT_GT(result.errors, 0U);
  EXPECT_GT(result.cut_served, 50U) << "all others wait for its part of their operations";
  EXPECT_EQ(result.idle_findings, 0U);
  EXPECT_TRUE(result.all_in_step);
}

TEST(GroupTurns, TheSameSeedGivesTheSameRun) {
  const GroupTurnsResult one = run_group_turns(spec_of(GroupMode::kTogether, 9));
  const GroupTurnsResult two = run_group_turns(spec_of(GroupMode::kTogether, 9));
  EXPECT_EQ(one.messages, two.messages);
  EXPECT_EQ(one.epochs, two.epochs);
  EXPECT_EQ(one.groups[1].operations, two.groups[1].operations);
}

}  // namespace
}  // namespace weir::sim
