// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart = instant_at(7'000'000'000);

// A Gate under shares with an unlimited number of slots, and the requests that ran.
class Shared {
 public:
  explicit Shared(bool lending = true, Cost cost = {})
      : gate({.slots = 10'000, .rules = {.sharing = Sharing{.cost = cost, .lending = lending}}}) {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  }
  ~Shared() {
    gate.shutdown(now);
    for (;;) {
      const Decision decision = gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) break;
    }
    for (Request& request : requests) {
      if (request.place() == Request::Place::kRunning) gate.complete(request, now);
    }
  }

  RuleEngine& tbf() { return *gate.engine(Head::kRegular); }
  void share(const std::string& job, std::optional<std::uint64_t> rate, std::uint64_t nodes = 1,
             std::uint64_t depth = 8) {
    std::optional<Rate> per_second;
    if (rate) per_second = Rate::per_second(*rate);
    tbf().set_share(JobId(job), per_second, Tokens{depth}, nodes, now);
  }
  void root(std::uint64_t rate, std::uint64_t rested, std::uint64_t busy) {
    const Rate per_second = Rate::per_second(rate);
    gate.set_root(RootBucket{.rested = BucketShape(per_second, Tokens{rested}),
                             .busy = BucketShape(per_second, Tokens{busy})},
                  now);
  }
  void send(const std::string& job, int count, Head head = Head::kRegular) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.job = JobId(job);
      request.bytes = Bytes{4096};
      gate.admit(request, head, now);
    }
  }
  // Runs up to `most` requests; returns their jobs, in order.
  std::string run(int most = 1'000'000) {
    std::string order;
    while (most-- > 0) {
      const Decision decision = gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) break;
      order += decision.request().attributes.job.text();
      gate.complete(decision.request(), now);
    }
    return order;
  }
  static std::size_t count(const std::string& order, char job) {
    return static_cast<std::size_t>(std::count(order.begin(), order.end(), job));
  }
  ShareReport report(const std::string& job, Nanoseconds time = milliseconds{20}) {
    ShareReport found;
    tbf().report_shares(time, now, [&](const ShareReport& share) {
      if (share.job == JobId(job)) found = share;
    });
    return found;
  }

  Instant now = kStart;
  std::deque<Request> requests;
  Gate gate;
};

TEST(TbfShares, TheReadyGoByNodes) {
  Shared shared;
  shared.share("a", std::nullopt, 1);
  shared.share("b", std::nullopt, 3);
  shared.send("a", 400);
  shared.send("b", 400);
  const std::string order = shared.run(400);
  EXPECT_EQ(Shared::count(order, 'a'), 100U);
  EXPECT_EQ(Shared::count(order, 'b'), 300U);
}

// Several queues of one job do not get more weight, and are served in the order of their first
// requests.
TEST(TbfShares, MoreQueuesBuyNoWeight) {
  Shared shared;
  ASSERT_TRUE(shared.gate.write_rule("start r jobid={zzz} by=jobid+uid", shared.now));
  shared.share("a", std::nullopt);
  shared.share("b", std::nullopt);
  for (int i = 0; i < 300; ++i) {
    shared.send("a", 1);
    Request& request = shared.requests.emplace_back();
    request.attributes.job = JobId("b");
    request.attributes.uid = static_cast<std::uint32_t>(i % 3);
    shared.gate.admit(request, Head::kRegular, shared.now);
  }
  std::string users;
  std::string order;
  for (int i = 0; i < 300; ++i) {
    Request& request = shared.gate.next(shared.now).request();
    order += request.attributes.job.text();
    if (order.back() == 'b') users += static_cast<char>('0' + request.attributes.uid);
    shared.gate.complete(request, shared.now);
  }
  EXPECT_EQ(Shared::count(order, 'b'), 150U);
  EXPECT_EQ(users.substr(0, 9), "012012012");
}

TEST(TbfShares, AShareHoldsAndAFreeSlotLendsWhatNobodyUses) {
  Shared without(false);
  without.share("a", 100);
  without.send("a", 50);
  EXPECT_EQ(without.run().size(), 8U);  // its depth
  without.now += milliseconds{100};
  EXPECT_EQ(without.run().size(), 8U);

  Shared with(true);
  with.share("a", 100);
  with.send("a", 50);
  EXPECT_EQ(with.run().size(), 50U);
  EXPECT_EQ(with.report("a").borrowed, Tokens{42});
  EXPECT_EQ(with.report("a").borrowed, Tokens{0});
}

TEST(TbfShares, WhoHasBorrowedLeastForItsWeightIsNext) {
  Shared shared;
  shared.share("a", 1, 1, 1);
  shared.share("b", 1, 3, 1);
  shared.send("a", 400);
  shared.send("b", 400);
  const std::string order = shared.run(402);  // one of each is paid from its own share
  EXPECT_EQ(shared.report("b").borrowed, Tokens{300});
  EXPECT_EQ(Shared::count(order, 'a'), 101U);
}

