// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/text.h"

#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

TEST(LustreText, JobStatsOfCurrentReleases) {
  const auto read = parse_job_stats(
      "job_stats:\n"
      "- job_id:          dd.0\n"
      "  snapshot_time:   1755600000.123456789 secs.nsecs\n"
      "  start_time:      1755599990.000000001 secs.nsecs\n"
      "  elapsed_time:    10.123456788 secs.nsecs\n"
      "  read_bytes:      { samples:           3, unit: bytes, min:     4096, max:     4096, sum:"
      "            12288, sumsq:           50331648, hist: { 4K: 3 } }\n"
      "  write_bytes:     { samples:          10, unit: bytes, min:  1048576, max:  1048576, sum:"
      "         10485760, sumsq:     10995116277760, hist: { 1M: 10 } }\n"
      "  write:           { samples:          10, unit: usecs, min:      812, max:     2040, sum:"
      "            12345, sumsq:           17000000 }\n");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->jobs.size(), 1U);
  EXPECT_EQ(read->jobs[0].job, JobId("dd.0"));
  EXPECT_EQ(read->jobs[0].rpcs, 13U);
  EXPECT_EQ(read->jobs[0].bytes, 10498048U);
  EXPECT_EQ(read->jobs[0].since_ns, 1755599990000000001U);
  EXPECT_EQ(read->jobs[0].update_ns, 1755600000123456789U);
  EXPECT_FALSE(read->is_cut);
}

// 2.12 to 2.14: whole seconds, no start, no blanks behind colons.
TEST(LustreText, JobStatsWithoutBlanks) {
  const auto read = parse_job_stats(
      "job_stats:\n"
      "- job_id:          cp.500\n"
      "  snapshot_time:   1541000000\n"
      "  read_bytes:      { samples:           0, unit:  bytes, min:       0, max:       0, sum:   "
      "            0 }\n"
      "  write_bytes:     { samples:           7, unit:  bytes, min:    4096, max: 1048576, sum:   "
      "      4198400 }\n"
      "  setattr:         { samples:           1, unit:   reqs }\n");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->jobs.at(0).rpcs, 7U);
  EXPECT_EQ(read->jobs.at(0).since_ns, std::nullopt);
}

// 2.15.0 and 2.15.1: times are not indented, and the key is padded before the colon.
TEST(LustreText, JobStatsThatIsNoYaml) {
  const auto read = parse_job_stats(
      "job_stats:\n"
      "- job_id:          ior.1\n"
      "snapshot_time   : 1650000000.5 secs.nsecs\n"
      "start_time      : 1640000000.25 secs.nsecs\n"
      "elapsed_time    : 10.0 secs.nsecs\n"
      "  write_bytes:     { samples:           2, unit: bytes, min:4096, max:4096, sum:8192 }\n");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->jobs.at(0).rpcs, 2U);
  EXPECT_EQ(read->jobs.at(0).bytes, 8192U);
  EXPECT_EQ(read->jobs.at(0).since_ns, 1640000000250000000U);
}

TEST(LustreText, JobStatsOfAnIdleServer) {
  EXPECT_TRUE(parse_job_stats("")->jobs.empty());
  EXPECT_TRUE(parse_job_stats("job_stats:\n")->jobs.empty());
}

TEST(LustreText, AnEntryThatIsCutIsLeftOut) {
  const auto read = parse_job_stats(
      "job_stats:\n- job_id:          a\n  read_bytes:      { samples: 5, unit: bytes }\n"
      "- job_id:          b\n  read_bytes:      { samples: 1");
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->is_cut);
  ASSERT_EQ(read->jobs.size(), 1U);
  EXPECT_EQ(read->jobs[0].job, JobId("a"));
}

// A cut at the end of a line leaves no half line to know it by.
TEST(LustreText, AnEntryWithoutItsCountersIsLeftOut) {
  const std::string whole =
      "job_stats:\n- job_id:          a\n  read_bytes:      { samples: 5, unit: bytes, sum: 5 }\n"
      "  write_bytes:     { samples: 6, unit: bytes, sum: 6 }\n"
      "- job_id:          b\n  snapshot_time:   1755600000.1 secs.nsecs\n"
      "  read_bytes:      { samples: 7, unit: bytes, sum: 7 }\n";
  const auto read = parse_job_stats(whole);
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->is_cut);
  ASSERT_EQ(read->jobs.size(), 1U);
  EXPECT_EQ(read->jobs[0].job, JobId("a"));
  EXPECT_EQ(parse_job_stats(whole.substr(0, whole.find("  read_bytes")))->jobs.size(), 0U);
  EXPECT_TRUE(parse_job_stats("job_stats:\n- job_id:          a\n")->is_cut);
  const auto back = parse_job_stats(whole + "  write_bytes:     { samples: 1, sum: 9 }\n");
  EXPECT_FALSE(back->is_cut);
  EXPECT_EQ(back->jobs.at(1).rpcs, 8U);
}

