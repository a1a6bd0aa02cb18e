// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_log.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weir {
namespace {

using Texts = std::vector<std::string>;

Texts left_of(const Texts& commands) {
  RuleLog log;
  for (const std::string& command : commands) log.add("t", read_or_keep(command));
  Texts texts;
  for (const RuleLog::Record& one : log.records()) texts.push_back(print(one.command));
  return texts;
}

TEST(RuleLog, LeavesOutWhatLaterCommandsMakePointless) {
  EXPECT_EQ(left_of({"start a jobid={a}", "change a rate=1", "stop a"}), Texts{});
  EXPECT_EQ(left_of({"change a rate=1", "change a rate=2"}), Texts{"change a rate=2"});
  EXPECT_EQ(left_of({"change a rate=1", "change a burst=2 rate=3"}),
            Texts{"change a rate=3 burst=2"});
  EXPECT_EQ(left_of({"stop f", "start f jobid={f}", "stop f", "stop f"}), Texts{"stop f"})
      << "of a rule that was there before";
}

TEST(RuleLog, KeepsWhatOthersDependOn) {
  const Texts ranked = {"start a jobid={a}", "start b jobid={b} rank=a", "stop a"};
  EXPECT_EQ(left_of(ranked), ranked);
  const Texts heads = {"start a jobid={a}", "reg change a rate=1", "stop a"};
  EXPECT_EQ(left_of(heads), heads);
  const Texts bursts = {"change a burst=9", "change a burst=9MiB"};
  EXPECT_EQ(left_of(bursts), bursts);
}

TEST(RuleLog, ForgetsWhateverTheBlanks) {
  RuleLog log;
  log.add("t", read_or_keep("start a jobid={a b}"));
  log.add("u", read_or_keep("start a jobid={a b}"));
  EXPECT_EQ(log.forget("t", read_or_keep("start  a jobid={a b }")), 1U);
  EXPECT_EQ(log.forget("t", read_or_keep("start a jobid={a b}")), 0U) << "it is gone";
  EXPECT_EQ(log.size(), 1U);
  log.move("u", std::nullopt, "t");
  EXPECT_EQ(log.forget("t", std::nullopt), 1U);
}

TEST(RuleLog, ACopyGoesOnAlone) {
  RuleLog log, copy;
  log.add("t", read_or_keep("start a jobid={a}"));
  copy = log;
  log.add("t", read_or_keep("stop a"));
  EXPECT_EQ(log.size(), 0U);
  EXPECT_EQ(copy.size(), 1U);
  copy.add("t", read_or_keep("stop a"));
  EXPECT_EQ(copy.size(), 0U);
}

TEST(RuleLog, ComparesWhatCommandsSay) {
  RuleLog log;
  log.add("t", read_or_keep("start a jobid={a} rate=5 bps=1024KiB"));
  log.add("t", read_or_keep("no command"));
  EXPECT_EQ(log.forget("t", read_or_keep("start a jobid={a} bps=1MiB/s rate=5")), 1U);
  EXPECT_EQ(left_of({"change a burst=20k", "change a burst=9"}), Texts{"change a burst=9"})
      << "both are tokens";
  EXPECT_EQ(log.records().front().command, RuleOrText("no command")) << "somebody should see it";
}

}  // namespace
}  // namespace weir
