// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lock_failover.h"

#include <gtest/gtest.h>

#include "weir/lock/term.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

std::string findings_of(const FailoverOutcome& outcome) {
  return outcome.first_findings.empty() ? "" : outcome.first_findings.front();
}

// tests/sim/failover_test.py runs a thousand.
TEST(LockFailover, NoTwoHoldersUnderFaults) {
  std::uint64_t uses = 0;
  std::uint64_t terms = 0;
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const FailoverOutcome outcome = run_failover({}, seed);
    EXPECT_EQ(outcome.findings, 0U) << "seed " << seed << ": " << findings_of(outcome);
    uses += outcome.uses;
    terms += outcome.terms;
    lost += outcome.lost;
  }
  EXPECT_GT(uses, 500U);
  EXPECT_GT(terms, 40U);
  EXPECT_GT(lost, 0U);
}

TEST(LockFailover, TheCheckerFindsAServerThatActsWithoutAProof) {
  std::uint64_t findings = 0;
  for (std::uint64_t seed = 1; seed <= 60 && findings == 0; ++seed) {
    findings = run_failover({.acts_unproven = true}, seed).findings;
  }
  EXPECT_GT(findings, 0U);
}

TEST(LockFailover, TheCheckerFindsAServerWithoutAGracePeriod) {
  std::uint64_t findings = 0;
  for (std::uint64_t seed = 1; seed <= 60 && findings == 0; ++seed) {
    findings = run_failover({.has_no_grace = true}, seed).findings;
  }
  EXPECT_GT(findings, 0U);
}

TEST(LockFailover, TheSameSeedGivesTheSameRun) {
  const FailoverOutcome one = run_failover({}, 7);
  const FailoverOutcome two = run_failover({}, 7);
  EXPECT_EQ(one.uses, two.uses);
  EXPECT_EQ(one.terms, two.terms);
  EXPECT_NE(one.uses, run_failover({}, 8).uses);
}

FailoverScenario quiet() {
  FailoverScenario scenario;
  scenario.locks = 20;
  scenario.lease = 10s;
  scenario.length = 40s;
  scenario.hold = 60ms;
  scenario.fault_every = 0s;
  return scenario;
}

TEST(LockFailover, ANewLockIsGrantedWithinTheLeaseAndTwoSecondsOfACrash) {
  FailoverScenario scenario = quiet();
  scenario.crashes = {10s};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const FailoverOutcome outcome = run_failover(scenario, seed);
    ASSERT_EQ(outcome.gaps.size(), 1U) << seed;
    EXPECT_LE(outcome.gaps[0], scenario.lease + 2s) << seed;
    EXPECT_EQ(outcome.findings, 0U);
  }
}

TEST(LockFailover, ANewLockIsGrantedWithinASecondOfAnOrderlyStop) {
  FailoverScenario scenario = quiet();
  scenario.stops = {10s};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const FailoverOutcome outcome = run_failover(scenario, seed);
    ASSERT_EQ(outcome.gaps.size(), 1U) << seed;
    EXPECT_LE(outcome.gaps[0], 1s) << seed;
    EXPECT_EQ(outcome.findings, 0U);
    EXPECT_EQ(outcome.lost, 0U);
  }
}

}  // namespace
}  // namespace weir::sim
