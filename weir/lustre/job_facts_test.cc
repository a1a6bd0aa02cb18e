// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/job_facts.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

JobFacts facts(std::string_view pattern, std::string_view table = "") {
  auto parsed = JobFacts::parse(pattern, table);
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message());
  return parsed ? *parsed : JobFacts{};
}

std::string error_of(std::string_view pattern, std::string_view table) {
  const auto parsed = JobFacts::parse(pattern, table);
  return parsed ? "" : parsed.error().message();
}

TEST(JobFacts, AnIdAloneTellsNothingElse) {
  const Attributes told = JobFacts{}.of(JobId("dd.500"));
  EXPECT_EQ(told.job, JobId("dd.500"));
  EXPECT_EQ(told.uid, kUnknownId);
  EXPECT_EQ(JobFacts{}.fields(), FieldSet{Field::kJobid});
}

TEST(JobFacts, ThePatternTellsUserAndGroup) {
  const JobFacts by = facts("%e.%u.%g");
  EXPECT_EQ(by.of(JobId("dd.500.7")).uid, 500U);
  EXPECT_EQ(by.of(JobId("dd.500.7")).gid, 7U);
  EXPECT_EQ(by.of(JobId("a.out.500.7")).uid, 500U);  // a program with a dot
  EXPECT_EQ(by.of(JobId("dd.500")).uid, kUnknownId);
  EXPECT_EQ(by.of(JobId("dd.500.7x")).uid, kUnknownId);
  EXPECT_EQ(by.of(JobId("dd.4294967295.7")).uid, kUnknownId);
  EXPECT_EQ(by.of(JobId("dd.99999999999.7")).uid, kUnknownId);
  EXPECT_TRUE(by.fields().has(Field::kUid));
  EXPECT_TRUE(by.fields().has(Field::kGid));
  EXPECT_FALSE(by.fields().has(Field::kProjid));
}

TEST(JobFacts, LengthsInThePatternAreIgnored) {
  EXPECT_EQ(facts("%.8e.%u").of(JobId("dd.500")).uid, 500U);
}

TEST(JobFacts, ATableTellsWhatNoIdContains) {
  const JobFacts by = facts("%e.%u",
                            "# sites\n*.500 projid=12 nodemap=guests\n"
                            "*.login1 nid=10.0.0.1@tcp uid=9 # a node\n\ndd.* uid=1\n");
  const Attributes dd = by.of(JobId("dd.500"));
  EXPECT_EQ(dd.projid, 12U);
  EXPECT_EQ(dd.nodemap, JobFacts::nodemap_id("guests"));
  EXPECT_EQ(dd.uid, 1U);  // the table precedes the pattern
  const Attributes login = by.of(JobId("dd.login1"));
  EXPECT_EQ(login.uid, 9U);  // and its first line counts
  EXPECT_EQ(print_nid(login.nid), "10.0.0.1@tcp");
  EXPECT_EQ(by.of(JobId("cp.500")).uid, 500U);
  EXPECT_TRUE(by.fields().has(Field::kNodemap));
  EXPECT_TRUE(by.fields().has(Field::kNid));
}

TEST(JobFacts, NodemapsHaveTheSameIdEverywhere) {
  EXPECT_EQ(JobFacts::nodemap_id("default"), 0U);
  EXPECT_NE(JobFacts::nodemap_id("guests"), JobFacts::nodemap_id("staff"));
  EXPECT_EQ(JobFacts::nodemap_id("guests"), JobFacts::nodemap_id("guests"));
}

TEST(JobFacts, AnIdThatFitsInManyWaysIsGivenUp) {
  std::string pattern;
  for (int i = 0; i < 7; ++i) pattern += "%ea";
  const JobFacts by = facts(pattern + "%u");
  EXPECT_EQ(by.of(JobId(std::string(31, 'a'))).uid, kUnknownId);
}

TEST(JobFacts, ErrorsNameTheLineAndTheCure) {
  EXPECT_NE(error_of("%e.%", "").find("incomplete code"), std::string::npos);
  EXPECT_NE(error_of("%", "").find("jobid_name"), std::string::npos);
  EXPECT_NE(error_of("%.8", "").find("incomplete code"), std::string::npos);
  std::string many;
  for (int i = 0; i < 17; ++i) many += "%e";
  EXPECT_NE(error_of(many, "").find("more than 16"), std::string::npos);
  EXPECT_NE(error_of("%j", "*.a uid=1\n*.b uid=x\n").find("line 2: 'uid=x'"), std::string::npos);
  EXPECT_NE(error_of("%j", "*.a color=red\n").find("expected uid="), std::string::npos);
  EXPECT_NE(error_of("%j", "*.a\n").find("has no value"), std::string::npos);
  EXPECT_NE(error_of("%j", "*.a nid=10.0.0.*@tcp\n").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("%j", "*.a uid=-1\n").find("line 1"), std::string::npos);
}

}  // namespace
}  // namespace weir::lustre
