// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/share_level.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/classify/nid.h"

namespace weir {
namespace {

using Names = std::vector<std::string>;

std::string refused(const Names& names) {
  const auto levels = parse_share_levels(names);
  return levels ? "" : levels.error().what;
}

TEST(ShareLevel, ParsesTheLevelsAboveTheJobs) {
  const auto levels = parse_share_levels(Names{"projid", "subnet/24", "uid", "jobid"});
  ASSERT_TRUE(levels);
  ASSERT_EQ(levels->size(), 3U);
  EXPECT_EQ((*levels)[0].name(), "projid");
  EXPECT_EQ((*levels)[1].name(), "subnet/24");
  EXPECT_EQ((*levels)[2].name(), "uid");
  EXPECT_EQ(fields_of(*levels), (FieldSet{Field::kProjid, Field::kNid, Field::kUid}));
  EXPECT_TRUE(parse_share_levels(Names{"jobid"})->empty());
}

TEST(ShareLevel, RefusesUnknownAndRepeatedLevels) {
  EXPECT_EQ(refused({}), "a tree without a level");
  EXPECT_EQ(refused({"project", "jobid"}), "'project' is not a level");
  EXPECT_EQ(refused({"opcode", "jobid"}), "'opcode' is not a level");
  EXPECT_EQ(refused({"uid", "uid", "jobid"}), "'uid' is named twice");
  EXPECT_EQ(refused({"jobid", "jobid"}), "jobid is named before the last level");
  EXPECT_EQ(refused({"projid", "uid"}), "the last level is not jobid");
  EXPECT_EQ(refused({"subnet/0", "jobid"}), "'subnet/0': N of subnet/N is a number from 1 to 128");
  EXPECT_EQ(refused({"subnet/x", "jobid"}), "'subnet/x': N of subnet/N is a number from 1 to 128");
  EXPECT_EQ(refused(Names(9, "jobid")), "9 levels; the maximum is 8");
}

TEST(ShareLevel, AMissingValueIsANodeOfItsOwn) {
  Attributes attributes;
  for (const char* const name : {"uid", "gid", "projid", "nodemap", "nid", "subnet/8"}) {
    const auto levels = parse_share_levels(Names{name, "jobid"});
    ASSERT_TRUE(levels) << name;
    EXPECT_EQ(levels->front().value_of(attributes).text(), "(none)") << name;
  }
}

TEST(ShareLevel, NamesTheValues) {
  const auto levels =
      parse_share_levels(Names{"uid", "gid", "projid", "nodemap", "nid", "subnet/20", "jobid"});
  ASSERT_TRUE(levels);
  Attributes attributes;
  attributes.uid = 1001;
  attributes.gid = 0;
  attributes.projid = 4'000'000'000;
  attributes.nodemap = 7;
  attributes.nid = *parse_nid("10.1.77.3@o2ib1");
  std::string path;
  for (const ShareLevel& level : *levels) {
    path += "/" + std::string(level.value_of(attributes).text());
  }
  EXPECT_EQ(path, "/1001/0/4000000000/7/10.1.77.3@o2ib1/10.1.64.0@o2ib1");
}

TEST(ShareLevel, LongAddressesStayDifferent) {
  const ShareLevel level{.field = Field::kNid};
  const ShareLevel network{.field = Field::kNid, .subnet_bits = 72};
  Attributes one;
  Attributes other;
  one.nid = *parse_nid("2001:db8:1111:2222:3333:4444:5555:6666@tcp");
  other.nid = *parse_nid("2001:db8:1111:2222:3333:4444:5555:6667@tcp");
  EXPECT_NE(level.value_of(one), level.value_of(other));
  EXPECT_EQ(network.value_of(one), network.value_of(other));
  EXPECT_EQ(network.value_of(one).text(), "2001:db8:1111:2222:3300::@tcp");
}

}  // namespace
}  // namespace weir
