// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/service.h"

#include <utility>

#include <gtest/gtest.h>

#include "weir/classify/opcode.h"

namespace weir::serve {
namespace {

TEST(Jobs, AreLinesOfAJobAndItsNodes) {
  const auto jobs = parse_jobs("# site\nior.n1 4\n\n  dd.0\t16  # large\r\nior.n1 5");
  ASSERT_TRUE(jobs);
  EXPECT_EQ(*jobs, (JobTable{{"dd.0", 16}, {"ior.n1", 5}}));
  EXPECT_TRUE(parse_jobs("")->empty());
}

TEST(Jobs, TheLineThatIsWrongIsNamed) {
  for (const char* text : {"a", "a 0", "a -1", "a x", "a 1 2", "a 1.5", "a 18446744073709551615"}) {
    const auto jobs = parse_jobs("ok 1\n" + std::string(text));
    ASSERT_FALSE(jobs) << text;
    EXPECT_EQ(jobs.error().where, "line 2") << text;
  }
}

TEST(Jobs, WhatIsNoFileIsRefused) {
  EXPECT_EQ(read_jobs("/").error().code, std::errc::is_a_directory);
  EXPECT_EQ(read_jobs("/nonexistent").error().code, std::errc::no_such_file_or_directory);
}

TEST(Service, RulesMayNameNodemaps) {
  ServiceOptions options;
  options.policy = "tbf nodemap";
  options.rules = {parse_rule("start a nodemap={site} rate=5").value()};
  std::vector<NodemapOptions> nodemaps;
  EXPECT_FALSE(open_service(options, nodemaps, UnknownJobs::kOne, {}, instant_at(0)));
  nodemaps.push_back({"site", *NidList::parse("10.*.*.*@tcp")});
  EXPECT_TRUE(open_service(options, nodemaps, UnknownJobs::kOne, {}, instant_at(0)));
}

// Two clients with a backlog on a device with one slot, one after the other millisecond by
// millisecond: their groups take turns, in and out of a quiet phase.
TEST(Service, GroupsOfClientsTakeTurns) {
  GroupsOptions groups;
  groups.length = std::chrono::milliseconds{10};
  groups.groups = {{"a", *NidList::parse("10.0.0.1@tcp"), "10.0.0.1@tcp", std::nullopt},
                   {"b", *NidList::parse("10.0.0.2@tcp"), "10.0.0.2@tcp", std::nullopt}};
  for (const bool quiesce : {false, true}) {
    groups.quiesce = quiesce;
    ServiceOptions options;
    options.adaptive = Adaptive::kOff;
    options.slots = 1;
    const auto at = [](int ms) { return instant_at(0) + std::chrono::milliseconds{ms}; };
    const auto opened = open_service(options, {}, UnknownJobs::kOne, groups, at(0));
    ASSERT_TRUE(opened);
    Service& service = **opened;
    std::vector<Request> requests(200);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].attributes.nid = *parse_nid(i % 2 == 0 ? "10.0.0.1@tcp" : "10.0.0.2@tcp");
      service.target.admit(requests[i], Head::kRegular, at(0));
    }
    std::string served;
    for (int ms = 0; ms < 40; ++ms) {
      const Decision decision = service.next(at(ms));
      ASSERT_EQ(decision.kind(), Decision::Kind::kRun) << ms;
      served += decision.request().attributes.nid.low % 2 == 1 ? 'a' : 'b';
      service.target.complete(decision.request(), at(ms + 1));
    }
    // There were no requests when the first turn started, so it ends early, after a tenth.
    const std::string a(10, 'a'), b(10, 'b');
    EXPECT_EQ(served, "a" + a + b + a + std::string(9, 'b'));
    service.target.shutdown(at(40));
    for (;;) {
      const Decision decision = service.next(at(40));
      if (decision.kind() != Decision::Kind::kRun) break;
      service.target.complete(decision.request(), at(40));
    }
    EXPECT_TRUE(service.groups->epochs().is_over());
  }
}

// Other servers, which answer when the test lets them.
struct Others final : EpochHandler {
  void next_epoch(std::int64_t, EpochBytes handed_in, EpochCallback callback, Instant) override {
    data = std::move(handed_in);
    answer = std::move(callback);
  }
  void last_epoch(std::int64_t, Instant) override {}
  EpochBytes data;
  EpochCallback answer;
};

