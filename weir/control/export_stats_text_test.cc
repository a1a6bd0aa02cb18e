// SPDX-License-Identifier: Apache-2.0
#include "weir/control/export_stats_text.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::control {
namespace {

const Moment moment{Instant{} + std::chrono::seconds{102}, 1'755'600'002'000'000'000};

OpStats::Operations some_operations() {
  OpStats stats;
  OpStats::Handle handle;
  const auto record = [&](OperationKind operation, std::uint64_t bytes) {
    const Instant ended = Instant{} + std::chrono::seconds{100};
    stats.record(handle, JobId("dd.0"),
                 {.operation = operation,
                  .moved = Bytes{bytes},
                  .started = ended - std::chrono::microseconds{7},
                  .ended = ended});
  };
  record(OperationKind::kRead, 4096);
  record(OperationKind::kWrite, 512);
  record(OperationKind::kWrite, 16384);
  record(OperationKind::kWrite, 16384);
  record(OperationKind::kFlush, 0);
  return stats.total();
}

// The columns are those of tests/recorded/lustre/2.17.57/37-ofd-stats.txt.
TEST(ExportStatsText, IsWhatALustreServerPrints) {
  EXPECT_EQ(print_export_stats(some_operations(), moment),
            "snapshot_time                       1755600002.000000000 secs.nsecs\n"
            "start_time                          1755600000.000000000 secs.nsecs\n"
            "elapsed_time                        2.000000000 secs.nsecs\n"
            "read_bytes                          1 samples [bytes] 4096 4096 4096 16777216\n"
            "write_bytes                         3 samples [bytes] 512 16384 33280 537133056\n"
            "read                                1 samples [usecs] 7 7 7 49\n"
            "write                               3 samples [usecs] 7 7 21 147\n"
            "sync                                1 samples [usecs] 7 7 7 49\n");
}

TEST(ExportStatsText, HasOnlyTimesBeforeTheFirstRequest) {
  EXPECT_EQ(print_export_stats({}, moment),
            "snapshot_time                       1755600002.000000000 secs.nsecs\n"
            "start_time                          1755600002.000000000 secs.nsecs\n"
            "elapsed_time                        0.000000000 secs.nsecs\n");
}

TEST(BrwStatsText, HasSizesFromTheFirstInUseToTheLast) {
  const std::string text = print_brw_stats(some_operations(), moment);
  EXPECT_TRUE(text.starts_with("snapshot_time:            1755600002.000000000 secs.nsecs\n"))
      << text;
  EXPECT_NE(text.find("\n"
                      "                           read      |     write\n"
                      "pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %\n"
                      "1:\t\t         1 100 100   |    1  33  33\n"
                      "2:\t\t         0   0 100   |    0   0  33\n"
                      "4:\t\t         0   0 100   |    2  66 100\n"
                      "\n"
                      "                           read      |     write\n"
                      "discontiguous pages    rpcs  % cum % |  rpcs        % cum %\n"
                      "\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(
      text.ends_with("disk I/O size          ios   % cum % |  ios         % cum %\n"
                     "512:\t\t         0   0   0   |    1  33  33\n"
                     "1K:\t\t         0   0   0   |    0   0  33\n"
                     "2K:\t\t         0   0   0   |    0   0  33\n"
                     "4K:\t\t         1 100 100   |    0   0  33\n"
                     "8K:\t\t         0   0 100   |    0   0  33\n"
                     "16K:\t\t         0   0 100   |    2  66 100\n"))
      << text;
}

}  // namespace
}  // namespace weir::control
