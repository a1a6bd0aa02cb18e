// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/class_table.h"

#include <gtest/gtest.h>

#include "weir/schedule/tbf/parts_for_tests.h"

namespace weir::tbf {
namespace {

using std::chrono::seconds;

Instant at(std::int64_t s) { return instant_at(0) + seconds{s}; }

// A class that is not stored in a queue, of a rule with one bucket for all.
struct Lone : Parts {
  Lone() {
    rule("start r jobid={*} rate=1 burst=2 by=rule");
    rule_ = rules.list(Head::kRegular).find("r");
    state = &rules.state_of(*rule_);
  }
  Class& make() { return classes.make(*state, Attributes{}.only({}), nullptr, at(0)); }
  Class* find() { return classes.find(*state, Attributes{}.only({}), nullptr); }

  const Rule* rule_;
  RuleState* state;
};

TEST(ClassTable, AClassIsFoundByItsRuleAndKey) {
  Lone parts;
  EXPECT_EQ(parts.find(), nullptr);
  Class& made = parts.make();
  EXPECT_TRUE(made.is_lone);
  EXPECT_EQ(parts.find(), &made);
  EXPECT_EQ(parts.classes.size(), 1U);
  EXPECT_EQ(made.main.tokens.level(*made.pace->shapes.ops, at(0)), Tokens{2}) << "full";
}

TEST(ClassTable, AnUnusedClassGoesOnceItsBucketsAreFull) {
  Lone parts;
  Class& made = parts.make();
  parts.classes.use(made, Head::kRegular, *parts.rule_);
  parts.classes.forget_one_unused(at(0));
  EXPECT_EQ(parts.find(), &made) << "it is in use";
  made.main.tokens.charge(Tokens{2}, *made.pace->shapes.ops, at(0));
  parts.classes.release(made);
  parts.classes.forget_one_unused(at(1));
  EXPECT_EQ(parts.find(), &made) << "its bucket is not full";
  parts.classes.forget_one_unused(at(2));
  EXPECT_EQ(parts.find(), nullptr);
  EXPECT_EQ(parts.classes.size(), 0U);
}

TEST(ClassTable, ClassesOfAStoppedRuleGo) {
  Lone parts;
  Class& made = parts.make();
  parts.classes.use(made, Head::kRegular, *parts.rule_);
  parts.classes.release(made);
  parts.rule("stop r");
  EXPECT_EQ(parts.classes.size(), 1U);
  parts.classes.forget_stopped();
  EXPECT_EQ(parts.classes.size(), 0U);
}

TEST(ClassTable, LimitsOfOneClassAloneAreMadeOnce) {
  Lone parts;
  Class& made = parts.make();
  Pace& own = ClassTable::own_pace(made, Attributes{}.only({}));
  EXPECT_NE(&own, &parts.state->pace);
  EXPECT_EQ(&own, &ClassTable::own_pace(made, Attributes{}.only({})));
  EXPECT_EQ(own.shapes, parts.state->pace.shapes);
}

}  // namespace
}  // namespace weir::tbf
