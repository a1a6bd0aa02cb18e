// SPDX-License-Identifier: Apache-2.0
//
// Limits of a whole cluster on one of its servers: it passes what its slice allows and no more,
// however it starts and ends.
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/schedule/gate.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

struct Server {
  explicit Server(const std::string& rule, const RuleOptions& options = {.in_cluster = true})
      : gate({.slots = 1000, .rules = options}) {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
    EXPECT_TRUE(gate.write_rule(rule, at(0)));
  }
  ~Server() {
    for (Request& one : requests) {
      if (one.place() == Request::Place::kQueued) gate.withdraw(one, at(0));
    }
  }
  void slice(std::uint64_t per_second, std::int64_t ms) {
    const ClassSlice one{.rule = "wide",
                         .key = std::nullopt,
                         .slice = {.ops = Rate::per_second(per_second), .bytes = std::nullopt}};
    gate.engine(Head::kRegular)->set_slices({&one, 1}, at(ms));
  }
  void send(int count, std::int64_t ms, std::string_view job = "j") {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.job = JobId(job);
      gate.admit(request, Head::kRegular, at(ms));
    }
  }
  int served(std::int64_t ms) {
    int count = 0;
    for (;;) {
      const Decision decision = gate.next(at(ms));
      if (decision.kind() != Decision::Kind::kRun) return count;
      gate.complete(decision.request(), at(ms));
      ++count;
    }
  }

  Gate gate;
  std::deque<Request> requests;
};

TEST(TbfSlices, ARuleOfTheClusterWithoutASliceLetsNothingThrough) {
  Server server("start wide jobid={*} rate=1000 by=rule scope=cluster");
  server.send(10, 0);
  EXPECT_EQ(server.served(500), 0);
  EXPECT_EQ(server.served(1'000'000), 1) << "the least rate";
}

TEST(TbfSlices, WithoutAClusterTheLimitIsTheServersOwn) {
  Server server("start wide jobid={*} rate=1000 by=rule scope=cluster", {});
  server.send(100, 0);
  EXPECT_EQ(server.served(0), 10);
}

TEST(TbfSlices, ABucketStartsEmptyAndHoldsOneTokenAndTenMilliseconds) {
  Server server("start wide jobid={*} rate=1000 by=rule scope=cluster");
  server.slice(100, 0);
  server.send(100, 0);
  EXPECT_EQ(server.served(9), 0);
  EXPECT_EQ(server.served(10), 1);
  EXPECT_EQ(server.served(20), 1);
  EXPECT_EQ(server.served(10'000), 2);
}

// The bucket of a class that is created after its rule has the tokens since the rule was started.
TEST(TbfSlices, AClassThatComesLaterIsNotHeldUp) {
  Server server("start wide jobid={*} rate=1000 scope=cluster");
  server.slice(100, 0);
  server.send(3, 5000, "late");
  EXPECT_EQ(server.served(5000), 2);
}

TEST(TbfSlices, AllServersTogetherHoldTheBurstAndOneTokenEach) {
  int all = 0;
  for (const std::uint64_t slice : {1400U, 90U, 10U}) {
    Server server("start wide jobid={*} rate=1500 burst=15 by=rule scope=cluster");
    server.slice(slice, 0);
    server.send(100, 10'000);
    all += server.served(10'000);
  }
  EXPECT_EQ(all, 14 + 1 + 1);
}

TEST(TbfSlices, WhatASliceHeldGoesWithIt) {
  Server server("start wide jobid={*} rate=1500 burst=15 by=rule scope=cluster");
  server.slice(1500, 0);
  server.slice(1, 5000);
  server.send(100, 5000);
  EXPECT_EQ(server.served(5000), 1);
}

TEST(TbfSlices, StoppingARuleAndStartingItAgainHandsOutNothing) {
  Server server("start wide jobid={*} rate=1000 by=rule scope=cluster");
  server.slice(100, 0);
  server.send(100, 0);
  int served = 0;
  for (std::int64_t ms = 1; ms <= 1000; ++ms) {
    const std::vector<RuleChange> anew = {
        parse_rule("stop wide").value(),
        parse_rule("start wide jobid={*} rate=1000 by=rule scope=cluster").value()};
    ASSERT_TRUE(server.gate.apply_rules(anew, at(ms)));
    server.slice(100, ms);
    served += server.served(ms);
  }
  EXPECT_EQ(served, 0) << "no token has come in whole";
}

TEST(TbfSlices, LimitsOfTheClusterHoldWhileTheServerStops) {
  Server server("start wide jobid={*} rate=1000 by=rule scope=cluster");
  ASSERT_TRUE(server.gate.write_rule("start own jobid={own} rate=1", at(0)));
  server.slice(100, 0);
  server.send(50, 1000, "own");
  server.send(50, 1000, "other");
  const int before = server.served(1000);
  server.gate.shutdown(at(1000));
  EXPECT_EQ(before + server.served(1000), 50 + 2) << "its own limits are lifted";
  const Decision decision = server.gate.next(at(1000));
  EXPECT_EQ(decision.kind(), Decision::Kind::kWait);
  EXPECT_EQ(decision.until(), at(1010));
  int served = 0;
  for (std::int64_t ms = 1001; ms <= 1200; ++ms) served += server.served(ms);
  EXPECT_EQ(served, 20);
}

TEST(TbfSlices, APolicyThatIsReplacedIsDrainedAtOnce) {
  Server server("start wide jobid={*} rate=1000 by=rule scope=cluster");
  server.send(50, 0);
  ASSERT_TRUE(server.gate.start_policy("fifo", "", Heads::kBoth));
  EXPECT_EQ(server.served(1), 50);
}

}  // namespace
}  // namespace weir
