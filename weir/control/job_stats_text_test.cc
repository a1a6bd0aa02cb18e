// SPDX-License-Identifier: Apache-2.0
#include "weir/control/job_stats_text.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::control {
namespace {

TEST(JobStatsText, IsWhatALustreServerPrints) {
  OpStats stats;
  OpStats::Handle handle;
  const Instant begun = Instant{} + std::chrono::seconds{100};
  const auto write = [&](Nanoseconds device_time, Instant ended) {
    stats.record(handle, JobId("dd.0"),
                 {.operation = OperationKind::kWrite,
                  .moved = Bytes{1 << 20},
                  .started = ended - device_time,
                  .ended = ended});
  };
  write(std::chrono::microseconds{812}, begun);
  write(std::chrono::microseconds{2040}, begun + std::chrono::milliseconds{1500});
  const Moment moment{begun + std::chrono::seconds{2}, 1'755'600'002'000'000'000};
  const std::string text = print_job_stats(stats, moment);
  EXPECT_TRUE(text.starts_with(
      "job_stats:\n"
      "- job_id:          dd.0\n"
      "  snapshot_time:   1755600001.500000000 secs.nsecs\n"
      "  start_time:      1755600000.000000000 secs.nsecs\n"
      "  elapsed_time:    1.500000000 secs.nsecs\n"
      "  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:  "
      "              0, sumsq:                  0, hist: {  } }\n"
      "  write_bytes:     { samples:           2, unit: bytes, min:  1048576, max:  1048576, sum:  "
      "        2097152, sumsq:      2199023255552, hist: { 1M: 2 } }\n"
      "  read:            { samples:           0, unit: usecs, min:        0, max:        0, sum:  "
      "              0, sumsq:                  0 }\n"
      "  write:           { samples:           2, unit: usecs, min:      812, max:     2040, sum:  "
      "           2852, sumsq:            4820944 }\n"
      "  getattr:         { samples:           0, "))
      << text;
}

TEST(JobStatsText, QuotesIdsAsTheKernelDoes) {
  OpStats stats;
  OpStats::Handle handle;
  for (const char* const id : {"plain-1_x/y@z", "has:colon.0", "@first", "has sp\"q"}) {
    stats.record(handle, JobId(id), {.operation = OperationKind::kFlush});
  }
  const std::string text = print_job_stats(stats, {Instant{}, 0});
  for (const char* const shown :
       {"plain-1_x/y@z\n", "\"has:colon.0\"\n", "\"@first\"\n", "\"has\\x20sp\\x22q\"\n"}) {
    EXPECT_NE(text.find("job_id:          " + std::string(shown)), std::string::npos) << shown;
  }
}

TEST(JobStatsTextProperty, EveryIdReadsBackAndShowsNothingThatActs) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    std::string id;
    for (std::uint64_t i = 0; i <= rng.below(31); ++i) id += static_cast<char>(rng.below(256));
    const std::string shown = printable_id(id);
    for (const char c : shown) {
      EXPECT_TRUE(c > ' ' && c < 0x7F && c != '<' && c != '"' && c != '{') << shown;
    }
    EXPECT_EQ(read_id(shown), id);
  }
  for (const char* const bad : {"", "\\", "\\x", "\\x4", "\\xzz", "\\n"}) {
    EXPECT_FALSE(read_id(bad)) << bad;
  }
}

}  // namespace
}  // namespace weir::control
