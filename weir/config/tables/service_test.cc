// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

using std::chrono::milliseconds;

TEST(ServeConfig, SlotsAreSearchedForIfAsked) {
  EXPECT_EQ(parsed("[[service]]\n").services[0].slots, std::nullopt);
  EXPECT_EQ(parsed("[[service]]\nslots = 'auto'\n").services[0].slots, serve::kSlotsAuto);
  EXPECT_EQ(parsed("[[service]]\nslots = 7\n").services[0].slots, 7U);
  EXPECT_EQ(
      parsed("[[service]]\nslots = 'auto'\nlatency_target = '5ms'\n").services[0].latency_target,
      milliseconds{5});
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 'many'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 4\nlatency_target = '5ms'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 'auto'\nlatency_target = '0s'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 'auto'\nlatency_target = '2min'\n").size(), 1U);
}

TEST(ServeConfig, RatesOfRulesMayHavePrefixes) {
  const auto options =
      parse_serve_config("[[service]]\nrules = ['start a jobid={a} rate=10k']\n", "f");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->services[0].rules,
            std::vector<RuleChange>{parse_rule("start a jobid={a} rate=10000").value()});
}

TEST(ServeConfig, PointsAtARuleAndRepeatsItsParser) {
  EXPECT_EQ(refused("\"start a nodemap={visitors} rate=5\"",
                    "\n  'start b nid={*@tcp}',\n  'start a jobid={x} rate=5'"),
            "f:33:3: service 'fast': rule 2: column 9: 'jobid={x}' names a field that is not part "
            "of this policy's type; expected one of nid+nodemap");
  EXPECT_EQ(refused("{visitors}", "{visitor}"),
            "f:31:10: service 'fast': rule 1: column 18: 'visitor' is not a known nodemap; define "
            "the nodemap "
            "before its rules");
  EXPECT_EQ(refused("\"start a nodemap={visitors} rate=5\"",
                    "'start a nid={*@tcp}', 'start a nid={*@lo}'"),
            "f:31:33: service 'fast': rule 2: rule 'a' already exists; change or stop it, or "
            "use another name");
  EXPECT_EQ(refused("change default", "change a"),
            "f:31:47: service 'fast': rule 2: not allowed in a configuration; use start commands, "
            "and change for 'default'");
  EXPECT_EQ(refused("rules = [", "rules = [5, "),
            "f:31:10: service 'fast': rules must contain quoted strings");
}

TEST(ServeConfig, RefusesPoliciesThatAreNone) {
  EXPECT_EQ(mistakes_of("[[service]]\npolicy = 'tbf jobidd'\n").size(), 1U);
  EXPECT_TRUE(mistakes_of("[[service]]\npolicy = 'tbf jobidd'\n")[0].starts_with(
      "f:2:10: service: policy: "));
  EXPECT_TRUE(
      mistakes_of("[[service]]\npolicy = 'lifo'\n")[0].starts_with("f:2:10: service: policy: "));
  EXPECT_TRUE(mistakes_of("[[service]]\npolicy = 'crrn'\ntunables = ['quantum=8']\n").empty());
  EXPECT_TRUE(
      mistakes_of("[[service]]\npolicy = 'crrn'\ntunables = ['quantum=0']\n")[0].starts_with(
          "f:3:13: service: tunables: "));
  EXPECT_EQ(mistakes_of("[[service]]\npolicy = 'fifo'\nrules = ['start a jobid={a}']\n"),
            (std::vector<std::string>{"f:3:9: service: rules have no effect under 'fifo'; "
                                      "rules require the policy tbf"}));
  EXPECT_EQ(mistakes_of("[[service]]\npolicy = 'tbf reg jobid'\nrules = ['start a jobid={a}']\n"),
            (std::vector<std::string>{"f:3:10: service: rule 1: tbf does not run for "
                                      "high-priority requests; write reg or hp before the "
                                      "command"}));
  EXPECT_TRUE(mistakes_of("[[service]]\npolicy = 'tbf reg jobid'\n"
                          "rules = ['reg start a jobid={a}']\n")
                  .empty());
}

TEST(ServeConfig, RefusesServicesThatDoNotGoTogether) {
  EXPECT_EQ(refused("slots = 8\nhp_slots = 2", "slots = 2\nhp_slots = 2"),
            "f:35:12: service 'fast': hp_slots must be less than slots, which is 2");
  EXPECT_EQ(refused("slots = 8", "slots = 0\n#").substr(0, 70),
            "f:34:9: service 'fast': slots must be a whole number from 1 to 4096");
  EXPECT_EQ(refused("\"50ms\"", "\"1min\""),
            "f:36:10: service 'fast': period must be from 1ms to 10s");
  EXPECT_EQ(refused("\"paper\"", "\"off\""),
            "f:36:10: service 'fast': period has no effect with adaptive = 'off'");
  EXPECT_EQ(refused("\"paper\"", "\"offf\""),
            "f:32:12: service 'fast': adaptive cannot be 'offf'; did you mean 'off'?");
  EXPECT_EQ(refused("capacity = 4000", "capacity = 'much'"),
            "f:33:12: service 'fast': capacity: 'much' is not a valid capacity; expected auto, "
            "operations per "
            "second such as 4000, or bytes per second such as 100MB/s");
  EXPECT_EQ(
      refused("capacity = 4000", "capacity = '100MB/s'"),
      "f:37:8: service 'fast': cost must be 'bytes', since the capacity is in bytes per second");
  EXPECT_EQ(refused("\"affine:1:2\"", "\"bytes\""),
            "f:37:8: service 'fast': cost cannot be 'bytes', since the capacity is in operations "
            "per second; give the capacity a unit, such as '100MB/s'");
  EXPECT_EQ(mistakes_of("[[service]]\n[[service]]\nname = 'ost_io'\n"),
            (std::vector<std::string>{"f:3:8: service 'ost_io': name is used twice"}));
}

}  // namespace
}  // namespace weir::config
