// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/nrs_text.h"

#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace {

constexpr const char* kHead =
    "  - name: fifo\n"
    "    state: started\n"
    "    fallback: yes\n"
    "    queued: 0                   \n"
    "    active: 0                   \n"
    "\n";

TEST(NrsText, ListsPoliciesByteForByte) {
  Gate gate({});
  std::string stopped;
  for (const char* name : {"crrn", "tbf"}) {
    stopped += std::string("  - name: ") + name +
               "\n    state: stopped\n    fallback: no\n"
               "    queued: 0                   \n    active: 0                   \n\n";
  }
  EXPECT_EQ(read_nrs_policies(gate), "\nregular_requests:\n" + (kHead + stopped) +
                                         "high_priority_requests:\n" + kHead + stopped);
}

TEST(NrsText, ShowsWhatIsDrained) {
  Gate gate({});
  ASSERT_TRUE(write_nrs_policies(gate, "crrn reg"));
  Request request;
  gate.admit(request, Head::kRegular, instant_at(0));
  EXPECT_NE(
      read_nrs_policies(gate).find("crrn\n    state: started\n    fallback: no\n    queued: 1 "),
      std::string::npos);
  ASSERT_TRUE(write_nrs_policies(gate, "fifo"));
  EXPECT_NE(
      read_nrs_policies(gate).find("crrn\n    state: stopping\n    fallback: no\n    queued: 1 "),
      std::string::npos);
  ASSERT_EQ(gate.next(instant_at(0)).kind(), Decision::Kind::kRun);
  EXPECT_NE(read_nrs_policies(gate).find("queued: 0                   \n    active: 1 "),
            std::string::npos);
  gate.complete(request, instant_at(0));
  EXPECT_EQ(read_nrs_policies(gate).find("stopping"), std::string::npos);
}

TEST(NrsText, RefusesWhatAServerRefuses) {
  Gate gate({});
  ASSERT_TRUE(write_nrs_policies(gate, "crrn"));
  const std::string before = read_nrs_policies(gate);
  const auto code = [&](const std::string& text) {
    const auto written = write_nrs_policies(gate, text);
    return written ? std::errc{} : written.error().code;
  };
  EXPECT_EQ(code(std::string(1044, 'x')), std::errc::invalid_argument);
  EXPECT_EQ(code("sixteencharslong"), std::errc::invalid_argument);
  EXPECT_EQ(code("crrn sixteencharslong"), std::errc::invalid_argument);
  for (const char* text :
       {"orr", "trr", "delay", "tbf\n", "crrn\n", "", " crrn", "Crrn", "fifo\n"}) {
    EXPECT_EQ(code(text), std::errc::no_such_file_or_directory) << text;
  }
  EXPECT_EQ(read_nrs_policies(gate), before);
}

TEST(NrsText, ReadsAndWritesTheQuantum) {
  Gate gate({});
  EXPECT_EQ(read_nrs_crrn_quantum(gate).error().code, std::errc::no_such_device);
  EXPECT_EQ(write_nrs_crrn_quantum(gate, "5").error().code, std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(gate, "crrn"));
  EXPECT_EQ(*read_nrs_crrn_quantum(gate), "reg_quantum:8    \nhp_quantum:8    \n");
  ASSERT_TRUE(write_nrs_crrn_quantum(gate, "64\n"));
  ASSERT_TRUE(write_nrs_crrn_quantum(gate, "hp_quantum:65535"));
  EXPECT_EQ(*read_nrs_crrn_quantum(gate), "reg_quantum:64   \nhp_quantum:65535\n");
  for (const char* text : {"0", "65536", "x", "", "-1", "1.5", "reg_quantum:8 hp_quantum:4",
                           "99999999999", "reg_quantum:", "5 5", "quantum:5"}) {
    const auto written = write_nrs_crrn_quantum(gate, text);
    ASSERT_FALSE(written) << text;
    EXPECT_EQ(written.error().code, std::errc::invalid_argument) << text;
  }
  EXPECT_EQ(write_nrs_crrn_quantum(gate, "99999999999999999999").error().code,
            std::errc::result_out_of_range);
  EXPECT_EQ(*read_nrs_crrn_quantum(gate), "reg_quantum:64   \nhp_quantum:65535\n");
  ASSERT_TRUE(write_nrs_policies(gate, "fifo hp"));
  EXPECT_EQ(*read_nrs_crrn_quantum(gate), "reg_quantum:64   \n");
  EXPECT_EQ(write_nrs_crrn_quantum(gate, "hp_quantum:5").error().code, std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(gate, "fifo"));
  ASSERT_TRUE(write_nrs_policies(gate, "crrn"));
  EXPECT_EQ(*read_nrs_crrn_quantum(gate), "reg_quantum:8    \nhp_quantum:8    \n");
}

