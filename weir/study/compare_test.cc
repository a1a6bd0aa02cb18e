// SPDX-License-Identifier: Apache-2.0
#include "weir/study/compare.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weir/sim/world.h"
#include "weir/study/scenario_file.h"

namespace weir::study {
namespace {

using Json = nlohmann::json;

constexpr const char* kText = R"(title = "</script> & <b>"
length = "3s"
[target]
capacity = 1000
spread = "10%"
[[job]]
name = "user"
count = 2
process = [{ kind = "think", think = "50ms", requests = 4 }]
[[job]]
name = "scan"
nodes = 2
process = [{ window = 32 }]
)";

RunResult value_of(const char* policy, std::uint64_t seed, double used) {
  RunResult result;
  result.key = {"s", policy, seed};
  result.metrics[static_cast<std::size_t>(Metric::kUtilisation)] = used;
  return result;
}

RunResult sample() {
  const sim::Scenario scenario = *parse_scenario(kText, "t.toml", "");
  std::int64_t reading = 0;
  const sim::RunOptions options{.measures = true,
                                .stopwatch = {.now = [&] { return Nanoseconds{reading += 50}; },
                                              .switches = [] { return std::uint64_t{0}; }}};
  const auto outcome = sim::run(scenario, sim::Contender::kMclock, options);
  return run_result({"t", "mclock", 1}, digest_of({kText}), scenario, *outcome,
                    std::chrono::milliseconds{3});
}

TEST(Compare, IntervalsAreThoseOfStudentsDistribution) {
  // 1, 2, 3: mean 2, s = 1, t(2) = 4.303, half width 4.303 / sqrt(3).
  const auto ranked = rank({value_of("a", 1, 1), value_of("a", 2, 2), value_of("a", 3, 3)}, "s",
                           Metric::kUtilisation);
  ASSERT_EQ(ranked.size(), 1U);
  EXPECT_DOUBLE_EQ(ranked[0].mean, 2);
  EXPECT_NEAR(*ranked[0].half_width, 2.4843, 1e-4);
  EXPECT_EQ(ranked[0].runs, 3U);
}

TEST(Compare, RanksByTheMeanAndTellsTies) {
  std::vector<RunResult> results;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const auto noise = static_cast<double>(seed) * 0.01;
    results.push_back(value_of("worst", seed, 0.5 + noise));
    results.push_back(value_of("second", seed, 0.89 + noise));
    results.push_back(value_of("first", seed, 0.9 + noise));
  }
  auto ranked = rank(results, "s", Metric::kUtilisation);
  ASSERT_EQ(ranked.size(), 3U);
  EXPECT_EQ(ranked[0].policy, "first");
  EXPECT_TRUE(ranked[0].is_tied);
  EXPECT_EQ(ranked[1].policy, "second");
  EXPECT_EQ(ranked[1].rank, 2U);
  EXPECT_TRUE(ranked[1].is_tied);
  EXPECT_EQ(ranked[2].policy, "worst");
  EXPECT_FALSE(ranked[2].is_tied);
  // Less is better for all others; policies without a value are left out.
  EXPECT_TRUE(rank(results, "s", Metric::kRepay).empty());
  EXPECT_TRUE(rank(results, "other", Metric::kUtilisation).empty());
}

TEST(Compare, OneSeedHasNoInterval) {
  const auto ranked = rank({value_of("a", 1, 1), value_of("b", 1, 1), value_of("c", 1, 0.9)}, "s",
                           Metric::kUtilisation);
  EXPECT_FALSE(ranked[0].half_width);
  EXPECT_EQ(ranked[1].rank, 1U);  // equal means share a rank
  EXPECT_TRUE(ranked[1].is_tied);
  EXPECT_EQ(ranked[2].rank, 3U);
  EXPECT_FALSE(ranked[2].is_tied);
}

TEST(Compare, ARunSurvivesItsLine) {
  const RunResult result = sample();
  ASSERT_EQ(result.jobs.size(), 3U);
  EXPECT_TRUE(result.jobs[0].is_bursty);
  EXPECT_FALSE(result.jobs[2].is_bursty);
  EXPECT_EQ(result.jobs[2].nodes, 2U);
  EXPECT_GT(result.metrics[static_cast<std::size_t>(Metric::kBurstyP99)].value_or(0), 16);
  EXPECT_FALSE(result.metrics[static_cast<std::size_t>(Metric::kRepay)]);
  EXPECT_FALSE(result.metrics[static_cast<std::size_t>(Metric::kReserve)]);
  EXPECT_EQ(result.metrics[static_cast<std::size_t>(Metric::kDecision)], 0);
  EXPECT_EQ(result.cpu_s, 0.003);
  const std::string line = run_line(result);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(parse_run_line(line.substr(0, line.size() - 1)), result);
}

