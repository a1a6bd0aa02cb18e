// SPDX-License-Identifier: Apache-2.0
#include "weir/study/study.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weir/sim/world.h"
#include "weir/study/scenario_file.h"

namespace weir::study {
namespace {

using Json = nlohmann::json;

constexpr const char* kText = R"(title = "</script> & <b>"
length = "5s"
[target]
capacity = 1000
spread = "10%"
[[job]]
name = "user"
count = 2
process = [{ kind = "think", think = "50ms", requests = 4 }]
[[job]]
name = "scan"
process = [{ window = 32 }]
)";

Study study_of(std::uint64_t seed) {
  Study study;
  study.scenario = *parse_scenario(kText, "t.toml", "");
  study.scenario.name = "t";
  study.seed = seed;
  for (const sim::Contender contender : {sim::Contender::kNone, sim::Contender::kStatic}) {
    sim::RunOptions options;
    options.seed = seed;
    study.outcomes.push_back(*sim::run(study.scenario, contender, options));
  }
  // Reports of a controller at two times.
  sim::PeriodRow row;
  row.report.jobs.resize(1);
  row.report.jobs[0].job = JobId("scan");
  for (const std::int64_t ms : {100, 2100}) {
    row.report.at = Instant{std::chrono::milliseconds{ms}};
    row.report.jobs[0].record = -ms;
    row.report.records = {{JobId("scan"), -ms}, {JobId("user1"), ms}};
    row.report.jobs[0].demand = Tokens{7};
    row.report.jobs[0].final = Tokens{5};
    study.outcomes[1].periods.push_back(row);
  }
  study.outcomes[1].period = std::chrono::milliseconds{100};
  return study;
}

TEST(Study, ResultHoldsWhatWasMeasured) {
  const Study study = study_of(1);
  const Json json = Json::parse(result_json(study));
  EXPECT_EQ(json["scenario"], "t");
  EXPECT_EQ(json["seed"], 1);
  EXPECT_EQ(json["length_s"], 5.0);
  const Json& none = json["policies"]["none"];
  EXPECT_EQ(none["served"], study.outcomes[0].served);
  EXPECT_NEAR(none["utilisation"], 1, 0.01);
  for (const char* key : {"throughput", "share", "entitlement", "wait_p50_ms", "wait_p99_ms",
                          "latency_p50_ms", "latency_p99_ms", "record"}) {
    EXPECT_TRUE(none["jobs"]["user1"].contains(key)) << key;
    EXPECT_TRUE(none["groups"]["user"].contains(key)) << key;
  }
  EXPECT_EQ(none["findings"], 0);
}

TEST(Study, PeriodsHaveALineForEachJobThatIsActiveOrHasARecord) {
  EXPECT_EQ(periods_csv(study_of(1)),
            "policy,target,time_s,job,nodes,demand,initial,redistributed,final,rate,record,"
            "borrowed,lent\n"
            "static,target,0.100000,scan,1,7,0,0,5,50.000,-100,0,0\n"
            "static,target,0.100000,user1,1,0,0,0,0,0.000,100,0,0\n"
            "static,target,2.100000,scan,1,7,0,0,5,50.000,-2100,0,0\n"
            "static,target,2.100000,user1,1,0,0,0,0,0.000,2100,0,0\n");
}

TEST(Study, ThroughputAddsUpToWhatWasServed) {
  const Study study = study_of(1);
  const std::string csv = throughput_csv(study);
  std::uint64_t sum = 0;
  for (std::size_t at = csv.find("none,"); at != std::string::npos; at = csv.find("\nnone,", at)) {
    const std::size_t end = csv.find('\n', at + 1);
    const std::string line = csv.substr(at, end - at);
    sum += std::stoull(line.substr(line.rfind(',') + 1));
    at = end;
  }
  EXPECT_EQ(sum, study.outcomes[0].served);
}

TEST(Study, TheSameSeedGivesTheSameBytes) {
  EXPECT_EQ(result_json(study_of(3)), result_json(study_of(3)));
  EXPECT_EQ(throughput_csv(study_of(3)), throughput_csv(study_of(3)));
  EXPECT_EQ(report_html(study_of(3)), report_html(study_of(3)));
  EXPECT_NE(result_json(study_of(3)), result_json(study_of(4)));
}

// The study inside the page.
Json study_in(const std::string& page) {
  const std::string begin = R"(id="study">)";
  const std::size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(Study, ThePageHoldsItsNumbersAndNothingFromElsewhere) {
  const std::string page = report_html(study_of(1));
  const Json json = study_in(page);
  EXPECT_EQ(json["title"], "</script> & <b>");
  EXPECT_EQ(json["unit"], "requests/s");
  ASSERT_EQ(json["policies"].size(), 2U);
  const Json& jobs = json["policies"][0]["jobs"];
  ASSERT_EQ(jobs.size(), 2U);  // the users form one group
  EXPECT_EQ(jobs[0]["series"].size(), 50U);
  const Json& record = json["policies"][1]["periods"]["record"][1];
  EXPECT_EQ(record[0], -100);
  EXPECT_EQ(record[19], -100);  // kept while there is no report
  EXPECT_EQ(record[20], -2100);
  EXPECT_EQ(record[49], -2100);
  EXPECT_EQ(json["policies"][1]["periods"]["demand"][1][0], 70);  // 7 in 100 ms
  for (const char* outside : {"src=", "@import", "http-equiv", "//cdn"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace weir::study
