// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/share_level.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/classify/nid.h"

namespace weir {
namespace {

using Names = std::vector<std::string>;

std::string path_of(const Names& names, const Attributes& attributes) {
  std::string path;
  for (const std::string& name : names) {
    path += "/" + std::string(node_name(*read_level(name), attributes, "gold").text());
  }
  return path;
}

TEST(ShareLevel, FieldsOfLevelsAreTheirSum) {
  const std::vector<FieldSet> levels = {{Field::kProjid}, FieldSet::subnet(24), {Field::kUid}};
  EXPECT_EQ(fields_of(levels), FieldSet({Field::kProjid, Field::kUid}) | FieldSet::subnet(24));
  EXPECT_TRUE(fields_of({}).empty());
}

TEST(ShareLevel, LevelsAreReadAsTheyArePrinted) {
  for (const char* name : {"uid", "subnet/24", "export", "rule"}) {
    EXPECT_EQ(print_level(*read_level(name)), name);
  }
  EXPECT_EQ(*read_level("rule"), kRuleLevel);
  EXPECT_FALSE(read_level("rules"));
}

TEST(ShareLevel, AMissingValueIsANodeOfItsOwn) {
  EXPECT_EQ(path_of({"uid", "gid", "projid", "nodemap", "nid", "subnet/8", "export", "rule"}, {}),
            "/(none)/(none)/(none)/(none)/(none)/(none)/(none)/gold");
}

TEST(ShareLevel, NamesTheNodes) {
  Attributes attributes;
  attributes.uid = 1001;
  attributes.gid = 0;
  attributes.projid = 4'000'000'000;
  attributes.nodemap = 7;
  attributes.nid = *parse_nid("10.1.77.3@o2ib1");
  attributes.export_name = export_name("/srv/home");
  EXPECT_EQ(path_of({"uid", "gid", "projid", "nodemap", "export"}, attributes),
            "/1001/0/4000000000/7/:srv:home");
  EXPECT_EQ(path_of({"subnet/20", "nid"}, attributes), "/10.1.64.0@o2ib1/10.1.77.3@o2ib1");
}

TEST(ShareLevel, LongAddressesStayDifferent) {
  Attributes one;
  Attributes other;
  one.nid = *parse_nid("2001:db8:1111:2222:3333:4444:5555:6666@tcp");
  other.nid = *parse_nid("2001:db8:1111:2222:3333:4444:5555:6667@tcp");
  const FieldSet all{Field::kNid};
  EXPECT_NE(node_name(all, one, ""), node_name(all, other, ""));
  const FieldSet subnet = FieldSet::subnet(72);
  EXPECT_EQ(node_name(subnet, one, "").text(), "2001:db8:1111:2222:3300::@tcp");
  EXPECT_EQ(node_name(subnet, one, ""), node_name(subnet, other, ""));
}

}  // namespace
}  // namespace weir
