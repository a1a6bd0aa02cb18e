// SPDX-License-Identifier: Apache-2.0
#include "weir/control/rule_dry_run.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/control/json_nlohmann.h"
#include "weir/control/server_for_tests.h"
#include "weir/target/nrs_text.h"

namespace weir::control {
namespace {

Result<Json> tried(ServerForTests& test, const std::string& command) {
  RuleDryRun run(param_change(Change::Kind::kParam, rule_path("ost_io"), command), "ost_io");
  for (;;) {
    const auto step = run.step(test.server());
    if (!step) return tl::unexpected(step.error());
    if (*step) return Json::parse(run.json("g1"));
  }
}

std::string classes_of(const Json& json) {
  std::string all;
  for (const Json& one : json["classes"]) {
    all += one["class"].get<std::string>() + " -> " +
           (one["becomes"].is_null() ? "none" : one["becomes"].get<std::string>()) + " " +
           std::to_string(one["rate"].get<int>()) + " -> " +
           std::to_string(one["rate_after"].get<int>()) + "\n";
  }
  return all;
}

TEST(RuleDryRun, ShowsWhichClassesChangeAndChangesNothing) {
  ServerForTests test({"start dd jobid={dd.*} rate=100"});
  test.serve("dd.0", 1);
  test.serve("ior.1", 1);
  test.serve("other", 1);
  auto json = tried(test, "start ior jobid={ior.*} rate=20");
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ((*json)["generation"], "g1");
  EXPECT_EQ((*json)["affected"], 1);
  EXPECT_EQ((*json)["unchanged"], 2);
  EXPECT_EQ((*json)["undecided"], 0);
  EXPECT_EQ(classes_of(*json), "default/ior.1 -> ior/ior.1 10000 -> 20\n");
  json = tried(test, "change dd rate=50");
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ(classes_of(*json), "dd/dd.0 -> dd/dd.0 100 -> 50\n");
  json = tried(test, "stop dd");
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ(classes_of(*json), "dd/dd.0 -> default/dd.0 100 -> 10000\n");
  const RuleView* const rules = test.server().find_service("ost_io")->target.rules(Head::kRegular);
  EXPECT_EQ(rules->rules(Head::kRegular).size(), 2U) << "dd and default, as before";
  EXPECT_EQ(rules->classes(), 3U);
}

TEST(RuleDryRun, ARuleOfAnotherLayerAddsAClass) {
  ServerForTests test({});
  test.serve("dd.0", 1);
  const auto json = tried(test, "start top jobid={dd.*} rate=20 layer=1");
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ(classes_of(*json), "top/dd.0 -> top/dd.0 0 -> 20\n");
}

TEST(RuleDryRun, FailsAsTheCommandWould) {
  ServerForTests test({"start dd jobid={dd.*} rate=100"});
  for (const char* const command :
       {"start dd jobid={x} rate=1", "change none rate=5", "start a nid={10.0.0.1@tcp} rate=1"}) {
    EXPECT_FALSE(tried(test, command)) << command;
  }
  RuleDryRun elsewhere(param_change(Change::Kind::kParam, rule_path("none"), "stop dd"), "none");
  EXPECT_FALSE(elsewhere.step(test.server()));
}

}  // namespace
}  // namespace weir::control
