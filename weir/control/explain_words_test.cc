// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain_words.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weir::control {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMs = 1'000'000;

ServiceSnapshot service() {
  ServiceSnapshot one;
  one.name = "ost_io";
  one.now = instant_at(0) + milliseconds{28'700};
  one.capacity = 4000;
  one.capacity_unit = "operations";
  return one;
}

ClassSnapshot limited_class() {
  ClassSnapshot one{.rule = "dd",
                    .key = Attributes{}.only({}),
                    .by = {Field::kJobid},
                    .rate = 100,
                    .depth = 3,
                    .totals = {.served = 3490, .bytes = 14'300'000}};
  one.key.job = JobId("dd.0");
  return one;
}

FactSources sources() {
  return {.reason = "'jobid={dd.*}' matches",
          .policy = "tbf jobid",
          .limited_by = "dd/dd.0",
          .waiting = 12};
}

std::string line_of(const std::vector<Fact>& facts, std::string_view name) {
  for (const Fact& one : facts) {
    if (one.name == name) return one.text;
  }
  return "none";
}

TEST(ExplainWords, TheClassItsRuleAndItsLimits) {
  ClassSnapshot found = limited_class();
  std::vector<Fact> facts = facts_of(service(), found, sources());
  EXPECT_EQ(line_of(facts, "class"), "dd/dd.0 of service ost_io, policy tbf jobid");
  EXPECT_EQ(line_of(facts, "rule"), "dd: 'jobid={dd.*}' matches");
  EXPECT_EQ(line_of(facts, "limit"), "100 operations/s; 0 of 3 operations in the bucket");
  EXPECT_EQ(line_of(facts, "capacity"), "4,000 operations/s of service ost_io");
  EXPECT_EQ(line_of(facts, "served"), "3,490 requests, 14.3 MB; 12 waiting now");
  EXPECT_EQ(line_of(facts, "held by"), "none") << "it is its own bucket";
  EXPECT_EQ(line_of(facts, "reserved"), "none");
  EXPECT_EQ(line_of(facts, "delays"), "none");
  found.bps = 5'600'000;
  found.byte_depth = 65'536;
  found.reserve = 1'234'567;
  found.reserves_bytes = true;
  FactSources other = sources();
  other.limited_by = "cap/*";
  other.is_measured = false;
  facts = facts_of(service(), found, other);
  EXPECT_EQ(line_of(facts, "limit"),
            "100 operations/s; 0 of 3 operations in the bucket; and 5.6 MB/s; 0 B of 65.5 kB in "
            "the bucket");
  EXPECT_EQ(line_of(facts, "held by"), "the bucket of cap/*");
  EXPECT_EQ(line_of(facts, "reserved"), "1.23 MB/s, which go before requests of others");
  EXPECT_EQ(line_of(facts, "delays"), "not measured: too many queues are busy");
}

TEST(ExplainWords, AClassWithoutALimitIsNotSaidToBeFree) {
  ClassSnapshot found = limited_class();
  found.rate = 0;
  EXPECT_EQ(line_of(facts_of(service(), found, sources()), "limit"),
            "rule 'dd' sets none; other layers, the share and the capacity may");
}

TEST(ExplainWords, TheWaitOfTheWindow) {
  WaitSpan span{.requests = 36'000, .from = instant_at(0)};
  EXPECT_EQ(waited_words(service(), span), "last 28.7 s: 36,000 requests did not wait");
  span.delays[0] = 36'000 * 25 * kMs;
  EXPECT_EQ(waited_words(service(), span),
            "last 28.7 s: 36,000 requests waited 25.0 ms on average, because:");
  span.requests = 36'123;
  EXPECT_EQ(waited_words(service(), span),
            "last 28.7 s: 36,100 requests waited 24.9 ms on average, because:");
  span.requests = 0;
  EXPECT_EQ(waited_words(service(), span), "last 28.7 s: no requests");
  EXPECT_TRUE(cause_times(span).empty());
}

TEST(ExplainWords, CausesAndTheDeviceAddUpToWhatTheClientSees) {
  WaitSpan span{.requests = 10, .from = instant_at(0)};
  span.delays = {100 * kMs, 0, 0, 0, 50 * kMs};
  EXPECT_EQ(cause_times(span).size(), kDelays) << "the device has completed none";
  span.device = {20, 40 * kMs};
  const std::vector<CauseTime> causes = cause_times(span);
  ASSERT_EQ(causes.size(), kDelays + 2);
  EXPECT_EQ(causes[0].cause, "limit");
  EXPECT_EQ(causes[0].each, 10 * kMs);
  EXPECT_EQ(causes[0].total, 100 * kMs);
  const CauseTime& device = causes[kDelays];
  EXPECT_EQ(device.cause, "device");
  EXPECT_EQ(device.each, 2 * kMs);
  EXPECT_EQ(device.total, 40 * kMs);
  const CauseTime& all = causes.back();
  EXPECT_EQ(all.cause, "all");
  EXPECT_EQ(all.each, 17 * kMs);
  EXPECT_EQ(all.total, 190 * kMs);
}

TEST(ExplainWords, TheLargestRecordsAreShown) {
  ServiceSnapshot one = service();
  for (int i = 1; i <= 15; ++i) {
    one.jobs.push_back({.job = JobId("debtor." + std::to_string(i)), .record = -100 * i});
  }
  one.jobs.push_back({.job = JobId("lender"), .record = 12'345});
  one.jobs.push_back({.job = JobId("idle")});
  const auto debtors = largest_records(one, RecordSign::kOwes);
  ASSERT_EQ(debtors.size(), kRecordsShown);
  EXPECT_EQ(debtors.front()->job, JobId("debtor.15"));
  EXPECT_EQ(debtors.back()->job, JobId("debtor.6"));
  const auto lenders = largest_records(one, RecordSign::kIsOwed);
  EXPECT_EQ(record_words({debtors[0], debtors[1]}, lenders),
            (std::vector<std::string>{
                "the largest debts: debtor.15 (1,500 tokens), debtor.14 (1,400 tokens)",
                "the largest credits: lender (12,300 tokens)"}));
  EXPECT_TRUE(record_words({}, {}).empty());
}

}  // namespace
}  // namespace weir::control