TEST(Compare, AReservationThatIsNotKeptIsAMetric) {
  sim::Scenario scenario = *parse_scenario(kText, "t.toml", "");
  scenario.jobs[2].reserve = Rate::per_second(990);
  // `none` knows no reservations; its four users take what they ask for.
  const auto outcome = sim::run(scenario, sim::Contender::kNone, {.measures = true});
  ASSERT_TRUE(outcome);
  const RunResult result = run_result({"t", "none", 1}, "", scenario, *outcome, Nanoseconds{0});
  const auto missed = result.metrics[static_cast<std::size_t>(Metric::kReserve)];
  ASSERT_TRUE(missed);
  EXPECT_GT(*missed, 0.01);
  EXPECT_LT(*missed, 0.5);
  EXPECT_EQ(result.jobs[2].reserve_missed, missed);
  EXPECT_FALSE(result.jobs[0].reserve_missed);
  EXPECT_EQ(parse_run_line(run_line(result)), result);
}

TEST(Compare, ALineThatIsCutAnywhereIsNotARun) {
  const std::string line = run_line(sample());
  for (std::size_t size = 0; size + 2 < line.size(); size += 7) {
    EXPECT_FALSE(parse_run_line(line.substr(0, size))) << size;
  }
  EXPECT_FALSE(parse_run_line("{}"));
  EXPECT_FALSE(parse_run_line("[1]"));
  EXPECT_FALSE(parse_run_line(R"({"scenario": 7})"));
}

TEST(Compare, ADigestDependsOnEveryPart) {
  EXPECT_EQ(digest_of({"a", "b"}), digest_of({"a", "b"}));
  EXPECT_NE(digest_of({"a", "b"}), digest_of({"ab", ""}));
  EXPECT_NE(digest_of({"a", "b"}), digest_of({"a", "c"}));
}

TEST(Compare, FilesHaveARowForEachJobAndRunAndSayWhatWasRefused) {
  Comparison comparison;
  comparison.command = "weir sim compare --out DIR";
  comparison.scenarios = {"t"};
  comparison.titles["t"] = "</script> & <b>";
  comparison.policies = {"mclock", "io-latency"};
  comparison.results = {sample()};
  RunResult refused;
  refused.key = {"t", "io-latency", 1};
  refused.refusal = "cannot express it";
  comparison.results.push_back(refused);
  const std::string csv = results_csv(comparison);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_NE(csv.find("\nt,mclock,1,scan,scan,steady,2,"), std::string::npos) << csv;
  // Every row has all columns, and the metrics of the run.
  const auto columns = [&](std::size_t line) {
    std::size_t begin = 0;
    for (; line > 0; --line) begin = csv.find('\n', begin) + 1;
    const std::string row = csv.substr(begin, csv.find('\n', begin) - begin);
    return std::count(row.begin(), row.end(), ',');
  };
  EXPECT_NE(csv.find(",run_cpu_s,run_utilisation,run_shortfall_mean,"), std::string::npos) << csv;
  for (std::size_t line = 0; line < 4; ++line) EXPECT_EQ(columns(line), 19 + 11) << line;
  const Json json = Json::parse(results_json(comparison));
  EXPECT_EQ(json["refused"][0]["why"], "cannot express it");
  EXPECT_EQ(json["scenarios"][0]["metrics"]["utilisation"][0]["policy"], "mclock");
  EXPECT_EQ(json["runs"].size(), 2U);
  const std::string page = compare_html(comparison);
  EXPECT_EQ(page.find("</script> &"), std::string::npos);
  EXPECT_NE(page.find("<\\/script> &"), std::string::npos);
}

TEST(Compare, ZipfGivesTheNthJobANthOfTheNodes) {
  const auto scenario = parse_scenario(
      "length = '1s'\n[target]\ncapacity = 1000\n[[job]]\nname = 'j'\ncount = 6\nzipf = 5\n"
      "process = [{}]\n",
      "z.toml", "");
  ASSERT_TRUE(scenario) << scenario.error().message();
  std::vector<std::uint64_t> nodes;
  for (const sim::JobSpec& job : scenario->jobs) nodes.push_back(job.nodes);
  EXPECT_EQ(nodes, (std::vector<std::uint64_t>{5, 2, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace weir::study
