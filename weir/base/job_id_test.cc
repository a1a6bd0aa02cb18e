// SPDX-License-Identifier: Apache-2.0
#include "weir/base/job_id.h"

#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir {
namespace {

TEST(JobId, HoldsUpToThirtyOneBytesAndCutsWhatIsLonger) {
  EXPECT_EQ(JobId().text(), "");
  EXPECT_TRUE(JobId().empty());
  EXPECT_EQ(JobId("dd.500").text(), "dd.500");
  EXPECT_EQ(JobId(std::string(31, 'x')).text(), std::string(31, 'x'));
  EXPECT_EQ(JobId(std::string(1000, 'x')), JobId(std::string(31, 'x')));
}

TEST(JobId, TakesAnyBytes) {
  using namespace std::string_view_literals;
  EXPECT_EQ(JobId("a\0b"sv).text(), "a\0b"sv);
  EXPECT_NE(JobId("a\0"sv), JobId("a"sv));
  EXPECT_NE(JobId("a\0"sv).hash(), JobId("a"sv).hash());
  EXPECT_EQ(JobId("uml\xc3\xa4ut").text(), "uml\xc3\xa4ut");
}

TEST(JobId, HashesTheSameEverywhere) {
  // A fixed value: another one would break recorded traces.
  EXPECT_EQ(JobId("dd.500").hash(), 9883695335020041130U);
}

RC_GTEST_PROP(JobIdProperty, EqualsAndHashesAsItsFirstThirtyOneBytes,
              (const std::string& a, const std::string& b)) {
  const bool same = a.substr(0, 31) == b.substr(0, 31);
  RC_ASSERT((JobId(a) == JobId(b)) == same);
  RC_ASSERT((JobId(a).hash() == JobId(b).hash()) == same);
  RC_ASSERT(JobId(a).text() == a.substr(0, 31));
}

RC_GTEST_PROP(JobIdProperty, SortsAsTheBytesOfItsText,
              (const std::string& a, const std::string& b)) {
  RC_ASSERT((JobId(a) <=> JobId(b)) == (JobId(a).text() <=> JobId(b).text()));
  const std::string zero(1, '\0');
  RC_ASSERT((JobId(a) <=> JobId(a + zero + b)) == (JobId(a).text() <=> JobId(a + zero + b).text()));
}

}  // namespace
}  // namespace weir
