// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/contender.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

Scenario sample() {
  Scenario scenario;
  scenario.jobs.resize(2);
  scenario.jobs[0].name = "big";
  scenario.jobs[0].nodes = 3;
  scenario.jobs[1].name = "small";
  for (JobSpec& job : scenario.jobs) job.processes = {{.requests = 1}};
  return scenario;
}

Result<Stage> stage_of(Contender contender, const Scenario& scenario) {
  return make_stage(contender, scenario, scenario.targets.front(), std::nullopt, Instant{});
}

TEST(Contender, HasANameAndIsFoundByIt) {
  for (const Contender contender : kContenders) {
    EXPECT_EQ(contender_by(contender_name(contender)), contender);
  }
  EXPECT_EQ(contender_by("fifo"), std::nullopt);
}

TEST(Contender, NoneIsFirstComeFirstServed) {
  const auto stage = stage_of(Contender::kNone, sample());
  ASSERT_TRUE(stage);
  EXPECT_EQ(stage->target->policy(Head::kRegular).name(), "fifo");
  EXPECT_EQ(stage->bounds.idling, Idling::kForbidden);
}

TEST(Contender, StaticHasARuleForEveryJobByItsNodes) {
  const auto stage = stage_of(Contender::kStatic, sample());
  ASSERT_TRUE(stage);
  const RuleView* rules = stage->target->rules(Head::kRegular);
  ASSERT_NE(rules, nullptr);
  EXPECT_EQ(rules->rules(Head::kRegular).listing(),
            "s1 jobid={small} 250, ref 0\ns0 jobid={big} 750, ref 0\ndefault * 10000, ref 0\n");
  EXPECT_EQ(stage->bounds.jobs[0]->rate, Rate::per_second(750));
  EXPECT_EQ(stage->bounds.jobs[0]->depth, Tokens{3});
  EXPECT_EQ(stage->bounds.idling, Idling::kAllowed);
}

TEST(Contender, StaticIsInBytesWhereCostIs) {
  Scenario scenario = sample();
  scenario.targets[0].cost = Cost::bytes();
  scenario.targets[0].capacity = Rate::per_second(4'000'000);
  scenario.jobs[0].processes[0].sizes = {{Bytes{65536}, 1}};
  const auto stage = stage_of(Contender::kStatic, scenario);
  ASSERT_TRUE(stage);
  EXPECT_EQ(stage->bounds.jobs[1]->rate, Rate::per_second(1'000'000));
  EXPECT_EQ(stage->bounds.jobs[1]->depth, Tokens{std::uint64_t{3} * 65536});
}

TEST(Contender, StaticRefusesARateThatNoRuleCanExpress) {
  Scenario scenario = sample();
  scenario.targets[0].capacity = Rate::per_second(10'000'000);
  const auto stage = stage_of(Contender::kStatic, scenario);
  ASSERT_FALSE(stage);
  EXPECT_EQ(stage.error().message(),
            "target 'target': policy static would need a rate above 999999; give a smaller "
            "capacity, or leave that policy out");
}

TEST(Contender, OnlyWeirWithAKnownCapacityHasALimitOfTheWhole) {
  Scenario scenario = sample();
  EXPECT_EQ(stage_of(Contender::kWeir, scenario)->bounds.whole->depth, Tokens{1000});
  EXPECT_EQ(stage_of(Contender::kWeir, scenario)->bounds.enough->depth, Tokens{100});
  EXPECT_EQ(stage_of(Contender::kWeir, scenario)->bounds.idling, Idling::kAtCapacity);
  EXPECT_FALSE(stage_of(Contender::kAdaptbf, scenario)->bounds.whole);
  EXPECT_FALSE(stage_of(Contender::kWfq, scenario)->bounds.whole);
  scenario.targets[0].estimate = true;
  EXPECT_FALSE(stage_of(Contender::kWeir, scenario)->bounds.whole);
}

}  // namespace
}  // namespace weir::sim
