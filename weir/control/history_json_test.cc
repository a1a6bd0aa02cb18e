// SPDX-License-Identifier: Apache-2.0
#include "weir/control/history_json.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/control/json_nlohmann.h"

namespace weir::control {
namespace {

using std::chrono::seconds;

Result<HistoryQuery> query_of(std::vector<std::pair<std::string, std::string>> query) {
  HttpRequest request;
  request.query = std::move(query);
  return read_history_query(request);
}

TEST(HistoryQuery, HasDefaultsAndBounds) {
  const auto plain = query_of({});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->resolution, UsageHistory::Resolution::kSeconds);
  EXPECT_EQ(plain->order, UsageHistory::Order::kServed);
  EXPECT_EQ(plain->limit, 10U);
  const auto all = query_of({{"step", "15"},
                             {"sort", "waited_ns"},
                             {"limit", "999999"},
                             {"class", "default/a"},
                             {"class", "default/b"}});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->resolution, UsageHistory::Resolution::kQuarters);
  EXPECT_EQ(all->order, UsageHistory::Order::kWait);
  EXPECT_EQ(all->limit, HistoryQuery::kClassesMax);
  EXPECT_EQ(all->names, (std::vector<std::string>{"default/a", "default/b"}));
  const auto many = query_of(std::vector(2 * HistoryQuery::kClassesMax,
                                         std::pair<std::string, std::string>{"class", "a"}));
  ASSERT_TRUE(many);
  EXPECT_EQ(many->names.size(), HistoryQuery::kClassesMax);
}

TEST(HistoryQuery, NamesWhatIsNotValid) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"step", "2"}, {"sort", "name"}, {"limit", "-1"}, {"limit", "1x"}, {"limit", ""}}) {
    const auto query = query_of({{key, value}});
    ASSERT_FALSE(query) << key << "=" << value;
    EXPECT_EQ(query.error().where, key);
    EXPECT_FALSE(query.error().hint.empty());
  }
}

TEST(HistoryJson, HasTheStepsOfTheBusiestClassesAndTheChanges) {
  UsageHistory history;
  const Instant start = instant_at(0) + seconds{100};
  for (int second = 0; second <= 3; ++second) {
    const auto n = static_cast<std::uint64_t>(second);
    history.begin(start + seconds{second});
    history.total("ost_io", {30 * n, 300 * n, 9000 * n});
    history.add("ost_io", "default/a", {10 * n, 100 * n, 3000 * n});
    history.add("ost_io", "default/<b>\n", {20 * n, 200 * n, 6000 * n});
  }
  history.mark(start + seconds{2}, "start dd");
  const Moment now{start + seconds{3}, 1'000'000'000'000};
  const auto text = history_json(history, "ost_io", {.limit = 1}, now);
  ASSERT_TRUE(text);
  const Json json = Json::parse(*text);
  EXPECT_EQ(json["service"], "ost_io");
  EXPECT_EQ(json["step_ns"], 1'000'000'000);
  ASSERT_EQ(json["classes"].size(), 1U);
  EXPECT_EQ(json["classes"][0]["class"], "default/<b>\n");
  const Json& steps = json["classes"][0];
  ASSERT_EQ(steps["served"].size(), json["total"]["served"].size()) << "all lines have as many";
  EXPECT_EQ(steps["served"].back(), 20);
  EXPECT_EQ(json["total"]["bytes"].back(), 300);
  EXPECT_EQ(json["total"]["waited_ns"].back(), 9000);
  ASSERT_EQ(json["marks"].size(), 1U);
  EXPECT_EQ(json["marks"][0]["text"], "start dd");
  EXPECT_EQ(json["marks"][0]["time_ns"], 999'000'000'000) << "of the wall clock";
  EXPECT_EQ(history_json(history, "none", {}, now), std::nullopt);
}

TEST(HistoryJson, ClassesThatAreNotKeptAreLeftOut) {
  UsageHistory history;
  for (int second = 0; second <= 2; ++second) {
    history.begin(instant_at(0) + seconds{second});
    history.total("ost_io", {1, 1, 1});
    history.add("ost_io", "default/a", {1, 1, 1});
  }
  const HistoryQuery query{.names = {"default/a", "default/none"}};
  const auto text = history_json(history, "ost_io", query, Moment{instant_at(0) + seconds{2}, 0});
  ASSERT_TRUE(text);
  const Json json = Json::parse(*text);
  ASSERT_EQ(json["classes"].size(), 1U);
  EXPECT_EQ(json["classes"][0]["class"], "default/a");
}

}  // namespace
}  // namespace weir::control
