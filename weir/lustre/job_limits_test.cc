// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/job_limits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/coordinate/slices.h"

namespace weir::lustre {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::milliseconds{20};

std::optional<Rate> rate_of(std::int64_t milli) {
  return Rate(Tokens{static_cast<std::uint64_t>(milli)}, std::chrono::seconds{kMilli});
}

// A server that serves jobs as much as their rules allow, `yield` percent of it, or what they want.
class Server {
 public:
  explicit Server(JobLimits::Options options = {}) : limits(options) { limits.set_members(8); }

  Result<void> start(std::string_view text) {
    const auto change = parse_rule(text);
    EXPECT_TRUE(change.has_value());
    return limits.apply_rules({&*change, 1}, now);
  }
  void slice(std::string_view rule, const Attributes& key, std::int64_t ops,
             std::int64_t bytes = 0) {
    const ClassSlice one{.rule = rule,
                         .key = key,
                         .slice = {.ops = ops > 0 ? rate_of(ops * kMilli) : std::nullopt,
                                   .bytes = bytes > 0 ? rate_of(bytes * kMilli) : std::nullopt}};
    limits.set_slices({&one, 1}, now);
  }
  // Requests a second that a job has to send.
  void want(const char* job, std::uint64_t ops, std::uint64_t size = 4096) {
    wants_[JobId(job)] = {ops, size};
  }

  void run(Nanoseconds time) {
    for (const Instant end = now + time; now < end;) {
      now += kPeriod;
      std::vector<ServedByJob> served;
      for (auto& [job, want] : wants_) {
        std::uint64_t per_second = want.ops;
        const auto cap = limits.caps().find(job);
        if (cap != limits.caps().end()) {
          per_second = std::min(per_second, cap->second.rate * yield / 100);
        }
        want.rest += per_second * static_cast<std::uint64_t>(kPeriod.count());
        const std::uint64_t requests = want.rest / 1'000'000'000;
        want.rest %= 1'000'000'000;
        if (requests > 0) served.push_back({job, requests, requests * want.size});
        totals[job] += requests;
      }
      limits.count(served, now);
    }
  }
  // Served a second, after it has settled.
  std::uint64_t settled(const char* job, Nanoseconds time = std::chrono::seconds{5}) {
    run(std::chrono::seconds{2});
    const std::uint64_t before = totals[JobId(job)];
    run(time);
    return (totals[JobId(job)] - before) * 1'000'000'000 / static_cast<std::uint64_t>(time.count());
  }
  SlicedLoad::Demand demand(std::string_view rule) const {
    for (const SlicedLoad& load : limits.loads(kPeriod)) {
      if (load.rule == rule && load.demand) return *load.demand;
    }
    return {};
  }

  JobLimits limits;
  Instant now{};
  std::uint64_t yield = 100;
  std::map<JobId, std::uint64_t> totals;

 private:
  struct Want {
    std::uint64_t ops = 0;
    std::uint64_t size = 0;
    std::uint64_t rest = 0;
  };
  std::map<JobId, Want> wants_;
};

Attributes job_key(const char* job) {
  Attributes key;
  key.job = JobId(job);
  return key.only({Field::kJobid});
}

bool within(std::uint64_t value, std::uint64_t due, std::uint64_t percent) {
  return value * 100 >= due * (100 - percent) && value * 100 <= due * (100 + percent);
}

TEST(JobLimits, AJobGetsTheSliceOfItsClass) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big.*} rate=1000 scope=cluster"));
  server.want("big.1", 5000);
  server.want("other", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big.1"), 300);
  const std::uint64_t served = server.settled("big.1");
  EXPECT_TRUE(within(served, 300, 1)) << served;
  EXPECT_FALSE(server.limits.caps().contains(JobId("other")));
  EXPECT_EQ(server.limits.caps().at(JobId("big.1")).rule, "wide");
}

// A rule gives less than its rate where timers are late, and more on several CPTs.
TEST(JobLimits, AreExactWhateverARuleGives) {
  for (const std::uint64_t yield : {60U, 91U, 130U, 200U}) {
    Server server({.cpts = 2});
    server.yield = yield;
    ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
    server.want("big", 5000);
    server.run(kPeriod);
    server.slice("wide", job_key("big"), 400);
    const std::uint64_t served = server.settled("big");
    EXPECT_TRUE(within(served, 400, 1)) << served << " with " << yield;
  }
}

