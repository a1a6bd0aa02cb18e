// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/claims.h"

#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::serve {
namespace {

TEST(Claims, AreWhatFollowsTheNameBehindACommaOrASlash) {
  for (const char* text : {"scratch,job=ior.n1", "scratch/job=ior.n1"}) {
    const auto asked = parse_asked_name(text);
    ASSERT_TRUE(asked) << text;
    EXPECT_EQ(asked->name, "scratch");
    EXPECT_EQ(asked->claims.job, JobId("ior.n1"));
    EXPECT_FALSE(asked->claims.uid);
  }
  const auto all = parse_asked_name("a,job=j/uid=500,gid=100/project=7");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->claims, (Claims{JobId("j"), 500, 100, 7}));
}

TEST(Claims, AreNotNeeded) {
  for (const char* text : {"", "scratch", "with space", "a=b"}) {
    const auto asked = parse_asked_name(text);
    ASSERT_TRUE(asked) << text;
    EXPECT_EQ(asked->name, text);
    EXPECT_FALSE(asked->claims.any());
  }
  EXPECT_EQ(parse_asked_name(",job=x")->name, "");
}

TEST(Claims, ThatSayNothingAreRefused) {
  for (const char* text :
       {"a,", "a/", "a,job", "a,job=", "a,job=x,job=y", "a,uid=x", "a,uid=", "a,uid=-1",
        "a,uid=4294967295", "a,uid=4294967296", "a,uid=1,uid=1", "a,user=1", "a,=1",
        "a,job=0123456789012345678901234567890x", "a,,job=x"}) {
    const auto asked = parse_asked_name(text);
    EXPECT_FALSE(asked) << text;
  }
  EXPECT_EQ(parse_asked_name("a,user=1").error().message(),
            "'user=1' is not a claim; expected NAME[,job=ID][,uid=N][,gid=N][,project=N]");
}

TEST(Claims, AJobOf31BytesIsTheLongest) {
  const std::string longest(JobId::kSizeMax, 'j');
  EXPECT_EQ(parse_asked_name("a,job=" + longest)->claims.job, JobId(longest));
}

RC_GTEST_PROP(ClaimsProperty, NoTextCrashesAndTheNameHasNoSeparator, (const std::string& text)) {
  const auto asked = parse_asked_name(text);
  if (asked) RC_ASSERT(asked->name.find_first_of(",/") == std::string_view::npos);
}

}  // namespace
}  // namespace weir::serve
