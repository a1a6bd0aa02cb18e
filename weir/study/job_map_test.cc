// SPDX-License-Identifier: Apache-2.0
#include "weir/study/job_map.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weir::study {
namespace {

WorkloadRequest request_of(WorkloadField field, std::string_view text, bool is_read = true) {
  WorkloadRequest request;
  request.is_read = is_read;
  request.fields[static_cast<std::size_t>(field)] = text;
  return request;
}

std::string job_of(JobMap& map, const WorkloadRequest& request, WorkloadFormat format) {
  const JobMap::Found found = map.find(request, format);
  return found.skipped ? "-" : map.jobs()[found.job].name;
}

JobMap::Options rules(std::initializer_list<const char*> texts) {
  JobMap::Options options;
  for (const char* const text : texts) options.rules.push_back(*JobRule::parse(text));
  return options;
}

TEST(JobMap, TheFirstRuleThatMatchesDecides) {
  JobMap map(rules({"-: comm=kworker*", "writes: comm=post* op=write", "database: comm=post*"}),
             {});
  const auto of = [&](std::string_view comm, bool is_read) {
    return job_of(map, request_of(WorkloadField::kComm, comm, is_read), WorkloadFormat::kBlkparse);
  };
  EXPECT_EQ(of("kworker/0:1", true), "-");
  EXPECT_EQ(of("postgres", false), "writes");
  EXPECT_EQ(of("postgres", true), "database");
  EXPECT_EQ(of("cp", true), "cp");  // no rule: named after the command
}

TEST(JobMap, RequestsWithoutARuleCanBeLeftOut) {
  JobMap::Options options = rules({"a: comm=a"});
  options.by_rules_only = true;
  JobMap map(std::move(options), {});
  const auto found = map.find(request_of(WorkloadField::kComm, "b"), WorkloadFormat::kBlkparse);
  EXPECT_EQ(found.skipped, Skipped::kNoRule);
}

TEST(JobMap, FilesOfFioAreNamedAfterItsJob) {
  JobMap map({}, {});
  const auto of = [&](std::string_view file) {
    return job_of(map, request_of(WorkloadField::kFile, file), WorkloadFormat::kIolog3);
  };
  EXPECT_EQ(of("/data/reader.0.0"), "reader");
  EXPECT_EQ(of("/data/reader.12.3"), "reader");
  EXPECT_EQ(of("/dev/nvme0n1"), "nvme0n1");
  EXPECT_EQ(of("a.1"), "a.1");
  EXPECT_EQ(of(".1.2"), ".1.2");
}

TEST(JobMap, NamesAreChangedWhereTheyCannotBeNamesOfJobs) {
  JobMap map({}, {});
  const auto of = [&](std::string_view name) {
    return job_of(map, request_of(WorkloadField::kJob, name), WorkloadFormat::kCsv);
  };
  EXPECT_EQ(of("a b/c"), "a_b_c");
  EXPECT_EQ(of(""), "unnamed");
  EXPECT_EQ(of(std::string(40, 'x')), std::string(31, 'x'));
  EXPECT_EQ(of("a b/c"), "a_b_c");
  EXPECT_EQ(map.jobs().size(), 3U);
}

TEST(JobMap, KnowsTheJobsOfTheScenarioAndBoundsTheOthers) {
  sim::JobSpec known;
  known.name = "known";
  known.nodes = 4;
  JobMap map({}, {known});
  for (int i = 0; i < 3000; ++i) {
    const std::string name = fmt::format("job{}", i);
    const auto found = map.find(request_of(WorkloadField::kJob, name), WorkloadFormat::kCsv);
    EXPECT_EQ(found.is_overflow, i + 2 >= static_cast<int>(sim::kJobsMax)) << i;
  }
  EXPECT_EQ(map.jobs().size(), sim::kJobsMax);
  EXPECT_EQ(map.jobs()[0].nodes, 4U);
  EXPECT_EQ(map.jobs().back().name, "others");
  EXPECT_EQ(map.find(request_of(WorkloadField::kJob, "known"), WorkloadFormat::kCsv).job, 0U);
}

TEST(JobMap, AddsNoJobAfterTheFirstReading) {
  JobMap map({}, {});
  (void)map.find(request_of(WorkloadField::kJob, "a"), WorkloadFormat::kCsv);
  map.seal();
  EXPECT_FALSE(map.find(request_of(WorkloadField::kJob, "a"), WorkloadFormat::kCsv).is_unknown);
  EXPECT_TRUE(map.find(request_of(WorkloadField::kJob, "b"), WorkloadFormat::kCsv).is_unknown);
}

TEST(JobMap, SaysWhatIsWrongWithARule) {
  const std::pair<const char*, const char*> samples[] = {
      {"a", "rule 'a': has no job; expected JOB: FIELD=PATTERN ..."},
      {"a:", "rule 'a:': has no condition; expected JOB: FIELD=PATTERN ..."},
      {"a: fio", "rule 'a: fio': 'fio' is not FIELD=PATTERN; expected JOB: FIELD=PATTERN ..."},
      {"a: com=x", "rule 'a: com=x': no field 'com'; did you mean comm?"},
      {"a: op=trim", "rule 'a: op=trim': 'op=trim' is not valid; expected op=read or op=write"},
      {"a/b: op=read",
       "rule 'a/b: op=read': 'a/b' is not a valid name; use 1 to 31 letters, digits, _ - ."},
  };
  for (const auto& [text, message] : samples) {
    const auto rule = JobRule::parse(text);
    ASSERT_FALSE(rule) << text;
    EXPECT_EQ(rule.error().message(), message);
  }
}

}  // namespace
}  // namespace weir::study