TEST(JobLimits, JobsOfOneUserShareItsSlice) {
  Server server({.facts = *JobFacts::parse("%e.%u", "")});
  ASSERT_TRUE(server.start("start users uid={500} rate=1000 by=uid scope=cluster"));
  server.want("dd.500", 5000);
  server.want("cp.500", 50);
  server.want("tar.500", 5000);
  server.want("dd.501", 777);
  server.run(kPeriod);
  Attributes key;
  key.uid = 500;
  server.slice("users", key.only({Field::kUid}), 400);
  server.run(std::chrono::seconds{2});
  const auto before = server.totals;
  server.run(std::chrono::seconds{5});
  const auto rate = [&](const char* job) {
    return (server.totals[JobId(job)] - before.at(JobId(job))) / 5;
  };
  EXPECT_TRUE(within(rate("dd.500") + rate("cp.500") + rate("tar.500"), 400, 2));
  EXPECT_EQ(rate("cp.500"), 50U);  // it uses less than the others
  EXPECT_TRUE(within(rate("dd.500"), rate("tar.500"), 5));
  EXPECT_EQ(rate("dd.501"), 777U);
}

TEST(JobLimits, AWholeRuleIsOneClass) {
  Server server;
  ASSERT_TRUE(server.start("start all jobid={*} rate=1000 by=rule scope=cluster"));
  ASSERT_EQ(server.limits.sliced_rules().size(), 1U);
  EXPECT_TRUE(server.limits.sliced_rules().front().by.empty());
  server.want("a", 5000);
  server.want("b", 5000);
  server.run(kPeriod);
  const ClassSlice one{
      .rule = "all", .key = std::nullopt, .slice = {.ops = rate_of(200 * kMilli), .bytes = {}}};
  server.limits.set_slices({&one, 1}, server.now);
  server.run(std::chrono::seconds{2});
  const auto before = server.totals;
  server.run(std::chrono::seconds{5});
  const std::uint64_t sum = server.totals[JobId("a")] - before.at(JobId("a")) +
                            server.totals[JobId("b")] - before.at(JobId("b"));
  EXPECT_TRUE(within(sum / 5, 200, 2)) << sum;
}

TEST(JobLimits, BytesAreLimitedByTheSizeOfRequests) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} bps=1GiB scope=cluster"));
  server.want("big", 5000, std::uint64_t{4} << 20);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 0, std::int64_t{200} << 20);
  server.run(std::chrono::seconds{3});  // what it was served before that is paid back
  const std::uint64_t served = server.settled("big");
  EXPECT_TRUE(within(served * 4, 200, 2)) << served;
  EXPECT_TRUE(server.limits.caps().at(JobId("big")).is_bytes);
}

TEST(JobLimits, TheLowestOfSeveralLimitsHolds) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  ASSERT_TRUE(server.start("start all jobid={*} rate=1000 by=rule layer=1 scope=cluster"));
  server.want("big", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 300);
  const ClassSlice one{
      .rule = "all", .key = std::nullopt, .slice = {.ops = rate_of(120 * kMilli), .bytes = {}}};
  server.limits.set_slices({&one, 1}, server.now);
  EXPECT_TRUE(within(server.settled("big"), 120, 2));
}

// What a class exceeds its slice by, it pays back; what it does not use is not kept.
TEST(JobLimits, DebtsArePaidAndCreditIsNotKept) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 50);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 300);
  server.run(std::chrono::seconds{20});
  server.want("big", 5000);
  const std::uint64_t before = server.totals[JobId("big")];
  server.run(std::chrono::seconds{5});
  EXPECT_TRUE(within(server.totals[JobId("big")] - before, 1500, 2))
      << server.totals[JobId("big")] - before;
}

