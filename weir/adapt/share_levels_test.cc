// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/share_levels.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(ShareLevels, AreParsedAndPrinted) {
  for (const char* text : {"jobid", "projid,uid,jobid", "export,subnet/24,subnet/64,rule",
                           "nodemap,nid,gid", "subnet/1", "subnet/128"}) {
    const auto levels = parse_share_levels(text);
    ASSERT_TRUE(levels) << text;
    EXPECT_EQ(print_share_levels(*levels), text);
  }
}

TEST(ShareLevels, RefuseUnknownAndRepeatedFields) {
  for (const char* text : {"", ",", "jobid,", "project", "uid,uid", "jobid,projid,jobid", "subnet",
                           "subnet/0", "subnet/129", "subnet/x", "subnet/24,subnet/24", "uid/8",
                           "UID", "jobid,uid,gid,projid,nodemap,nid,export,rule,subnet/8"}) {
    EXPECT_FALSE(parse_share_levels(text)) << text;
  }
  EXPECT_EQ(parse_share_levels("prjid").error().hint, "did you mean projid?");
}

}  // namespace
}  // namespace weir
