// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/shared_rule.h"

#include <gtest/gtest.h>

#include "weir/coordinate/slices.h"

namespace weir::cluster {
namespace {

SharedRule rule_of(const std::string& value) {
  auto rule = read_shared_rule("ost_io/dd", value);
  EXPECT_TRUE(rule) << rule.error().message();
  return rule ? *rule : SharedRule{};
}

Result<RuleChange> read(const std::string& text) {
  auto change = parse_rule(text);
  return change ? shared_change(*change) : change;
}

RuleChange command_of(const std::string& text) {
  auto command = read(text);
  EXPECT_TRUE(command) << command.error().message();
  return command ? *command : RuleChange{};
}

std::errc refusal_of(const std::string& text) {
  const auto command = read(text);
  EXPECT_FALSE(command) << text;
  return command ? std::errc{} : command.error().code;
}

TEST(SharedRule, IsWhatItWasAfterItWasWritten) {
  const std::string value = "start dd jobid={dd.*} rate=5 scope=cluster\nchange dd rate=9\n";
  const SharedRule rule = rule_of(value);
  EXPECT_EQ(rule.key(), "ost_io/dd");
  EXPECT_EQ(rule.changes.size(), 2U);
  EXPECT_EQ(rule.print(), value);
  EXPECT_EQ(SharedRule::parts("ost_io/dd").first, "ost_io");
  EXPECT_EQ(SharedRule::parent("ost_io/dd/ops"), "ost_io/dd");
}

TEST(SharedRule, WhatSomebodyElseWroteToEtcdIsRefused) {
  for (const char* value : {"", "\n", "stop dd\n", "start cp jobid={cp.*} rate=5\n", "garbage",
                            "start dd jobid={dd.*} rate=5\nstart dd jobid={dd.*} rate=5\n"}) {
    EXPECT_FALSE(read_shared_rule("ost_io/dd", value)) << value;
  }
}

TEST(SharedRule, TheLimitsAreThoseOfTheLastChange) {
  SliceLimits limits;
  add_limits(rule_of("start dd jobid={dd.*} rate=5 bps=2KiB scope=cluster\nchange dd rate=9\n"),
             limits);
  EXPECT_EQ(limits,
            (SliceLimits{{"ost_io/dd/bytes", 2048 * kMilli}, {"ost_io/dd/ops", 9 * kMilli}}));
}

TEST(SharedRule, AChangeTakesThePlaceOfOneThatSetNothingElse) {
  SharedRule rule = rule_of("start dd jobid={dd.*} rate=5 scope=cluster\n");
  rule = with_change(rule, command_of("change dd rate=6"));
  rule = with_change(rule, command_of("change dd burst=7"));
  rule = with_change(rule, command_of("change dd rate=8"));
  EXPECT_EQ(rule.print(),
            "start dd jobid={dd.*} rate=5 scope=cluster\nchange dd burst=7\nchange dd rate=8\n");
  rule = with_change(rule, command_of("change dd rate=9 burst=10"));
  EXPECT_EQ(rule.changes.size(), 2U);
}

TEST(SharedCommand, AStartIsTheClustersWithoutSayingSo) {
  EXPECT_EQ(print(command_of("start dd jobid={dd.*} rate=5")),
            "start dd jobid={dd.*} rate=5 scope=cluster");
  EXPECT_EQ(print(command_of("start dd jobid={dd.*} rate=5 scope=cluster")),
            "start dd jobid={dd.*} rate=5 scope=cluster");
  EXPECT_EQ(print(command_of("start dd jobid={dd.*} rate=500 reserve=200")),
            "start dd jobid={dd.*} rate=500 reserve=200 scope=cluster");
  EXPECT_EQ(command_of("stop dd").verb, Verb::kStop);
}

TEST(SharedCommand, WhatCannotBeTheClustersIsRefused) {
  EXPECT_EQ(refusal_of("start dd jobid={dd.*}"), std::errc::invalid_argument);
  EXPECT_EQ(refusal_of("start dd jobid={dd.*} rate=5 scope=local"), std::errc::invalid_argument);
  EXPECT_EQ(refusal_of("reg start dd jobid={dd.*} rate=5"), std::errc::invalid_argument);
  EXPECT_EQ(refusal_of("change default rate=5"), std::errc::operation_not_permitted);
  EXPECT_EQ(refusal_of("begin dd"), std::errc::invalid_argument);
  EXPECT_EQ(refusal_of("start dd jobid={dd.*} rate=5 reserve=9"), std::errc::invalid_argument);
  EXPECT_EQ(refusal_of("start dd jobid={dd.*} bps=9MiB reserve=5"), std::errc::invalid_argument)
      << "no limit in its unit";
  EXPECT_EQ(refusal_of("start dd {500} 10"), std::errc::invalid_argument) << "of which field?";
  RuleChange lines = start_of({.name = "dd", .conds = "jobid={a\nb}"});
  lines.keys.rate = 5;
  EXPECT_EQ(shared_change(lines).error().code, std::errc::invalid_argument) << "two lines";
}

}  // namespace
}  // namespace weir::cluster
