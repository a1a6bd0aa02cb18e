// SPDX-License-Identifier: Apache-2.0
#include "weir/config/slurm.h"

#include <gtest/gtest.h>

namespace weir::config {
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

Result<Sizes> parse_squeue(std::string_view json, std::string_view pattern) {
  const auto parsed = JobPattern::parse(pattern);
  if (!parsed) return tl::unexpected(parsed.error());
  const auto jobs = SlurmJobs::parse(json);
  if (!jobs) return tl::unexpected(jobs.error());
  return jobs->sizes(*parsed, {}).jobs;
}

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
  for (const char* pattern : {"%u", "%e.%u", "", "job", "%j%", "%.j", "%j.%x", "%.0j"}) {
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

// Job 7 has n1 to n4, 8 and 9 share n5, and 10 names its host in the format of 24.05.
constexpr const char* kHosts = R"({"jobs":[
  {"job_id":7,"node_count":4,"job_state":"RUNNING","nodes":"n[1-4]"},
  {"job_id":8,"node_count":1,"job_state":"RUNNING","nodes":"n5"},
  {"job_id":9,"node_count":1,"job_state":"RUNNING","nodes":"n5"},
  {"job_id":10,"node_count":2,"job_state":["RUNNING"],
   "job_resources":{"nodes":{"list":"big.site,n9"}}}]})";

SlurmJobs::Sizes sizes(std::string_view pattern, const std::vector<std::string>& seen) {
  return SlurmJobs::parse(kHosts)->sizes(*JobPattern::parse(pattern), seen);
}

TEST(Slurm, HostsSayWhoseAnIdIs) {
  // From all of its nodes, and from one of them.
  EXPECT_EQ(sizes("%e.%H", {"dd.n1", "dd.n2", "dd.n3", "dd.n4"}).jobs,
            (Sizes{{"dd.n1", 1}, {"dd.n2", 1}, {"dd.n3", 1}, {"dd.n4", 1}}));
  EXPECT_EQ(sizes("%e.%H", {"dd.n1"}).jobs, (Sizes{{"dd.n1", 4}}));
  // A program with dots, a full host name, and a number and a user in addition.
  EXPECT_EQ(sizes("%e.%H", {"a.out.n2"}).jobs, (Sizes{{"a.out.n2", 4}}));
  EXPECT_EQ(sizes("%h:%e", {"big.site:x"}).jobs, (Sizes{{"big.site:x", 2}}));
  EXPECT_EQ(sizes("%H.%u", {"n3.1000"}).jobs, (Sizes{{"n3.1000", 4}}));
  EXPECT_EQ(sizes("%e.%j", {"dd.9", "cp.7"}).jobs, (Sizes{{"cp.7", 4}, {"dd.9", 1}}));
}

TEST(Slurm, HostsThatAreSharedOrUnknownCountOneNodeAndAreCounted) {
  const SlurmJobs::Sizes read = sizes("%e.%H", {"dd.n5", "dd.n77", "dd", "dd.n1"});
  EXPECT_EQ(read.jobs, (Sizes{{"dd", 1}, {"dd.n1", 4}, {"dd.n5", 1}, {"dd.n77", 1}}));
  EXPECT_EQ(read.shared, 1U);
  EXPECT_EQ(read.unknown, 2U);
  // The number identifies the job on a shared host.
  EXPECT_EQ(sizes("%j@%H", {"8@n5"}).shared, 0U);
}

TEST(Slurm, JobsOfHostsThatOneJobUses) {
  const auto jobs = SlurmJobs::parse(kHosts).value();
  const auto hosts = jobs.hosts(JobPattern::parse_known("job%j").value());
  using Host = SlurmJobs::HostJob;
  EXPECT_EQ(hosts, (std::vector<Host>{{"big", "job10"},
                                      {"n1", "job7"},
                                      {"n2", "job7"},
                                      {"n3", "job7"},
                                      {"n4", "job7"},
                                      {"n9", "job10"}}))
      << "n5 is shared";
}

TEST(Slurm, ListsOfHosts) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(*expand_hosts("n[1-3,7],login1", 9), (Hosts{"n1", "n2", "n3", "n7", "login1"}));
  EXPECT_EQ(*expand_hosts("r[01-02]n[8-9]x", 9), (Hosts{"r01n8x", "r01n9x", "r02n8x", "r02n9x"}));
  EXPECT_EQ(*expand_hosts("n[008-010]", 9), (Hosts{"n008", "n009", "n010"}));
  EXPECT_EQ(*expand_hosts("", 9), Hosts{});
  for (const char* text : {"n[1-", "n[]", "n[x]", "n[3-1]", "n]", "n[1-100]", "a,,b",
                           "n[1-4]m[1-4]", "n[0-18446744073709551615]"}) {
    EXPECT_FALSE(expand_hosts(text, 9)) << text;
  }
}

TEST(Slurm, CodesThatSlurmDoesNotKnowAreNotForWhoSeesNoIds) {
  EXPECT_TRUE(JobPattern::parse_known("%j.%u"));
  EXPECT_FALSE(JobPattern::parse_known("%e.%H"));
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

TEST(AccountShares, AreThoseOfAccountsAndOfTheirUsers) {
  const auto shares = parse_account_shares(
      "root||\n root|root|1\n physics||40\n  physics|alice|7\n  physics|bob|parent\n"
      "  optics||3\nbad line\n chem||0\n");
  ASSERT_TRUE(shares);
  EXPECT_EQ(
      *shares,
      (std::map<std::string, std::uint64_t, std::less<>>{
          {"chem", 0}, {"optics", 3}, {"physics", 40}, {"physics/alice", 7}, {"root/root", 1}}));
}

TEST(AccountShares, TextWithoutAnAccountIsAnError) {
  for (const char* text : {"", "\n\n", "sshare: error: Problem talking to the database\n", "a|b|\n",
                           "||7\n", "a||99999999999999999999999\n"}) {
    EXPECT_FALSE(parse_account_shares(text)) << text;
  }
}

}  // namespace
}  // namespace weir::config