TEST(TbfShares, NobodyBorrowsWhileSomebodyIsReady) {
  Shared shared;
  shared.share("a", 1, 1, 1);
  shared.share("b", 1000, 1, 50);
  shared.send("a", 10);
  shared.send("b", 50);
  const std::string order = shared.run(51);
  EXPECT_EQ(Shared::count(order, 'a'), 1U);
}

TEST(TbfShares, HighPriorityBorrowsFirst) {
  Shared shared;
  shared.share("a", 1, 1, 1);
  shared.share("b", 1, 1, 1);
  shared.send("a", 1);
  shared.send("b", 1, Head::kHigh);
  EXPECT_EQ(shared.run(2).size(), 2U);  // both shares are used up
  shared.send("a", 1);
  shared.send("b", 1, Head::kHigh);
  EXPECT_EQ(shared.run(1), "b");
}

TEST(TbfShares, ALimitIsNeverBorrowedPast) {
  Shared shared;
  ASSERT_TRUE(shared.gate.write_rule("start slow jobid={a} rate=10 burst=2", shared.now));
  shared.share("a", 1000);
  shared.send("a", 20);
  EXPECT_EQ(shared.run().size(), 2U);
  EXPECT_EQ(shared.gate.next(shared.now).until(), shared.now + milliseconds{100});
  EXPECT_EQ(shared.report("a").borrowed, Tokens{0});
  EXPECT_EQ(shared.report("a", seconds{1}).limit, Tokens{10});
}

TEST(TbfShares, ABucketOfSeveralQueuesCountsOnceInTheLimit) {
  Shared shared;
  ASSERT_TRUE(shared.gate.write_rule("start all jobid={*} rate=10 by=rule", shared.now));
  ASSERT_TRUE(shared.gate.write_rule("start uid jobid={zzz} by=jobid+uid", shared.now));
  shared.share("a", 1000);
  for (std::uint32_t user = 0; user < 3; ++user) {
    Request& request = shared.requests.emplace_back();
    request.attributes.job = JobId("a");
    request.attributes.uid = user;
    shared.gate.admit(request, Head::kRegular, shared.now);
  }
  EXPECT_EQ(shared.report("a", seconds{1}).limit, Tokens{10});
}

TEST(TbfShares, TheDefaultRuleLimitsNobodyUntilItIsChanged) {
  Shared shared;
  shared.share("a", std::nullopt);
  shared.send("a", 5000);
  EXPECT_EQ(shared.run().size(), 5000U);
  ASSERT_TRUE(shared.gate.write_rule("change default rate=10", shared.now));
  shared.send("a", 5000);
  EXPECT_EQ(shared.run().size(), 3U);
}

TEST(TbfShares, TheRootIsAskedLastAndPaysForLoansToo) {
  Shared shared;
  shared.root(100, 20, 20);
  shared.share("a", 10, 1, 8);
  shared.send("a", 100);
  EXPECT_EQ(shared.run().size(), 20U);
  const Decision decision = shared.gate.next(shared.now);
  ASSERT_EQ(decision.kind(), Decision::Kind::kWait);
  EXPECT_EQ(decision.until(), shared.now + milliseconds{10});
  shared.now += milliseconds{10};
  EXPECT_EQ(shared.run().size(), 1U);
}

TEST(TbfShares, TheRootPaysForWhoHasNoShareToo) {
  Shared shared;
  shared.root(100, 20, 20);
  ASSERT_TRUE(shared.gate.write_rule("start l jobid={l} rate=1000 burst=100", shared.now));
  shared.send("n", 100);
  EXPECT_EQ(shared.run().size(), 20U);
  EXPECT_EQ(shared.gate.next(shared.now).until(), shared.now + milliseconds{10});
  shared.now += milliseconds{30};
  shared.send("l", 100);
  EXPECT_EQ(shared.run(), "lll");
}

// A device that was too slow for a while may catch up; one that had no requests may not.
TEST(TbfShares, TheRootHoldsMoreWhileSomebodyWaitsForTheDevice) {
  Shared shared;
  shared.root(100, 10, 50);
  shared.share("a", 100, 1, 8);
  shared.send("a", 75);
  EXPECT_EQ(shared.run(10).size(), 10U);  // the device takes no more
  shared.now += seconds{1};
  EXPECT_EQ(shared.run().size(), 50U);
  shared.now += milliseconds{150};
  EXPECT_EQ(shared.run().size(), 15U);  // all remaining ones
  shared.now += seconds{1};
  shared.send("a", 75);
  EXPECT_EQ(shared.run().size(), 10U);
}

