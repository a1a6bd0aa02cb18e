// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/names.h"

#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

TEST(Names, AreMadeUpAndKept) {
  Names names = *Names::read("w", "");
  EXPECT_EQ(names.name_for(JobId("fio.node1"), {}, {}), "w00001");
  EXPECT_EQ(names.name_for(JobId("dd.0"), {"w00002"}, {}), "w00003");  // somebody has it
  EXPECT_EQ(names.name_for(JobId("fio.node1"), {}, {}), "w00001");
  EXPECT_TRUE(names.is_changed());
  const Names again = *Names::read("w", names.print());
  EXPECT_EQ(again.find(JobId("dd.0")), "w00003");
  EXPECT_FALSE(again.is_changed());
}

TEST(Names, ARuleIsOursByNameAndCondition) {
  Names names = *Names::read("w", "");
  names.name_for(JobId("dd.0"), {}, {});
  EXPECT_EQ(names.owner("w00001", "jobid={dd.0}"), JobId("dd.0"));
  EXPECT_EQ(names.owner("w00001", "{dd.0}"), JobId("dd.0"));  // as listed up to 2.17.0
  EXPECT_EQ(names.owner("w00001", "jobid={other}"), std::nullopt);
  EXPECT_EQ(names.owner("w00002", "jobid={dd.0}"), std::nullopt);
  EXPECT_EQ(names.owner("w00001", "jobid={dd.0}&opcode={ost_read}"), std::nullopt);
}

TEST(Names, MapsHoldAnyId) {
  Names names = *Names::read("w", "");
  const JobId odd("\xC3\xA4 \"\\\n");
  names.name_for(odd, {}, {});
  EXPECT_EQ(Names::read("w", names.print())->find(odd), "w00001");
}

TEST(Names, WhatNoRuleCanAskFor) {
  for (const char* id : {"", "a b", "a,b", "a&b", "a{b", "a}b", "a*", "a\"b", "a\nb"}) {
    EXPECT_FALSE(is_expressible(JobId(id))) << id;
  }
  for (const char* id : {"dd.0", "a=b", "plain-1_x/y@z", "uml\xC3\xA4ut", "has:colon"}) {
    EXPECT_TRUE(is_expressible(JobId(id))) << id;
  }
}

TEST(Names, TheOneUsedLongestAgoMakesRoom) {
  Names names = *Names::read("w", "");
  for (std::size_t i = 0; i < Names::kMax; ++i) {
    ASSERT_TRUE(names.name_for(JobId("job" + std::to_string(i)), {}, {}));
  }
  const std::string first = *names.find(JobId("job0"));
  ASSERT_TRUE(names.name_for(JobId("another"), {}, {first}));  // job0's rule is in force
  EXPECT_TRUE(names.find(JobId("job0")));
  EXPECT_FALSE(names.find(JobId("job1")));
}

// What cannot be read back would leave the rules of a run that died without an owner.
TEST(Names, TheLargestMapIsAsLargeAsIsSaid) {
  Names names = *Names::read("ten_chars_", "");
  for (std::size_t i = 0; i < Names::kMax; ++i) {
    std::string id(JobId::kSizeMax - 3, '\xE3');
    for (std::size_t part = i; id.size() < JobId::kSizeMax; part /= 16) {
      id += static_cast<char>(0xA1 + part % 16);
    }
    ASSERT_TRUE(names.name_for(JobId(id), {}, {}));
  }
  const std::string text = names.print();
  EXPECT_LE(text.size(), Names::kTextMax);
  EXPECT_GT(text.size(), Names::kTextMax * 9 / 10);
  EXPECT_EQ(Names::read("ten_chars_", text)->print(), text);
}

TEST(Names, RefusesPrefixesAndMapsThatAreNone) {
  EXPECT_FALSE(Names::read("", ""));
  EXPECT_FALSE(Names::read("a.b", ""));
  EXPECT_FALSE(Names::read("elevenchars", ""));
  EXPECT_TRUE(Names::read("ten_chars_", ""));
  EXPECT_FALSE(Names::read("w", "something else\n"));
  EXPECT_FALSE(Names::read("w", "weir lustre names 1\nw00001\n"));
}

}  // namespace
}  // namespace weir::lustre