TEST(JobLimits, ABackloggedClassAsksForMoreThanItHasAndOthersForWhatTheyUse) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big.*} rate=1000 scope=cluster"));
  server.want("big.1", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big.1"), 300);
  server.run(std::chrono::seconds{2});
  EXPECT_GT(server.demand("wide").ops, 400 * kMilli);
  server.want("big.1", 100);
  server.run(std::chrono::seconds{2});
  EXPECT_LT(server.demand("wide").ops, 200 * kMilli);
  EXPECT_GT(server.demand("wide").ops, 100 * kMilli);
  server.want("big.1", 0);
  server.run(std::chrono::seconds{1});
  EXPECT_EQ(server.demand("wide").ops, 0);
}

// The job went to another server, which pays with what this one asks for and does not use.
TEST(JobLimits, AClassThatOwesAsksForWhatItOwes) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 5000);
  server.run(kPeriod);  // 100 requests at once, since there is no rule yet
  server.slice("wide", job_key("big"), 100);
  server.want("big", 0);
  server.run(std::chrono::milliseconds{100});
  const std::int64_t asked = server.demand("wide").ops;
  EXPECT_GT(asked, 200 * kMilli);  // about 90 requests in 0.4 s
  EXPECT_LT(asked, 260 * kMilli);
  server.run(std::chrono::milliseconds{500});
  EXPECT_LT(server.demand("wide").ops, asked / 2);
  server.run(std::chrono::seconds{1});
  EXPECT_EQ(server.demand("wide").ops, 0);
}

// Its rule would have given it 8 requests: that it got none is no chance.
TEST(JobLimits, AJobThatStopsAsksForNothingAtOnce) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 400);
  server.run(std::chrono::seconds{5});
  EXPECT_GT(server.demand("wide").ops, 500 * kMilli);
  server.want("big", 0);
  server.run(2 * kPeriod);
  EXPECT_LT(server.demand("wide").ops, 20 * kMilli);  // what it may owe
}

// Slices would follow the account, the rate would follow the slice, and each change gives tokens.
TEST(JobLimits, AClassThatPaysBackAsksForNoLess) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 5000);
  server.run(10 * kPeriod);
  server.slice("wide", job_key("big"), 400);
  server.run(10 * kPeriod);
  EXPECT_LT(server.limits.caps().at(JobId("big")).rate, 300U);
  EXPECT_EQ(server.demand("wide").ops, (400 * 3 / 2 + 20) * kMilli);
}

// On each CPT the class takes its tokens by its own timer, so that a short time shows a few less.
TEST(JobLimits, OneRequestLessOnEachCptIsNoSign) {
  Server server({.cpts = 4});
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.yield = 390;
  server.want("big", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 125);
  server.run(std::chrono::seconds{4});
  std::int64_t least = INT64_MAX;
  for (int i = 0; i < 200; ++i) {
    server.yield = i / 13 % 4 == 0 ? 290 : 390;  // now and then timers are late for a while
    server.run(kPeriod);
    least = std::min(least, server.demand("wide").ops);
  }
  EXPECT_GE(least, (125 * 3 / 2 + 20) * kMilli);  // backlogged all the time
}

TEST(JobLimits, AJobThatStartsDoesNotWaitForASlice) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 5);
  server.run(std::chrono::seconds{1});
  server.slice("wide", job_key("big"), 12);
  server.run(std::chrono::seconds{1});
  EXPECT_EQ(server.limits.caps().at(JobId("big")).rate, 250U);
}

TEST(JobLimits, RatesAreWrittenAFewTimesASecond) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 300);
  server.run(std::chrono::seconds{3});
  std::uint32_t last = 0;
  int writes = 0;
  for (int rounds = 0; rounds < 500; ++rounds) {
    server.slice("wide", job_key("big"), 300 + rounds % 7);  // slices move a little all the time
    server.run(kPeriod);
    const std::uint32_t now = server.limits.caps().at(JobId("big")).rate;
    writes += std::exchange(last, now) != now;
  }
  EXPECT_LE(writes, 30);  // in 10 s
}

TEST(JobLimits, IdleJobsHaveNoCap) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big*} rate=1000 scope=cluster"));
  server.want("big", 500);
  server.run(std::chrono::seconds{1});
  EXPECT_EQ(server.limits.caps().size(), 1U);
  server.want("big", 0);
  server.run(JobLimits::kIdleMax + std::chrono::seconds{1});
  EXPECT_TRUE(server.limits.caps().empty());
}