TEST(TbfShares, WaitingForALimitDoesNotFillTheRoot) {
  Shared shared;
  shared.root(100, 10, 50);
  ASSERT_TRUE(shared.gate.write_rule("start slow jobid={a} rate=1 burst=1", shared.now));
  shared.share("a", 100, 1, 8);
  shared.share("b", 100, 1, 8);
  shared.send("a", 100);
  EXPECT_EQ(shared.run(), "a");
  shared.now += milliseconds{900};
  EXPECT_EQ(shared.run(), "");
  shared.send("b", 100);
  EXPECT_EQ(shared.run(), "bbbbbbbbbb");
}

// Tokens that spill while a job has no requests are lent; tokens that spill while it has some
// belong to no job.
TEST(TbfShares, OnlyTheIdleLend) {
  Shared shared;
  shared.share("a", 100, 1, 10);
  shared.now += seconds{1};
  EXPECT_EQ(shared.report("a").lent, Tokens{100});
  shared.share("a", 1000, 1, 10);
  ASSERT_TRUE(shared.gate.write_rule("start slow jobid={a} rate=1 burst=1", shared.now));
  shared.send("a", 3);
  shared.run();
  shared.now += milliseconds{900};
  EXPECT_EQ(shared.report("a").lent, Tokens{0});
}

// Lent tokens are collected only by a report; without one the count saturates.
TEST(TbfShares, WhatTheIdleLendInMonthsDoesNotWrap) {
  Shared shared;
  shared.share("a", 1'000'000'000'000, 1, 10);
  for (int i = 0; i < 2; ++i) {
    shared.now += std::chrono::hours{5000};  // 1.8e19 tokens, nearly 2^64
    shared.send("a", 1);
    shared.run();
  }
  EXPECT_EQ(shared.report("a").lent, Tokens{UINT64_MAX});
}

TEST(TbfShares, AnotherRateKeepsTheBalanceAndActsAtOnce) {
  Shared shared(false);
  shared.share("a", 1, 1, 8);
  shared.send("a", 20);
  EXPECT_EQ(shared.run().size(), 8U);
  EXPECT_EQ(shared.gate.next(shared.now).until(), shared.now + seconds{1});
  shared.share("a", 1000, 1, 8);
  EXPECT_EQ(shared.gate.next(shared.now).until(), shared.now + milliseconds{1});
}

TEST(TbfShares, WhoHasNeitherShareNorLimitRunsWhenNothingElseDoes) {
  Shared shared(false);
  shared.send("n", 3);
  shared.share("a", 100);
  shared.send("a", 8);
  EXPECT_EQ(shared.run(), "aaaaaaaannn");
  shared.send("n", 2);
  shared.share("n", 1, 1, 1);  // now it has a share
  EXPECT_EQ(shared.run(), "n");
  shared.tbf().drop_share(JobId("n"), shared.now);
  EXPECT_EQ(shared.run(), "n");
}

TEST(TbfShares, BytesMayBeWhatIsShared) {
  Shared shared(false, Cost::bytes());
  shared.share("a", 4096, 1, 8192);
  shared.send("a", 10);
  EXPECT_EQ(shared.run().size(), 2U);
  shared.now += seconds{3};
  EXPECT_EQ(shared.run().size(), 2U);  // its depth
}

// Requests wait in all places while shares are set and dropped.
TEST(TbfShares, NothingIsLostWhileSharesComeAndGo) {
  Rng rng(1);
  for (const bool lending : {true, false}) {
    Shared shared(lending);
    ASSERT_TRUE(shared.gate.write_rule("start r jobid={c} rate=200 by=rule", shared.now));
    std::size_t sent = 0;
    std::size_t ran = 0;
    for (int step = 0; step < 3000; ++step) {
      const std::string job(1, static_cast<char>('a' + rng.below(5)));
      switch (rng.below(6)) {
        case 0:
          shared.share(job, 1 + rng.below(500), 1 + rng.below(9), 1 + rng.below(10));
          break;
        case 1:
          shared.share(job, std::nullopt, 1 + rng.below(9));
          break;
        case 2:
          shared.tbf().drop_share(JobId(job), shared.now);
          break;
        case 3:
          shared.report(job);
          break;
        default:
          shared.send(job, 3, rng.chance(1, 5) ? Head::kHigh : Head::kRegular);
          sent += 3;
      }
      ran += shared.run(static_cast<int>(rng.below(6))).size();
      shared.now += Nanoseconds{rng.between(0, 20'000'000)};
    }
    for (int second = 0; second < 100; ++second) {
      shared.now += seconds{100};
      ran += shared.run().size();
    }
    EXPECT_EQ(ran, sent);
  }
}

}  // namespace
}  // namespace weir