TEST(LustreText, AnIdThatIsNotEscapedIsTakenAsItIs) {
  const auto read = parse_job_stats(
      "job_stats:\n- job_id:          \"a\\b\"\n  read_bytes:      { samples: 5, unit: bytes }\n"
      "- job_id:          dd.0\n  read_bytes:      { samples: 2, unit: bytes }\n");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->jobs.size(), 2U);
  EXPECT_EQ(read->jobs[0].job, JobId("\"a\\b\""));
}

// Constructed: 2.12 to 2.14 count the operations of an MDT and do not measure them.
TEST(LustreText, JobStatsOfAnMdtWithoutTimes) {
  const auto read = parse_job_stats(
      "job_stats:\n"
      "- job_id:          tar.500\n"
      "  snapshot_time:   1541000000\n"
      "  open:            { samples:          12, unit:  reqs }\n"
      "  close:           { samples:          11, unit:  reqs }\n"
      "  mknod:           { samples:           2, unit:  reqs }\n"
      "  samedir_rename:  { samples:           1, unit:  reqs }\n"
      "  rename:          { samples:           1, unit:  reqs }\n",
      Counted::kOperations);
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->is_cut);
  const auto& operations = read->jobs.at(0).operations;
  EXPECT_EQ(operations.at(operation_of("open")), 12U);
  EXPECT_EQ(operations.at(operation_of("close")), 11U);
  EXPECT_EQ(operations.at(operation_of("mknod")), 2U);
  EXPECT_EQ(operations.at(operation_of("rename")), 1U);
  EXPECT_EQ(operation_of("samedir_rename"), kOperationCount);
  const auto totals = parse_stats(
      "snapshot_time             1541000000.123456789 secs.nsecs\n"
      "open                      27110 samples [reqs]\n"
      "getattr                   35 samples [reqs]\n",
      Counted::kOperations);
  ASSERT_TRUE(totals);
  EXPECT_EQ(totals->at(operation_of("open")), (RequestTotal{27110, 0}));
  EXPECT_EQ(totals->at(operation_of("getattr")), (RequestTotal{35, 0}));
}

// Constructed: from 2.15 on with times. Names longer than 15 bytes shift their braces.
TEST(LustreText, JobStatsOfAnMdtWithTimes) {
  const std::string text =
      "job_stats:\n"
      "- job_id:          tar.500\n"
      "  start_time:      1755599990.000000001 secs.nsecs\n"
      "  mkdir:           { samples:          31, unit: usecs, min:     1456, max:    75339, sum:  "
      "         212282, sumsq:         7100439268 }\n"
      "  parallel_rename_file: { samples:           4, unit: usecs, min:        1, max:        1, "
      "sum:                4, sumsq:                  4 }\n"
      "  read_bytes:      { samples:           9, unit: bytes, min:  4096, max:  4096, sum: 36864 "
      "}\n"
      "- job_id:          rm.500\n"
      "  start_time:      1755599990.000000001 secs.nsecs\n";
  const auto cut = parse_job_stats(text, Counted::kOperations);
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->is_cut);
  ASSERT_EQ(cut->jobs.size(), 1U);
  EXPECT_EQ(cut->jobs[0].operations.at(operation_of("mkdir")), 31U);
  EXPECT_EQ(cut->jobs[0].rpcs, 0U);
  const auto totals = parse_stats(
      "snapshot_time             1755600000.123456789 secs.nsecs\n"
      "mkdir                     31 samples [usecs] 1456 75339 212282 7100439268\n",
      Counted::kOperations);
  EXPECT_EQ(totals->at(operation_of("mkdir")), (RequestTotal{31, 212282}));
}

