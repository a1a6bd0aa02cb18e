// SPDX-License-Identifier: Apache-2.0
#include "weir/study/workload.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "weir/host/files.h"
#include "weir/sim/world.h"

namespace weir::study {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class WorkloadTest : public testing::Test {
 protected:
  WorkloadTest()
      : folder_(testing::TempDir() + "/workload." +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    EXPECT_TRUE(host::make_folder(folder_));
  }
  ~WorkloadTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string file(const std::string& text, const std::string& name = "w") const {
    EXPECT_TRUE(host::write_file(path(name), text));
    return path(name);
  }
  // Reads the files; the scenario has a device.
  Result<std::vector<WorkloadReport>> read(const std::vector<std::string>& files) {
    scenario_ = sim::Scenario{};
    options_.files = files;
    return add_workload(options_, scenario_);
  }
  WorkloadReport report(const std::string& text) {
    auto reports = read({file(text)});
    EXPECT_TRUE(reports) << reports.error().message();
    return reports ? reports->front() : WorkloadReport{};
  }
  std::string error(const std::string& text) {
    const auto reports = read({file(text)});
    EXPECT_FALSE(reports);
    if (reports) return "";
    std::string message = reports.error().message();
    const std::size_t at = message.find(folder_ + "/");
    return at == std::string::npos ? message : message.erase(at, folder_.size() + 1);
  }
  // "time job" of each request in a run, in microseconds.
  std::vector<std::string> arrivals(std::size_t stream = 0) {
    std::vector<std::string> all;
    const auto opened = scenario_.streams[stream].open();
    EXPECT_TRUE(opened);
    for (;;) {
      const auto entry = (*opened)->next();
      EXPECT_TRUE(entry) << entry.error().message();
      if (!entry || !*entry) return all;
      all.push_back(
          fmt::format("{} {}", (*entry)->at / microseconds{1}, scenario_.jobs[(*entry)->job].name));
    }
  }

