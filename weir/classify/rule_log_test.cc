// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_log.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/classify/rule_text.h"

namespace weir {
namespace {

using Texts = std::vector<std::string>;

Texts left_of(const Texts& commands) {
  RuleLog log;
  for (const std::string& command : commands) log.add("t", command);
  Texts texts;
  for (const RuleLog::Record& one : log.records()) texts.push_back(one.text);
  return texts;
}

TEST(RuleLog, LeavesOutWhatLaterCommandsMakePointless) {
  EXPECT_EQ(left_of({"start a jobid={a}", "change a rate=1", "stop a"}), Texts{});
  EXPECT_EQ(left_of({"change a rate=1", "change a rate=2"}), Texts{"change a rate=2"});
  EXPECT_EQ(left_of({"change a rate=1", "change a burst=2 rate=3"}),
            Texts{"change a burst=2 rate=3"});
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
  log.add("t", "start a jobid={a b}");
  log.add("u", "start a jobid={a b}");
  EXPECT_EQ(log.forget("t", "start  a jobid={a b }"), Texts{"start a jobid={a b}"});
  EXPECT_EQ(log.size(), 1U);
  log.move("u", std::nullopt, "t");
  EXPECT_EQ(log.forget("t", std::nullopt).size(), 1U);
}

TEST(RuleLog, ACopyGoesOnAlone) {
  RuleLog log, copy;
  log.add("t", "start a jobid={a}");
  copy = log;
  log.add("t", "stop a");
  EXPECT_EQ(log.size(), 0U);
  EXPECT_EQ(copy.size(), 1U);
  copy.add("t", "stop a");
  EXPECT_EQ(copy.size(), 0U);
}

TEST(RuleText, WritesOldFormsInFull) {
  const FieldSet uid = *FieldSet::parse_type("uid");
  EXPECT_EQ(in_full("start a {500 501} 10", uid), "start a uid={500 501} rate=10");
  EXPECT_EQ(in_full("hp change a 10", uid), "hp change a rate=10");
  for (const char* same : {"start a uid={500} rate=10", "change a rate=10", "stop a"}) {
    EXPECT_EQ(in_full(same, uid), same);
  }
  EXPECT_EQ(in_full("start a {500} 10", FieldSet::all()), "start a {500} 10");
}

}  // namespace
}  // namespace weir
