// SPDX-License-Identifier: Apache-2.0
#include "weir/control/slurm.h"

#include <gtest/gtest.h>

namespace weir::control {
namespace {

using Sizes = std::vector<JobNodes>;

// As 22.05 writes it; and as 23.02 does, with states in an array and numbers in objects.
constexpr const char* kOld = R"({"meta":{},"jobs":[
  {"job_id":12,"node_count":4,"job_state":"RUNNING","user_id":1000,"het_job_id":0},
  {"job_id":13,"node_count":2,"job_state":"PENDING","user_id":1000,"het_job_id":0},
  {"job_id":14,"node_count":1,"job_state":"COMPLETING","user_id":0,"het_job_id":0}]})";
constexpr const char* kNew = R"({"jobs":[
  {"job_id":12,"node_count":{"set":true,"infinite":false,"number":4},"job_state":["RUNNING"],
   "user_id":1000,"het_job_id":{"set":false,"number":0}},
  {"job_id":15,"node_count":{"set":false,"number":0},"job_state":["RUNNING"],"user_id":1}]})";

TEST(Slurm, RunningJobsCountWithTheirNodes) {
  EXPECT_EQ(*parse_squeue(kOld, "%j"), (Sizes{{"12", 4}, {"14", 1}}));
  EXPECT_EQ(*parse_squeue(kNew, "%j"), (Sizes{{"12", 4}}));
}

TEST(Slurm, PatternsSayWhatTheStorageSees) {
  EXPECT_EQ(parse_squeue(kOld, "%j.%u")->front().job, "12.1000");
  EXPECT_EQ(parse_squeue(kOld, "s-%.1j")->front().job, "s-1");
  const std::string longest(40, 'x');
  EXPECT_EQ(parse_squeue(kOld, longest + "%j")->front().job.size(), 31U);
}

TEST(Slurm, PatternsThatCannotBeMappedAreRefused) {
  for (const char* pattern : {"%e.%H", "%j.%h", "%u", "", "job", "%j%", "%.j"}) {
    const auto read = parse_squeue(kOld, pattern);
    ASSERT_FALSE(read) << pattern;
    EXPECT_FALSE(read.error().hint.empty());
  }
}

TEST(Slurm, PartsOfAHeterogeneousJobAreAddedUp) {
  const auto read = parse_squeue(R"({"jobs":[
    {"job_id":20,"node_count":1,"job_state":"RUNNING","het_job_id":20},
    {"job_id":21,"node_count":3,"job_state":"RUNNING","het_job_id":20}]})",
                                 "%j");
  EXPECT_EQ(*read, (Sizes{{"20", 4}}));
}

TEST(Slurm, WhatIsNoListIsRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"jobs":3})", "slurm_load_jobs error"}) {
    EXPECT_FALSE(parse_squeue(text, "%j")) << text;
  }
  EXPECT_EQ(parse_squeue(R"({"jobs":[3,{},{"job_state":"RUNNING"}]})", "%j")->size(), 0U);
}

TEST(Slurm, FilesOfSizes) {
  EXPECT_EQ(*parse_nodes("# sizes\nior.500 16\n\na b 2\n"), (Sizes{{"a b", 2}, {"ior.500", 16}}));
  for (const char* text : {"dd", "dd x", "dd 0", " 5", "dd 5x"}) {
    EXPECT_FALSE(parse_nodes(text)) << text;
  }
}

}  // namespace
}  // namespace weir::control