TEST(LustreText, AnotherFileIsNoJobStats) {
  EXPECT_EQ(parse_job_stats("root:x:0:0:root\n").error().code, std::errc::invalid_argument);
  EXPECT_EQ(parse_stats("job_stats:\n").error().code, std::errc::invalid_argument);
  EXPECT_EQ(parse_policies("nothing\n").error().code, std::errc::invalid_argument);
  EXPECT_EQ(parse_rules("nothing\n").error().code, std::errc::invalid_argument);
  EXPECT_EQ(parse_partitions("\n").error().code, std::errc::invalid_argument);
}

TEST(LustreText, IdsAreAnyBytes) {
  EXPECT_EQ(*parse_job_id("plain-1_x/y@z"), "plain-1_x/y@z");
  EXPECT_EQ(*parse_job_id(R"("has\x20sp\x22q")"), "has sp\"q");
  EXPECT_EQ(*parse_job_id(R"("a\x2Cb\x0Ac")"), "a,b\nc");
  EXPECT_EQ(*parse_job_id("\"uml\xC3\\xA4ut\""), "uml\xC3\xA4ut");
  EXPECT_FALSE(parse_job_id(R"("a\x2")"));
  EXPECT_FALSE(parse_job_id(R"("a\n")"));
  EXPECT_FALSE(parse_job_id(R"("a\xGG")"));
}

TEST(LustreText, RulesAreReadFromTheRight) {
  const auto read = parse_rules(
      "regular_requests:\nCPT 0:\ndd  jobid={dd.0} 1, ref 0\nt jobid={a b  c } 500, ref 12\n"
      "x jobid={dd.0} rate=100} 10000, ref 0\nold {dd.0} 7, ref 1\ndefault * 10000, ref 3\n"
      "high_priority_requests:\nCPT 0:\ndefault * 10000, ref 0\n");
  ASSERT_TRUE(read);
  const auto& rules = read->regular.at(0).rules;
  ASSERT_EQ(rules.size(), 5U);
  EXPECT_EQ(rules[0], (RuleLine{"dd", " jobid={dd.0}", 1, 0}));
  EXPECT_EQ(rules[1], (RuleLine{"t", "jobid={a b  c }", 500, 12}));
  EXPECT_EQ(rules[2].conds, "jobid={dd.0} rate=100}");
  EXPECT_EQ(rules[3].conds, "{dd.0}");
  EXPECT_TRUE(read->has_high);
  EXPECT_FALSE(parse_rules("regular_requests:\nCPT 0:\nno rule\n"));
}

TEST(LustreText, PoliciesAndWhatWaits) {
  const auto read = parse_policies(
      "\nregular_requests:\n  - name: fifo\n    state: started\n    fallback: yes\n"
      "    queued: 2                   \n    active: 0                   \n\n"
      "  - name: tbf jobid+opcode\n    state: started\n    fallback: no\n"
      "    queued: 14                  \n    active: 3                   \n\n"
      "high_priority_requests:\n  - name: tbf\n    state: stopped\n    fallback: no\n"
      "    queued: 1                   \n    active: 0                   \n\n");
  ASSERT_TRUE(read);
  ASSERT_NE(read->tbf(), nullptr);
  EXPECT_EQ(read->tbf()->argument, "jobid+opcode");
  EXPECT_EQ(read->queued(), 17U);
}

// A release that writes something else is refused with what was expected.
TEST(LustreText, FilesOfUnknownReleasesAreRefusedWithWhatWasExpected) {
  const auto message = [](const auto& result) {
    return result ? std::string("accepted") : result.error().message();
  };
  EXPECT_NE(message(parse_policies("version: 3\npolicies: [tbf]\n")).find("expected 'regular_req"),
            std::string::npos);
  EXPECT_NE(message(parse_rules("regular_requests:\nCPT 0:\nrule: {rate: 5}\n")).find(", ref N'"),
            std::string::npos);
  EXPECT_NE(message(parse_rules("rules: []\n")).find("Lustre 2.12 to 2.17"), std::string::npos);
  EXPECT_NE(message(parse_job_stats("jobs:\n")).find("entries '- job_id:'"), std::string::npos);
  EXPECT_NE(message(parse_stats("reads 5\n")).find("'snapshot_time'"), std::string::npos);
  EXPECT_NE(message(parse_partitions("none\n")).find("'N : CPUS'"), std::string::npos);
}

}  // namespace
}  // namespace weir::lustre
