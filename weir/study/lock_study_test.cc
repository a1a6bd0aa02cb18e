// SPDX-License-Identifier: Apache-2.0
#include "weir/study/lock_study.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weir::study {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

LockStudy study_of(std::uint64_t seed) {
  LockStudy study;
  study.scenario.name = "t";
  study.scenario.title = "</script> & <b>";
  study.scenario.clients = 10;
  study.scenario.limit = 200;
  study.scenario.rate = 40;
  study.scenario.length = 30s;
  study.scenario.settled = 15s;
  study.seed = seed;
  for (const char* const name : {"weir", "lru-5"}) {
    study.outcomes.push_back(
        sim::run_locks(study.scenario, sim::Appetite::kZipf, *sim::lock_contender_by(name), seed));
  }
  return study;
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(LockStudy, ResultHoldsWhatWasMeasured) {
  const LockStudy study = study_of(1);
  const Json json = Json::parse(lock_result_json(study));
  EXPECT_EQ(json["scenario"], "t");
  EXPECT_EQ(json["limit"], 200);
  EXPECT_EQ(json["settled_s"], 15.0);
  ASSERT_EQ(json["runs"].size(), 2U);
  const Json& fixed = json["runs"][1];
  EXPECT_EQ(fixed["appetite"], "zipf");
  EXPECT_EQ(fixed["policy"], "lru-5");
  EXPECT_EQ(fixed["messages"], study.outcomes[1].messages);
  EXPECT_DOUBLE_EQ(fixed["granted_most"].get<double>(),
                   static_cast<double>(study.outcomes[1].granted_most) / 200);
  EXPECT_EQ(fixed["cancels_for_volume"], 0);
  EXPECT_GT(json["runs"][0]["uses"], 1000);
}

TEST(LockStudy, TableHasALineForEachRun) {
  const std::string table = lock_table_text(study_of(1));
  EXPECT_EQ(lines_of(table), 4U) << table;
  EXPECT_NE(table.find("off its"), std::string::npos);
  EXPECT_NE(table.find("zipf     weir "), std::string::npos);
  EXPECT_NE(table.find("zipf     lru-5 "), std::string::npos);
}

TEST(LockStudy, FilesHaveEverySecondAndEveryClient) {
  const LockStudy study = study_of(1);
  EXPECT_EQ(lines_of(locks_csv(study)), 1 + 2 * 30U);
  EXPECT_NE(locks_csv(study).find("\nzipf,weir,30,"), std::string::npos);
  EXPECT_EQ(lines_of(lock_clients_csv(study)), 1 + 2 * 10U);
  EXPECT_NE(lock_clients_csv(study).find("\nzipf,lru-5,10,"), std::string::npos);
}

TEST(LockStudy, NothingInAReportEndsItsScript) {
  const std::string page = lock_report_html(study_of(1));
  EXPECT_EQ(page.find("/*DATA*/"), std::string::npos);
  std::size_t ends = 0;
  for (std::size_t at = page.find("</script>"); at != std::string::npos;
       at = page.find("</script>", at + 1)) {
    ++ends;
  }
  EXPECT_EQ(ends, 2U) << "of the data and of the script; the title would have ended one";
}

TEST(LockStudy, TheSameSeedGivesTheSameBytes) {
  EXPECT_EQ(lock_report_html(study_of(3)), lock_report_html(study_of(3)));
  EXPECT_NE(locks_csv(study_of(3)), locks_csv(study_of(4)));
}

TEST(LockStudy, WritesFourFilesOrSaysWhyNot) {
  const std::string folder = testing::TempDir() + "/lock_study_test";
  ASSERT_TRUE(write_lock_study(study_of(1), folder));
  for (const char* const name : {"result.json", "locks.csv", "clients.csv", "report.html"}) {
    EXPECT_GT(std::filesystem::file_size(folder + "/" + name), 100U) << name;
  }
  std::filesystem::remove_all(folder);
  const auto refused = write_lock_study(study_of(1), "/proc/nothing/here");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message(), "");
}

}  // namespace
}  // namespace weir::study
