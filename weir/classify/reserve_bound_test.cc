// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/reserve_bound.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "weir/classify/command.h"
#include "weir/classify/rule_list.h"

namespace weir {
namespace {

// The rules of both heads.
struct Bounded {
  explicit Bounded(const ReserveBound& of) : bound(of) {}

  ReserveBound bound;
  RuleList regular{FieldSet{Field::kJobid}};
  RuleList high{FieldSet{Field::kJobid}};
};

// The message of the refusal; empty: the command was applied.
std::string start(Bounded& rules, const std::string& text) {
  const auto command = parse_command(text, rules.regular.type());
  EXPECT_TRUE(command) << text;
  const std::array<const RuleList*, 2> lists = {&rules.regular, &rules.high};
  if (const auto done = rules.bound.check(*command, lists); !done) return done.error().message();
  if (command->heads != Heads::kHigh) {
    EXPECT_TRUE(rules.regular.apply(*command)) << text;
  }
  if (command->heads != Heads::kRegular) {
    EXPECT_TRUE(rules.high.apply(*command)) << text;
  }
  return "";
}

TEST(ReserveBound, AllRulesTogetherReserveNineTenths) {
  Bounded rules({.capacity = Rate::per_second(1000), .cost = Cost::op()});
  EXPECT_EQ(start(rules, "start a jobid={a} reserve=500"), "");
  EXPECT_EQ(start(rules, "start b jobid={b} reserve=401"),
            "a reservation of 401, and 500 of other rules, are more than 90 % of the capacity of "
            "1000, which is 900; give a smaller reserve=, or reduce those of other rules");
  EXPECT_EQ(start(rules, "start b jobid={b} reserve=400"), "");
  EXPECT_NE(start(rules, "change a reserve=501"), "");
  EXPECT_EQ(start(rules, "change a reserve=300"), "");
  EXPECT_EQ(start(rules, "hp start c jobid={c} reserve=200"), "");
  EXPECT_NE(start(rules, "reg start d jobid={d} reserve=1"), "");
}

TEST(ReserveBound, LessIsAllowedAfterTheCapacityFell) {
  Bounded rules({.capacity = Rate::per_second(1000), .cost = Cost::op()});
  EXPECT_EQ(start(rules, "start a jobid={a} reserve=900"), "");
  rules.bound = {.capacity = Rate::per_second(100), .cost = Cost::op()};
  EXPECT_EQ(start(rules, "change a rate=950"), "");
  EXPECT_EQ(start(rules, "change a reserve=800"), "");
  EXPECT_NE(start(rules, "change a reserve=801"), "");
  EXPECT_EQ(start(rules, "stop a"), "");
}

TEST(ReserveBound, TheUnitIsThatOfTheCapacity) {
  Bounded ops({.capacity = std::nullopt, .cost = Cost::op()});
  EXPECT_EQ(start(ops, "start a jobid={a} reserve=1MiB/s"),
            "a reservation of 1MiB/s is not in the unit of the capacity; give operations per "
            "second, such "
            "as reserve=500");
  EXPECT_NE(start(ops, "start a jobid={a} reserve=5 cost=affine:1:1"), "");
  EXPECT_EQ(start(ops, "start a jobid={a} reserve=5000"), "") << "the capacity is not known";
  Bounded bytes({.capacity = Rate::per_second(1'000'000), .cost = Cost::bytes()});
  EXPECT_NE(start(bytes, "start a jobid={a} reserve=5"), "");
  EXPECT_EQ(start(bytes, "start a jobid={a} reserve=900kB/s"), "");
  EXPECT_NE(start(bytes, "start b jobid={b} reserve=1B/s"), "");
  Bounded any({});
  EXPECT_EQ(start(any, "start a jobid={a} reserve=5000"), "");
  EXPECT_EQ(start(any, "start b jobid={b} reserve=900GB/s"), "");
}

TEST(ReserveBound, RulesOfAClusterAreNotBoundedByOneServer) {
  Bounded rules({.capacity = Rate::per_second(1000), .cost = Cost::op()});
  EXPECT_EQ(start(rules, "start wide jobid={w} rate=9000 reserve=5000 scope=cluster"), "");
  EXPECT_EQ(start(rules, "start own jobid={a} reserve=900"), "") << "the other one is not counted";
  EXPECT_NE(start(rules, "start bytes jobid={b} bps=9MiB reserve=1MiB/s scope=cluster"), "")
      << "in another unit";
}

}  // namespace
}  // namespace weir