  std::string folder_;
  WorkloadOptions options_;
  sim::Scenario scenario_;
};

using Strings = std::vector<std::string>;

TEST_F(WorkloadTest, JobsAndRequestsComeFromTheFile) {
  const WorkloadReport read =
      report("time_s,job,op,bytes\n2,a,read,4096\n2.5,b,write,100\n3,a,read,1\n");
  EXPECT_EQ(read.requests, 3U);
  EXPECT_EQ(read.reads, 2U);
  EXPECT_EQ(read.bytes, 4197U);
  EXPECT_EQ(read.length, seconds{1});
  EXPECT_EQ(workload_notes(read), Strings{});
  EXPECT_EQ(arrivals(), (Strings{"0 a", "500000 b", "1000000 a"}));
  EXPECT_EQ(arrivals(), (Strings{"0 a", "500000 b", "1000000 a"}));  // once for each run
  EXPECT_EQ(scenario_.streams[0].window, sim::kWindowMax);
  EXPECT_EQ(scenario_.streams[0].largest, Bytes{4096});
}

TEST_F(WorkloadTest, FilesOfOneFormatShareTheirTime) {
  const std::string first = file("9000000,usr,0,Read,0,512,1\n9000500,usr,0,Read,0,512,1\n", "a");
  const std::string second = file("9000100,web,1,Write,0,512,1\n", "b");
  const auto reports = read({first, second});
  ASSERT_TRUE(reports) << reports.error().message();
  EXPECT_EQ(arrivals(0), (Strings{"0 usr_0", "50 usr_0"}));
  EXPECT_EQ(arrivals(1), (Strings{"10 web_1"}));
  EXPECT_EQ((*reports)[1].length, microseconds{10});
}

TEST_F(WorkloadTest, SortsRequestsThatAreOutOfOrder) {
  const WorkloadReport read = report("3,a,read,1\n1,b,read,1\n2,c,read,1\n");
  EXPECT_EQ(read.sorted, 2U);
  EXPECT_EQ(read.moved, 0U);
  EXPECT_EQ(workload_notes(read), Strings{"2 requests were out of order and sorted"});
  EXPECT_EQ(arrivals(), (Strings{"0 b", "1000000 c", "2000000 a"}));
}

TEST_F(WorkloadTest, TimeThatGoesBackIsMovedAndCounted) {
  std::string text = "0,a,read,1\n";
  for (int i = 0; i < 5000; ++i) text += fmt::format("{},a,read,1\n", 10 + i);
  text += "7,late,read,1\n";
  const WorkloadReport read = report(text);
  EXPECT_EQ(read.moved, 1U);
  // 4,096 are sorted at a time: 906 were returned before the late one was read, the last at 914 s.
  EXPECT_EQ(read.moved_longest, seconds{907});
  EXPECT_EQ(workload_notes(read),
            Strings{"time goes back: 1 request was moved by up to 907s to keep the order"});
}

TEST_F(WorkloadTest, AFileThatIsNotSortedIsRejected) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += fmt::format("{},a,read,1\n", 20'000 - i);
  const std::string message = error(text);
  EXPECT_TRUE(message.starts_with("'w': is not sorted: ")) << message;
  EXPECT_TRUE(message.ends_with("; sort it by time")) << message;
}

TEST_F(WorkloadTest, ALineThatIsCutIsLeftOutAndSaid) {
  const WorkloadReport read = report("0,a,read,4096\n1,a,read,40");
  EXPECT_EQ(read.requests, 1U);
  EXPECT_EQ(workload_notes(read), Strings{"cut: the last line has no newline and was left out"});
  EXPECT_EQ(error("0,a,read,4096"),
            "'w': contains no request that can be simulated: the last line has no newline and was "
            "left out");
}

TEST_F(WorkloadTest, LinesThatAreNotUnderstoodAreCounted) {
  const WorkloadReport read =
      report("0,a,read,4096\n1,a,erase,4\n2,a\nx,a,read,1\n?\n3,a,read,1\n");
  EXPECT_EQ(read.requests, 2U);
  EXPECT_EQ(read.wrong, 4U);
  EXPECT_EQ(workload_notes(read),
            Strings{"not understood: 4 lines; line 2: 'erase' is neither read nor write; line 3: "
                    "has 2 columns instead of 4; line 4: 'x' is not a time in seconds"});
}

TEST_F(WorkloadTest, AFileOfOtherLinesIsGivenUp) {
  std::string text = "0,a,read,4096\n";
  for (int i = 0; i < 2000; ++i) text += "nonsense\n";
  EXPECT_EQ(
      error(text),
      "'w': 1000 of the first 1001 lines are not Weir's CSV: line 2: has 1 columns instead of "
      "4");
}

TEST_F(WorkloadTest, ATimeThatCannotBeIsNotUsed) {
  const WorkloadReport read =
      report("100,a,0,Read,0,512,1\n99999999999999999,a,0,Read,0,512,1\n200,a,0,Read,0,512,1\n");
  EXPECT_EQ(read.requests, 2U);
  EXPECT_EQ(workload_notes(read),
            Strings{"not understood: 1 line; line 2: its time is more than 30d from the first"});
}

TEST_F(WorkloadTest, AnIologWithoutTimesIsOneClient) {
  const WorkloadReport read =
      report("fio version 2 iolog\nf add\nf open\nf read 0 4096\nf close\n");
  EXPECT_EQ(workload_notes(read), Strings{"no times: sent as fast as outstanding requests allow"});
  EXPECT_EQ(scenario_.streams[0].window, WorkloadOptions::kUntimedDepth);
  options_.depth = 7;
  (void)report("fio version 2 iolog\nf read 0 4096\n");
  EXPECT_EQ(scenario_.streams[0].window, 7U);
}

TEST_F(WorkloadTest, UsesTheIssuedRequestsIfNoneWereQueued) {
  const WorkloadReport read =
      report("8,0 1 2 0.1 7  D   R 8 + 8 [x]\n8,0 1 2 0.2 7  C   R 8 + 8 [0]\n");
  EXPECT_EQ(read.requests, 1U);
  EXPECT_EQ(workload_notes(read), (Strings{"not simulated: 1 events of other stages of a request",
                                           "no events Q: arrivals are the events D"}));
}

TEST_F(WorkloadTest, FilesThatAreNoWorkloadSayWhatToDo) {
  const std::string zip("\x1f\x8b\x08\x00", 4);
  const std::string blktrace("\x07tae....", 8);
  const std::pair<std::string, std::string> samples[] = {
      {"", "'w': is empty"},
      {zip, "'w': is compressed; use zcat FILE > NEW, and NEW"},
      {blktrace, "'w': is binary output of blktrace; use blkparse -i FILE > NEW, and NEW"},
      {"time_s,job,op,bytes\n", "'w': contains no request that can be simulated: it has none"},
      {"8,0 1 2 0.1 7  Q   D 8 + 8 [x]\n",
       "'w': contains no request that can be simulated: it has 1 trims and discards"},
      {"0,a,read,1\n" + std::string(300'000, 'x'),
       "'w': line 2 is longer than 65536 bytes; the file is damaged, or not a text"},
  };
  for (const auto& [text, message] : samples) EXPECT_EQ(error(text), message);
  const std::string other = error("hello\n");
  EXPECT_TRUE(other.starts_with("'w': is not a workload: it begins with 'hello'; expected a fio"))
      << other;
}

TEST_F(WorkloadTest, APipeIsRejectedWithoutWaitingForIt) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const auto reports = read({path("pipe")});
  ASSERT_FALSE(reports);
  EXPECT_EQ(reports.error().what, "is not a regular file");
  EXPECT_EQ(read({path("none")}).error().code, std::errc::no_such_file_or_directory);
}

TEST_F(WorkloadTest, AFieldThatTheFormatLacksIsAnError) {
  options_.map.by = WorkloadField::kPid;
  EXPECT_EQ(error("0,a,read,1\n"),
            "'w': has no field pid for names of jobs; a Weir's CSV has the field job");
}

TEST_F(WorkloadTest, ReadsNoFurtherThanTheRun) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += fmt::format("{},a,read,1\n", i);
  scenario_.length = seconds{9};
  options_.files = {file(text)};
  const auto reports = add_workload(options_, scenario_);
  ASSERT_TRUE(reports);
  EXPECT_EQ((*reports)[0].requests, 10U);
  EXPECT_LT((*reports)[0].lines, 5000U);
  EXPECT_TRUE((*reports)[0].is_stopped);
}

