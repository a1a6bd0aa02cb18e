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

std::string path_of(const Names& names, const Attributes& attributes) {
  std::string path;
  const auto levels = parse_share_levels(names);
  for (const ShareLevel& level : *levels) {
    path += "/" + std::string(node_name(level, attributes).text());
  }
  return path;
}

TEST(ShareLevel, ParsesTheLevelsAboveTheJobs) {
  const auto levels = parse_share_levels(Names{"projid", "subnet/24", "uid", "jobid"});
  ASSERT_TRUE(levels);
  EXPECT_EQ(*levels,
            (std::vector<ShareLevel>{{Field::kProjid}, FieldSet::subnet(24), {Field::kUid}}));
  EXPECT_EQ(fields_of(*levels), FieldSet({Field::kProjid, Field::kUid}) | FieldSet::subnet(24));
  EXPECT_TRUE(parse_share_levels(Names{"jobid"})->empty());
}

TEST(ShareLevel, RefusesUnknownAndRepeatedLevels) {
  EXPECT_EQ(refused({}), "a tree without a level");
  for (const char* const name : {"project", "opcode", "", "uid+gid", "generic", "subnet",
                                 "subnet/0", "subnet/129", "subnet/x", "uid\n"}) {
    EXPECT_NE(refused({name, "jobid"}).find("is not a level"), std::string::npos) << name;
  }
  EXPECT_EQ(refused({"uid", "gid", "uid", "jobid"}), "'uid' is named twice");
  EXPECT_EQ(refused({"jobid", "jobid"}), "jobid is named before the last level");
  EXPECT_EQ(refused({"projid", "uid"}), "the last level is not jobid");
  EXPECT_EQ(refused(Names(9, "jobid")), "9 levels; the maximum is 8");
}

TEST(ShareLevel, AMissingValueIsANodeOfItsOwn) {
  EXPECT_EQ(path_of({"uid", "gid", "projid", "nodemap", "nid", "subnet/8", "export", "jobid"}, {}),
            "/(none)/(none)/(none)/(none)/(none)/(none)/(none)");
}

TEST(ShareLevel, NamesTheNodes) {
  Attributes attributes;
  attributes.uid = 1001;
  attributes.gid = 0;
  attributes.projid = 4'000'000'000;
  attributes.nodemap = 7;
  attributes.nid = *parse_nid("10.1.77.3@o2ib1");
  attributes.export_name = export_name("/srv/home");
  EXPECT_EQ(path_of({"uid", "gid", "projid", "nodemap", "export", "jobid"}, attributes),
            "/1001/0/4000000000/7/:srv:home");
  EXPECT_EQ(path_of({"subnet/20", "nid", "jobid"}, attributes), "/10.1.64.0@o2ib1/10.1.77.3@o2ib1");
}

TEST(ShareLevel, LongAddressesStayDifferent) {
  Attributes one;
  Attributes other;
  one.nid = *parse_nid("2001:db8:1111:2222:3333:4444:5555:6666@tcp");
  other.nid = *parse_nid("2001:db8:1111:2222:3333:4444:5555:6667@tcp");
  const ShareLevel all{Field::kNid};
  EXPECT_NE(node_name(all, one), node_name(all, other));
  EXPECT_EQ(node_name(FieldSet::subnet(72), one).text(), "2001:db8:1111:2222:3300::@tcp");
  EXPECT_EQ(node_name(FieldSet::subnet(72), one), node_name(FieldSet::subnet(72), other));
}

}  // namespace
}  // namespace weir