TEST(Service, AServiceInAClusterIsInStepThoughItHasNothingToDo) {
  GroupsOptions groups;
  groups.length = std::chrono::milliseconds{10};
  groups.groups = {{"a", *NidList::parse("10.0.0.1@tcp"), "10.0.0.1@tcp", std::nullopt}};
  const auto at = [](int ms) { return instant_at(0) + std::chrono::milliseconds{ms}; };
  const auto opened = open_service({}, {}, UnknownJobs::kOne, groups, at(0));
  ASSERT_TRUE(opened);
  Service& service = **opened;
  EXPECT_EQ(service.groups->next_wake(), kNever) << "alone and idle";
  Others others;
  service.groups->join(others, at(0));
  ASSERT_TRUE(others.answer) << "init calls next_epoch once";
  std::exchange(others.answer, {})(5, others.data, at(1));
  EXPECT_TRUE(service.groups->turns().is_in_step());
  EXPECT_EQ(service.next(at(2)).until(), at(11)) << "others wait for it when the turn has passed";
  (void)service.next(at(11));
  EXPECT_TRUE(others.answer);
  service.target.shutdown(at(12));
  (void)service.next(at(12));
  EXPECT_TRUE(service.groups->epochs().is_over());
}

// --classes also bounds the records of jobs.
TEST(Service, RecordsOfLendingAreKeptForAsManyJobsAsThereAreClasses) {
  ServiceOptions options;
  options.classes = 16;
  options.capacity = Capacity::ops(Rate::per_second(100'000));
  const auto opened = open_service(options, {}, UnknownJobs::kOne, {}, instant_at(0));
  ASSERT_TRUE(opened);
  Service& service = **opened;
  Instant now = instant_at(0);
  for (int job = 0; job < 100; ++job) {
    Request request;
    request.attributes.job = JobId("j." + std::to_string(job));
    service.target.admit(request, Head::kRegular, now);
    const Decision decision = service.next(now);
    ASSERT_EQ(decision.kind(), Decision::Kind::kRun) << job;
    service.target.complete(decision.request(), now);
    now += std::chrono::seconds{1};  // some periods
    (void)service.next(now);
  }
  ASSERT_NE(service.target.controller(), nullptr);
  EXPECT_EQ(service.target.controller()->ledger().accounts().size(), 16U);
  service.target.shutdown(now);
}

TEST(Service, PoliciesAndRulesAreTried) {
  ServeOptions options;
  ServiceOptions& service = options.services.emplace_back();
  service.rules = {parse_rule("start a jobid={x} rate=5").value()};
  EXPECT_TRUE(try_services(options));
  service.rules.push_back(parse_rule("start a jobid={y} rate=5").value());
  EXPECT_EQ(try_services(options).error().where, "rule 'start a jobid={y} rate=5'");
  service.rules.pop_back();
  service.policy = "fifo";
  EXPECT_FALSE(try_services(options));
  service.policy = "nonsense";
  EXPECT_EQ(try_services(options).error().where, "policy 'nonsense'");
}

TEST(Service, GroupsNeedAPolicyThatSupportsThem) {
  ServeOptions options;
  ServiceOptions& first = options.services.emplace_back();
  options.groups.groups.push_back({.name = "one",
                                   .nids = *NidList::parse("10.0.0.1@tcp"),
                                   .nids_text = "10.0.0.1@tcp",
                                   .length = {}});
  EXPECT_TRUE(try_services(options));
  first.policy = "crrn";
  const auto refused = try_services(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "groups: policy 'crrn' does not support groups of clients; use policy tbf, or remove "
            "the groups");
  options.services.emplace_back().name = "other";
  EXPECT_TRUE(try_services(options)) << "they take turns at the other service";
}

TEST(Service, TunablesOfThePolicyAreSetOrNamed) {
  ServiceOptions options;
  options.policy = "crrn";
  options.tunables = {"quantum=5"};
  const auto opened = open_service(options, {}, UnknownJobs::kOne, {}, instant_at(0));
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->target.policy(Head::kRegular).tunable("quantum"), 5U);
  EXPECT_EQ((*opened)->target.policy(Head::kHigh).tunable("quantum"), 5U);
  for (const char* const wrong : {"quantum=0", "quantum", "=5", "quantom=5", "quantum=5 6"}) {
    options.tunables = {wrong};
    const auto refused = open_service(options, {}, UnknownJobs::kOne, {}, instant_at(0));
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, std::errc::invalid_argument) << wrong;
    EXPECT_EQ(refused.error().where, "tunable '" + std::string(wrong) + "' of policy 'crrn'");
  }
}

TEST(Service, AMistakeNamesThePolicyOrTheRule) {
  ServiceOptions options;
  options.policy = "nonsense";
  EXPECT_EQ(open_service(options, {}, UnknownJobs::kOne, {}, instant_at(0)).error().where,
            "policy 'nonsense'");
  options.policy = "tbf jobid";
  options.rules = {start_of({.name = "a", .conds = "jobid={x}", .keys = {.rate = 0}})};
  const auto refused = open_service(options, {}, UnknownJobs::kOne, {}, instant_at(0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where.rfind("rule 'start a jobid={x} rate=0'", 0), 0U)
      << refused.error().where;
}

}  // namespace
}  // namespace weir::serve