TEST_F(WorkloadTest, TheDigestDependsOnEveryRequest) {
  const auto digest = [&](const std::string& text) { return workload_digest(*read({file(text)})); };
  const std::string one = digest("0,a,read,1\n1,b,read,1\n");
  EXPECT_EQ(digest("0,a,read,1\n1,b,read,1\n"), one);
  EXPECT_NE(digest("0,a,read,1\n1,b,read,2\n"), one);
  EXPECT_NE(digest("0,a,read,1\n1,b,write,1\n"), one);
  EXPECT_NE(digest("0,a,read,1\n1.1,b,read,1\n"), one);
}

TEST_F(WorkloadTest, ADeviceForAWorkloadIsUsedFor80Percent) {
  std::string text;
  for (int i = 0; i <= 1000; ++i) text += fmt::format("{},a,read,1\n", i * 0.01);
  const auto reports = read({file(text)});
  ASSERT_TRUE(reports);
  const sim::Scenario scenario = scenario_for(*reports);
  EXPECT_EQ(scenario.targets[0].capacity, Rate::per_second(130));  // 100.1 / 0.8, two digits
}

TEST_F(WorkloadTest, ASimulationRunsIt) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += fmt::format("{:.3f},{},read,4096\n", i * 0.001, i % 3 == 0 ? "small" : "large");
  }
  ASSERT_TRUE(read({file(text)}));
  scenario_.targets[0].store.service.base = milliseconds{16};
  ASSERT_TRUE(sim::check(scenario_));
  const auto outcome = sim::run(scenario_, sim::Contender::kWeir, {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->findings, 0U);
  EXPECT_EQ(outcome->served, 1000U);
  EXPECT_EQ(outcome->jobs[0].served, 334U);
  EXPECT_EQ(outcome->jobs[1].served, 666U);
}

TEST_F(WorkloadTest, AFileThatChangesDuringARunEndsItWithAnError) {
  ASSERT_TRUE(read({file("0,a,read,1\n1,a,read,1\n")}));
  (void)file("0,a,read,1\n1,new,read,1\n");
  const auto outcome = sim::run(scenario_, sim::Contender::kNone, {});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().what, "has changed while it was read");
}

}  // namespace
}  // namespace weir::study