TEST(NrsText, TheCommandsOfTheOriginalDesignWorkVerbatim) {
  Gate gate({});
  const Instant now = instant_at(0);
  for (const char* policy : {"tbf nid", "tbf reg nid", "tbf hp nid"}) {
    ASSERT_TRUE(write_nrs_policies(gate, policy)) << policy;
  }
  for (const char* rule :
       {"start loginnode {192.168.1.1@tcp} 10000",
        "start computenodes {192.168.1.[1-128]@tcp} 1000",
        "start other_clients {192.168.*.*@tcp} 100", "change loginnode 1000",
        "reg change loginnode 1000", "hp change loginnode 1000", "stop loginnode",
        "reg start loginnode {192.168.1.1@tcp} 10000", "hp start loginnode {192.168.1.1@tcp} 10000",
        "reg stop loginnode", "hp stop loginnode"}) {
    const auto written = write_nrs_tbf_rule(gate, rule, now);
    EXPECT_TRUE(written) << rule << ": " << written.error().message();
  }
}

TEST(NrsText, ListsRulesByteForByte) {
  Gate gate({});
  const Instant now = instant_at(0);
  EXPECT_EQ(read_nrs_tbf_rule(gate).error().code, std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(gate, "tbf jobid"));
  ASSERT_TRUE(write_nrs_tbf_rule(gate, "start dd jobid={dd.0} rate=100", now));
  ASSERT_TRUE(write_nrs_tbf_rule(gate, "hp stop dd", now));
  Request request;
  request.attributes.job = JobId("dd.0");
  gate.admit(request, Head::kRegular, now);
  EXPECT_EQ(*read_nrs_tbf_rule(gate),
            "regular_requests:\nCPT 0:\ndd jobid={dd.0} 100, ref 1\ndefault * 10000, ref 0\n"
            "high_priority_requests:\nCPT 0:\ndefault * 10000, ref 0\n");
  gate.withdraw(request, now);
  EXPECT_NE(read_nrs_policies(gate).find("  - name: tbf jobid\n    state: started\n"),
            std::string::npos);
}

TEST(NrsText, AFailedSwitchKeepsThePolicyAndItsRules) {
  Gate gate({});
  const Instant now = instant_at(0);
  ASSERT_TRUE(write_nrs_policies(gate, "tbf jobid"));
  ASSERT_TRUE(write_nrs_tbf_rule(gate, "start dd jobid={dd.0} rate=100", now));
  const std::string rules = *read_nrs_tbf_rule(gate);
  for (const char* bad : {"tbf abc", "tbf jobid\n", "tbf ", "tbf nid++uid", "tbf +nid"}) {
    EXPECT_EQ(write_nrs_policies(gate, bad).error().code, std::errc::invalid_argument) << bad;
    EXPECT_EQ(*read_nrs_tbf_rule(gate), rules) << bad;
  }
  ASSERT_TRUE(write_nrs_policies(gate, "tbf jobid"));
  EXPECT_EQ(*read_nrs_tbf_rule(gate), rules) << "the same type goes on";
  ASSERT_TRUE(write_nrs_policies(gate, "tbf nid"));
  EXPECT_NE(*read_nrs_tbf_rule(gate), rules);
}

TEST(NrsText, RuleCommandsWhereTbfDoesNotRun) {
  Gate gate({});
  const Instant now = instant_at(0);
  const auto code = [&](const char* text) {
    const auto written = write_nrs_tbf_rule(gate, text, now);
    return written ? std::errc{} : written.error().code;
  };
  EXPECT_EQ(code("start dd jobid={a} rate=1"), std::errc::invalid_argument);
  EXPECT_EQ(code("change dd rate=1"), std::errc::no_such_device);
  EXPECT_EQ(code("stop dd"), std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(gate, "tbf reg jobid"));
  EXPECT_EQ(code("start dd jobid={a} rate=1"), std::errc::invalid_argument);
  EXPECT_EQ(code("stop dd"), std::errc::no_such_device);
  EXPECT_EQ(code("reg start dd jobid={a} rate=1"), std::errc{});
  EXPECT_EQ(code("hp stop dd"), std::errc::no_such_device);
  ASSERT_TRUE(write_nrs_policies(gate, "tbf hp nid"));
  EXPECT_EQ(code("start both jobid={a} rate=1"), std::errc::invalid_argument);
  ASSERT_TRUE(write_nrs_policies(gate, "tbf hp jobid"));
  EXPECT_EQ(code("start dd jobid={a} rate=1"), std::errc::file_exists);
  EXPECT_EQ(gate.tbf(Head::kHigh)->rules(Head::kHigh).find("dd"), nullptr) << "nothing applied";
  EXPECT_EQ(code("start both jobid={a} rate=1"), std::errc{});
}

}  // namespace
}  // namespace weir
