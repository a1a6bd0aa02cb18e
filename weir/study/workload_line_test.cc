// SPDX-License-Identifier: Apache-2.0
#include "weir/study/workload_line.h"

#include <gtest/gtest.h>

namespace weir::study {
namespace {

using Format = WorkloadFormat;
using Kind = LineParser::Kind;
using Field = WorkloadField;

// From fio(1) and its iolog.c, blkparse(1) and its blkparse_fmt.c, and the README.txt of the MSR
// Cambridge traces.
constexpr const char* kRead = "  8,0    1       23     0.000342100  4101  Q   R 1048576 + 8 [fio]";
constexpr const char* kMsr = "128166372003061629,usr,0,Read,7014609920,24576,41286";

TEST(WorkloadLine, TheFirstLineTellsTheFormat) {
  const std::pair<const char*, std::optional<Format>> samples[] = {
      {"fio version 2 iolog", Format::kIolog2},
      {"fio version 3 iolog\r", Format::kIolog3},
      {kRead, Format::kBlkparse},
      {kMsr, Format::kMsr},
      {"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", Format::kMsr},
      {"time_s,job,op,bytes", Format::kCsv},
      {"0.5,a,read,4096", Format::kCsv},
      {"0, 4096, 4096", std::nullopt},  // version 1 of fio
      {"fio version 4 iolog", std::nullopt},
      {"hello", std::nullopt},
      {"", std::nullopt},
  };
  for (const auto& [line, format] : samples) EXPECT_EQ(LineParser::detect(line), format) << line;
}

TEST(WorkloadLine, ReadsAnIologOfVersion3) {
  LineParser parser(Format::kIolog3);
  EXPECT_EQ(parser.parse("fio version 3 iolog"), Kind::kNothing);
  EXPECT_EQ(parser.parse("5 /data/reader.0.0 add"), Kind::kNothing);
  ASSERT_EQ(parser.parse("84 /data/reader.0.0 read 45056 4096"), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 84U);
  EXPECT_EQ(parser.request().bytes, 4096U);
  EXPECT_TRUE(parser.request().is_read);
  EXPECT_EQ(parser.request().of(Field::kFile), "/data/reader.0.0");
  EXPECT_EQ(tick_ns(Format::kIolog3), 1000U);
  ASSERT_EQ(parser.parse("90 /data/reader.0.0 write 0 512"), Kind::kRequest);
  EXPECT_FALSE(parser.request().is_read);
  ASSERT_EQ(parser.parse("91 /data/reader.0.0 datasync 0 0"), Kind::kSkipped);
  EXPECT_EQ(parser.skipped(), Skipped::kFlush);
  ASSERT_EQ(parser.parse("92 /data/reader.0.0 trim 0 4096"), Kind::kSkipped);
  EXPECT_EQ(parser.skipped(), Skipped::kTrim);
  EXPECT_TRUE(parser.is_timed());
}

TEST(WorkloadLine, ARunThatFioAppendedFollowsTheFirst) {
  LineParser parser(Format::kIolog3);
  (void)parser.parse("fio version 3 iolog");
  ASSERT_EQ(parser.parse("700 f read 0 4096"), Kind::kRequest);
  EXPECT_EQ(parser.parse("fio version 3 iolog"), Kind::kNothing);
  ASSERT_EQ(parser.parse("3 f read 0 4096"), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 703U);
  EXPECT_EQ(parser.appended(), 1U);
}

TEST(WorkloadLine, WaitsAreTheTimesOfVersion2) {
  LineParser parser(Format::kIolog2);
  (void)parser.parse("fio version 2 iolog");
  ASSERT_EQ(parser.parse("f read 0 4096"), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 0U);
  EXPECT_FALSE(parser.is_timed());
  EXPECT_EQ(parser.parse("f wait 250 0"), Kind::kNothing);
  EXPECT_EQ(parser.parse("f wait 99 0"), Kind::kNothing);  // fio ignores less than 100
  ASSERT_EQ(parser.parse("f write 0 4096"), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 250U);
  EXPECT_TRUE(parser.is_timed());
}

TEST(WorkloadLine, ReadsEventsOfBlkparse) {
  LineParser parser(Format::kBlkparse);
  ASSERT_EQ(parser.parse(kRead), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 342'100U);
  EXPECT_EQ(parser.request().bytes, 4096U);
  EXPECT_EQ(parser.request().of(Field::kDevice), "8,0");
  EXPECT_EQ(parser.request().of(Field::kPid), "4101");
  EXPECT_EQ(parser.request().of(Field::kComm), "fio");
  const std::pair<const char*, Skipped> skipped[] = {
      {"  8,0 1 2 0.1 7  C   R 1048576 + 8 [0]", Skipped::kOtherEvent},
      {"  8,0 1 2 0.1 7  Q   D 100 + 8 [fstrim]", Skipped::kTrim},
      {"  8,0 1 2 0.1 7  Q FWS [jbd2/sda1-8]", Skipped::kFlush},
      {"  8,0 1 2 0.1 7  Q  FN 0 + 0 [x]", Skipped::kFlush},
      {"  8,0 1 2 0.1 7  Q FWS 0 + 0 [x]", Skipped::kFlush},
      {"  8,0 1 2 0.1 7  Q   R 36 (12 00 00 00 24 00 ..) [smartd]", Skipped::kPassThrough},
      {"  8,0 1 0 0.1 0  m   N cfq workload slice:100", Skipped::kNoEvent},
      {"CPU0 (sda):", Skipped::kNoEvent},
      {" Reads Queued:         120,   480KiB", Skipped::kNoEvent},
  };
  for (const auto& [line, why] : skipped) {
    ASSERT_EQ(parser.parse(line), Kind::kSkipped) << line;
    EXPECT_EQ(parser.skipped(), why) << line;
  }
  ASSERT_EQ(parser.parse("253,16 0 9 12.5 7  Q WSM 8 + 16 [a [b] c]"), Kind::kRequest);
  EXPECT_FALSE(parser.request().is_read);
  EXPECT_EQ(parser.request().of(Field::kComm), "a [b] c");
  EXPECT_EQ(parser.request().ticks, 12'500'000'000U);
  // With -t there is the time in the device.
  ASSERT_EQ(parser.parse("8,0 0 9 12.5 7  Q R 8 + 16 (    1234) [x]"), Kind::kRequest);
  EXPECT_EQ(parser.request().bytes, 8192U);
}

TEST(WorkloadLine, CountsTheOtherStageOfBlkparse) {
  LineParser parser(Format::kBlkparse);
  ASSERT_EQ(parser.parse("8,0 1 2 0.1 7  D   R 8 + 8 [x]"), Kind::kSkipped);
  EXPECT_EQ(parser.at_other_stage(), 1U);
  LineParser issued(Format::kBlkparse, 'D');
  EXPECT_EQ(issued.parse("8,0 1 2 0.1 7  D   R 8 + 8 [x]"), Kind::kRequest);
}

TEST(WorkloadLine, ReadsMsrCambridge) {
  LineParser parser(Format::kMsr);
  ASSERT_EQ(parser.parse(kMsr), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 128166372003061629U);
  EXPECT_EQ(parser.request().bytes, 24576U);
  EXPECT_TRUE(parser.request().is_read);
  EXPECT_EQ(parser.request().of(Field::kHost), "usr");
  EXPECT_EQ(parser.request().of(Field::kVolume), "usr_0");
  EXPECT_EQ(tick_ns(Format::kMsr), 100U);
}

TEST(WorkloadLine, ColumnsMayBeInAnotherOrderAndBesideOthers) {
  LineParser parser(Format::kMsr);
  EXPECT_EQ(parser.parse("Size,Colour,Timestamp,Type,DiskNumber,Hostname"), Kind::kNothing);
  ASSERT_EQ(parser.parse("512,red,77,Write,3,web"), Kind::kRequest);
  EXPECT_EQ(parser.request().ticks, 77U);
  EXPECT_EQ(parser.request().bytes, 512U);
  EXPECT_EQ(parser.request().of(Field::kVolume), "web_3");
  EXPECT_EQ(parser.ignored_columns(), std::vector<std::string>{"Colour"});
  LineParser lacks(Format::kMsr);
  ASSERT_EQ(lacks.parse("Timestamp,Hostname,Type,Size"), Kind::kWrong);
  EXPECT_EQ(lacks.wrong(), "has no column DiskNumber");
  EXPECT_EQ(lacks.parse("1,usr,Read,512"), Kind::kWrong);
  EXPECT_EQ(lacks.wrong(), "has no column DiskNumber");
}

TEST(WorkloadLine, SaysWhatIsWrong) {
  const std::tuple<Format, const char*, const char*> samples[] = {
      {Format::kIolog3, "x f read 0 1", "'x' is not a time in microseconds"},
      {Format::kIolog3, "18446744073709551615 f read 0 1",
       "'18446744073709551615' is not a time in microseconds"},
      {Format::kIolog3, "1 f wait 100 0", "has a wait, which version 3 does not allow"},
      {Format::kIolog3, "1 f read 0", "is cut, or not a line of an iolog"},
      {Format::kIolog3, "1 f erase 0 1", "'erase' is not an action of fio"},
      {Format::kIolog3, "1 f read 0 1 2", "has too many words for an iolog"},
      {Format::kIolog2, "f read 0 2000000000000", "'2000000000000' is not a size in bytes"},
      {Format::kBlkparse, "8,0 1 2 0.1", "is cut, or not an event of blkparse"},
      {Format::kBlkparse, "8,0 1 2 0.1 7 Q R 8 + 8 [x",
       "is cut: it does not end with a command in brackets"},
      {Format::kBlkparse, "8,0 1 2 0.1 7 Q Z 8 + 8 [x]", "'Z' is not an operation"},
      {Format::kMsr, "1,usr,0,Read,0,4096", "has 6 columns instead of 7"},
      {Format::kMsr, "1,usr,0,Erase,0,4096,1", "'Erase' is neither read nor write"},
      {Format::kMsr, "-1,usr,0,Read,0,4096,1", "'-1' is not a time in units of 100 ns"},
      {Format::kCsv, "0,a,read,-1", "'-1' is not a size in bytes"},
      {Format::kCsv, "1e3,a,read,1", "'1e3' is not a time in seconds"},
  };
  for (const auto& [format, line, wrong] : samples) {
    LineParser parser(format);
    ASSERT_EQ(parser.parse(line), Kind::kWrong) << line;
    EXPECT_EQ(parser.wrong(), wrong);
  }
}

}  // namespace
}  // namespace weir::study
