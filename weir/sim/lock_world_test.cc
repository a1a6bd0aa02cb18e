// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lock_world.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

// Small enough for a build with sanitizers: a tenth of a second each.
LockScenario small() {
  LockScenario scenario;
  scenario.clients = 20;
  scenario.limit = 1000;
  scenario.rate = 100;
  scenario.length = 120s;
  scenario.settled = 60s;
  return scenario;
}

// All clients take the same few locks exclusively, and the server crashes twice. Some clients
// reconnect late, and two lose their connection without notice.
LockScenario crashes() {
  LockScenario scenario = small();
  scenario.rate = 20;
  scenario.common_locks = 10;
  scenario.common_rate = 4;
  scenario.hold = 2s;
  scenario.lease = 8s;
  scenario.grace = 12s;
  scenario.crashes = {30s, 80s};
  scenario.down = 500ms;
  scenario.reconnect = 15s;
  scenario.vanish = 2;
  scenario.vanish_at = 20s;
  return scenario;
}

LockOutcome run(const LockScenario& scenario, std::string_view contender, std::uint64_t seed = 1,
                Appetite appetite = Appetite::kEqual) {
  return run_locks(scenario, appetite, *lock_contender_by(contender), seed);
}

bool is_steered(const LockOutcome& outcome) {
  return outcome.settled_least * 10 >= outcome.limit * 9 &&
         outcome.settled_most * 10 <= outcome.limit * 11;
}

TEST(LockWorld, SteersWhatIsGrantedToTheLimit) {
  for (const Appetite appetite : {Appetite::kEqual, Appetite::kZipf}) {
    const LockOutcome outcome = run(small(), "weir", 1, appetite);
    EXPECT_TRUE(is_steered(outcome)) << outcome.settled_least << " " << outcome.settled_most;
    EXPECT_LE(outcome.granted_most * 4, outcome.limit * 5);
    EXPECT_EQ(outcome.findings, 0U);
  }
}

TEST(LockWorld, AFrozenVolumeFailsTheFigures) { EXPECT_FALSE(is_steered(run(small(), "frozen"))); }

TEST(LockWorld, BelowTheLimitNothingIsDroppedForVolume) {
  LockScenario scenario = small();
  scenario.working_set = 45;  // of 20 clients: 900 of 1000
  scenario.rate = 400;
  const LockOutcome weir = run(scenario, "weir");
  EXPECT_EQ(weir.cancels_for_volume, 0U);
  EXPECT_GT(weir.settled_least, 890);
}

TEST(LockWorld, TheSameSeedGivesTheSameRun) {
  const LockOutcome one = run(crashes(), "weir", 5);
  const LockOutcome two = run(crashes(), "weir", 5);
  EXPECT_EQ(one.messages, two.messages);
  EXPECT_EQ(one.held, two.held);
  EXPECT_NE(one.messages, run(crashes(), "weir", 6).messages);
}

TEST(LockWorld, AClientThatNeverCancelsLeavesTheOthersTheRest) {
  LockScenario scenario = small();
  scenario.hoarders = 1;
  scenario.length = 90s;
  const LockOutcome outcome = run(scenario, "weir");
  EXPECT_TRUE(is_steered(outcome)) << outcome.settled_least << " " << outcome.settled_most;
  const double rest = *std::min_element(outcome.held.begin() + 1, outcome.held.end());
  EXPECT_GT(outcome.held[0], 300);
  EXPECT_GT(rest, 10);
}

TEST(LockWorld, AfterACrashNoTwoHoldersOfOneLock) {
  for (const std::uint64_t seed : {1U, 2U}) {
    const LockOutcome outcome = run(crashes(), "weir", seed);
    EXPECT_EQ(outcome.findings, 0U) << outcome.first_findings.front();
    EXPECT_GT(outcome.common_uses, 100U);
    EXPECT_GT(outcome.lost, 0U);
    EXPECT_GE(outcome.evictions, 2U);
  }
}

TEST(LockWorld, WithoutGraceTheCheckerFindsTwoHolders) {
  LockScenario scenario = crashes();
  scenario.grace = 0s;
  std::uint64_t findings = 0;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    findings += run(scenario, "weir", seed).findings;
  }
  EXPECT_GT(findings, 0U);
}

// ---- section 3 of the document ----

// All L locks are taken within a second; at 40 s all are dropped.
LockScenario filling() {
  LockScenario scenario = small();
  scenario.clients = 1;
  scenario.rate = 1000;
  scenario.until = 1050ms;
  scenario.length = 60s;
  scenario.drop_all = {40s};
  return scenario;
}

std::uint64_t volume_at(const LockOutcome& outcome, std::size_t second) {
  return outcome.samples.at(second - 1).volume;
}

class UseCases : public testing::TestWithParam<const char*> {};

TEST_P(UseCases, GrowingTheVolumeIsNotBelowTheSavedOneAfterTheLocksAreDropped) {
  const LockOutcome outcome = run(filling(), GetParam());
  EXPECT_GE(volume_at(outcome, 45), volume_at(outcome, 39));
  EXPECT_EQ(outcome.samples.at(44).granted, 0);
}

TEST_P(UseCases, DroppingFivePeriodsAfterTheFillingTheVolumeIsSmaller) {
  LockScenario scenario = filling();
  scenario.until = 1200ms;  // above the limit
  const LockOutcome outcome = run(scenario, GetParam());
  EXPECT_LT(volume_at(outcome, 6), lock::volume_max(scenario.limit));
}

TEST_P(UseCases, StabilisingThirtyPeriodsLaterItIsTheSameOrGreater) {
  LockScenario scenario = filling();
  scenario.until = 930ms;  // just below the limit
  const LockOutcome outcome = run(scenario, GetParam());
  EXPECT_GE(volume_at(outcome, 33), volume_at(outcome, 3));
}

INSTANTIATE_TEST_SUITE_P(Presets, UseCases, testing::Values("weir", "dld", "lustre"));

TEST(LockScenario, RefusesWhatCannotBe) {
  LockScenario scenario = small();
  EXPECT_TRUE(check(scenario));
  scenario.limit = 0;
  EXPECT_FALSE(check(scenario));
  scenario = small();
  scenario.clients = 0;
  EXPECT_FALSE(check(scenario));
  scenario = small();
  scenario.hoarders = 21;
  EXPECT_FALSE(check(scenario));
}

TEST(LockContender, HasANameThatIsReadBack) {
  for (const char* const name : {"weir", "dld", "lustre", "frozen", "lru-25"}) {
    ASSERT_TRUE(lock_contender_by(name)) << name;
    EXPECT_EQ(lock_contender_by(name)->name(), name);
  }
  for (const char* const name : {"", "lru-", "lru-0", "lru-x", "lru-5x", "wier"}) {
    EXPECT_FALSE(lock_contender_by(name)) << name;
  }
}

}  // namespace
}  // namespace weir::sim
