// SPDX-License-Identifier: Apache-2.0
#include "weir/study/trace_text.h"

#include <gtest/gtest.h>

namespace weir::study {
namespace {

using std::chrono::microseconds;

TEST(TraceText, ReadsRequestsAndAddsTheirJobs) {
  sim::Scenario scenario;
  scenario.jobs.resize(1);
  scenario.jobs[0].name = "known";
  scenario.jobs[0].nodes = 4;
  const auto added = add_trace(
      "time_s,job,op,bytes\r\n"
      "0,known,read,4096\n"
      "# a note\n"
      "\n"
      "0.000250,new.1,write,1048576\n"
      "1.5,known,read,1",
      "t.csv", scenario);
  ASSERT_TRUE(added) << added.error().message();
  ASSERT_EQ(scenario.trace.size(), 3U);
  EXPECT_EQ(scenario.trace[1].at, microseconds{250});
  EXPECT_EQ(scenario.trace[1].job, 1U);
  EXPECT_FALSE(scenario.trace[1].is_read);
  EXPECT_EQ(scenario.trace[1].size, Bytes{1 << 20});
  ASSERT_EQ(scenario.jobs.size(), 2U);
  EXPECT_EQ(scenario.jobs[1].name, "new.1");
  EXPECT_EQ(scenario.jobs[0].nodes, 4U);
}

TEST(TraceText, SaysWhichLineIsWrong) {
  const std::pair<const char*, const char*> samples[] = {
      {"0,a,read", "t.csv:1: expected four fields, time_s,job,op,bytes"},
      {"0,a,read,1,2", "t.csv:1: expected four fields, time_s,job,op,bytes"},
      {"0,a,read,1\nx,a,read,1", "t.csv:2: 'x' is not a time in seconds"},
      {"2,a,read,1\n1,a,read,1", "t.csv:2: '1' is earlier than the previous line"},
      {"0,a,erase,1", "t.csv:1: 'erase' is neither read nor write"},
      {"0,a,read,0", "t.csv:1: '0' is not a size in bytes"},
      {"-1,a,read,1", "t.csv:1: '-1' is not a time in seconds"},
      {"", "t.csv: contains no request; expected lines of time_s,job,op,bytes"},
  };
  for (const auto& [text, message] : samples) {
    sim::Scenario scenario;
    const auto added = add_trace(text, "t.csv", scenario);
    ASSERT_FALSE(added) << text;
    EXPECT_EQ(added.error().message(), message);
  }
}

}  // namespace
}  // namespace weir::study