TEST(JobLimits, AStoppedLimitHoldsNobody) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 500);
  server.run(std::chrono::seconds{1});
  ASSERT_TRUE(server.start("stop wide"));
  EXPECT_TRUE(server.limits.caps().empty());
  EXPECT_TRUE(server.limits.is_empty());
  EXPECT_TRUE(server.limits.loads(kPeriod).empty());
  server.run(std::chrono::seconds{1});
  EXPECT_TRUE(server.limits.caps().empty());
}

TEST(JobLimits, JobsBeyondTheBoundAreCounted) {
  Server server;
  ASSERT_TRUE(server.start("start each jobid={*} rate=1000 scope=cluster"));
  for (std::size_t i = 0; i < JobLimits::kJobsMax + 5; ++i) {
    server.want(fmt::format("job{}", i).c_str(), 100);
  }
  server.want("not, expressible", 100);
  server.run(std::chrono::seconds{1});
  EXPECT_EQ(server.limits.caps().size(), JobLimits::kJobsMax);
  EXPECT_EQ(server.limits.unlimited(), 6U);
}

TEST(JobLimits, ALongGapIsNotChargedTwice) {
  Server server;
  ASSERT_TRUE(server.start("start wide jobid={big} rate=1000 scope=cluster"));
  server.want("big", 5000);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 300);
  server.run(std::chrono::seconds{3});
  server.now += std::chrono::hours{1};
  server.limits.skip(server.now);
  server.run(kPeriod);
  server.slice("wide", job_key("big"), 300);
  server.run(std::chrono::seconds{1});
  EXPECT_TRUE(within(server.settled("big"), 300, 1));
}

TEST(JobLimits, RefuseWhatALustreServerCannotFollow) {
  Server server;
  const auto refused = [&](const char* text, const char* with) {
    const auto done = server.start(text);
    EXPECT_FALSE(done.has_value()) << text;
    if (done) return;
    EXPECT_NE(done.error().message().find(with), std::string::npos) << done.error().message();
  };
  refused("start a uid={500} rate=5 scope=cluster", "uses uid");
  refused("start a uid={500} rate=5 scope=cluster", "%u");
  refused("start a jobid={a} rate=5 by=nid scope=cluster", "--job-facts");
  refused("start a opcode={ost_read} rate=5 scope=cluster", "uses opcode");
  refused("start a export={/home} rate=5 scope=cluster", "uses export");
  refused("start a jobid={a} rate=5 by=subnet/24 scope=cluster", "uses subnet");
  refused("start a jobid={a} rate=5 burst=9 scope=cluster", "cannot follow");
  refused("start a jobid={a} rate=5 cost=bytes scope=cluster", "cannot follow");
  refused("change a rate=5", "no rule named");
  EXPECT_TRUE(server.limits.is_empty());
}

TEST(JobLimits, CommandsApplyTogetherOrNotAtAll) {
  Server server;
  const std::vector<RuleChange> changes = {*parse_rule("start a jobid={a} rate=5 scope=cluster"),
                                           *parse_rule("change b rate=5")};
  EXPECT_FALSE(server.limits.apply_rules(changes, server.now));
  EXPECT_TRUE(server.limits.is_empty());
}

// Any observation: no overflow, no assertion.
TEST(JobLimits, SurviveAbsurdCounters) {
  Server server({.cpts = 64});
  ASSERT_TRUE(server.start("start a jobid={a} rate=999999 bps=1TB scope=cluster"));
  for (int i = 0; i < 50; ++i) {
    const ServedByJob one{JobId("a"), UINT64_MAX, UINT64_MAX};
    server.limits.count({&one, 1}, server.now);
    server.slice("a", job_key("a"), i % 2 == 0 ? kSliceLimitMax / kMilli : 1, 1);
    server.now += i % 3 == 0 ? Nanoseconds{0} : Nanoseconds(std::chrono::hours{i});
  }
  EXPECT_GE(server.limits.caps().at(JobId("a")).rate, 1U);
}

}  // namespace
}  // namespace weir::lustre
