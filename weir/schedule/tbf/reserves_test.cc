// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/reserves.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/rule_engine.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart = instant_at(7'000'000'000);

// A Gate with rules by job, and the requests that ran.
class Reserved {
 public:
  explicit Reserved(bool shares = true, std::uint32_t slots = 10'000)
      : gate({.slots = slots,
              .rules = {.sharing = shares ? std::optional<Sharing>(Sharing{}) : std::nullopt}}) {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  }
  ~Reserved() {
    gate.shutdown(now);
    run();
  }

  RuleEngine& tbf() { return *gate.engine(Head::kRegular); }
  void rule(const std::string& text) {
    const auto done = gate.write_rule(text, now);
    ASSERT_TRUE(done) << text << ": " << done.error().message();
  }
  void share(const std::string& job, std::optional<std::uint64_t> rate, std::uint64_t nodes = 1) {
    std::optional<Rate> per_second;
    if (rate) per_second = Rate::per_second(*rate);
    tbf().set_share(JobId(job), per_second, Tokens{8}, nodes, now);
  }
  // A root that is empty from now on.
  void empty_root(std::uint64_t rate) {
    share("taker", 1000);
    const BucketShape shape(Rate::per_second(rate), Tokens{1});
    gate.set_root(RootBucket{.rested = shape, .busy = shape}, now);
    send("taker", 1);
    EXPECT_EQ(run(1), "taker");
  }
  Request& send(const std::string& job, int count, Head head = Head::kRegular,
                Bytes size = Bytes{4096}) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.job = JobId(job);
      request.bytes = size;
      gate.admit(request, head, now);
    }
    return requests.back();
  }
  // Runs up to `most` requests and completes them at once; returns their jobs, in order.
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
  // The same after each of several steps of time.
  std::string pass(int steps, Nanoseconds step, int most = 1'000'000) {
    std::string order;
    for (int i = 0; i < steps; ++i) {
      now += step;
      order += run(most);
    }
    return order;
  }
  static std::size_t count(const std::string& order, char job) {
    return static_cast<std::size_t>(std::count(order.begin(), order.end(), job));
  }

  Instant now = kStart;
  std::deque<Request> requests;
  Gate gate;
};

TEST(TbfReserves, RunWhileRootAndShareAreEmpty) {
  Reserved gate;
  gate.rule("start r jobid={a} reserve=100");
  gate.share("a", 1);
  gate.empty_root(10);
  gate.send("a", 1000);
  EXPECT_EQ(gate.run(), "a") << "one token after a pause: 10 ms of 100 a second";
  // Exactly 10 ms each, although the root has a debt of more and more.
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(gate.gate.next(gate.now).until(), gate.now + milliseconds{10});
    gate.now += milliseconds{10};
    EXPECT_EQ(gate.run(), "a");
  }
}

TEST(TbfReserves, GoBeforeOthersThatAreReadyAndAfterHighPriority) {
  Reserved gate;
  gate.rule("start r jobid={a} reserve=100");
  for (const char* job : {"a", "b", "h"}) gate.share(job, std::nullopt);
  gate.send("b", 3);
  gate.send("a", 3);
  gate.send("h", 1, Head::kHigh);
  EXPECT_EQ(gate.run(3), "hab") << "then by tags, in which a is behind";
}

// A reservation is part of the share, not on top of it.
TEST(TbfReserves, TheLargerOfReservationAndShareCounts) {
  for (const std::uint64_t nodes : {1U, 7U}) {
    Reserved gate(true, 1);
    gate.rule("start r jobid={a} reserve=200");
    gate.share("a", std::nullopt, nodes);
    gate.share("b", std::nullopt, 9);
    gate.send("a", 20'000);
    gate.send("b", 20'000);
    const std::string order =
        gate.pass(10'000, milliseconds{1}, 1);  // a device that serves 1000 a second
    const double share = nodes == 1 ? 2000 : 10'000.0 * 7 / 16;
    EXPECT_NEAR(static_cast<double>(Reserved::count(order, 'a')), share, 10) << nodes;
  }
}

// The end of a reservation leaves no debt in the order that would last.
TEST(TbfReserves, TheOrderForgetsAReservationThatEnds) {
  Reserved gate(true, 1);
  gate.rule("start r jobid={a} reserve=900");
  gate.share("a", std::nullopt);
  gate.share("b", std::nullopt);
  gate.send("a", 20'000);
  gate.send("b", 20'000);
  gate.pass(10'000, milliseconds{1}, 1);
  gate.rule("change r reserve=0");
  const std::string order = gate.pass(1000, milliseconds{1}, 1);
  EXPECT_NEAR(static_cast<double>(Reserved::count(order, 'a')), 500, 10);
}

TEST(TbfReserves, LimitsHold) {
  Reserved gate(false, 1);
  gate.rule("start lim jobid={a} rate=100 burst=1 layer=1");
  gate.rule("start r jobid={a} rate=5000 reserve=2000");
  gate.send("a", 2000);
  const std::string order = gate.pass(1000, milliseconds{1}, 1);
  EXPECT_EQ(Reserved::count(order, 'a'), 100U);
}

TEST(TbfReserves, KeepTokensWhileTheDeviceIsLateButNotAfterAPause) {
  Reserved gate(false, 1);
  gate.rule("start r jobid={a} reserve=100 rate=5000 burst=500");
  gate.rule("start s jobid={b} rate=100000 burst=10000");
  const auto in_front = [&] { return gate.run(200).find('b'); };
  gate.now += seconds{100};
  gate.send("a", 500);
  gate.send("b", 5000);
  EXPECT_EQ(in_front(), 1U) << "10 ms of 100 a second after a pause";
  gate.now += milliseconds{200};
  EXPECT_NEAR(static_cast<double>(in_front()), 20, 1) << "a request waited all the time";
  gate.now += seconds{100};
  EXPECT_NEAR(static_cast<double>(in_front()), 100, 1) << "at most one second";
}

// In order of arrival, since it is much larger than their shares.
TEST(TbfReserves, OneForAWholeRuleIsSharedByItsJobs) {
  Reserved gate;
  gate.rule("start r jobid={a b} reserve=100 by=rule");
  for (const char* job : {"a", "b", "c"}) gate.share(job, 1);
  gate.empty_root(1);
  for (int i = 0; i < 500; ++i) {
    for (const char* job : {"a", "b", "c"}) gate.send(job, 1);
  }
  const std::string order = gate.pass(200, milliseconds{10});
  EXPECT_NEAR(static_cast<double>(order.size()), 200, 2);
  EXPECT_NEAR(static_cast<double>(Reserved::count(order, 'a')), 100, 5);
  EXPECT_LE(Reserved::count(order, 'c'), 2U) << "the root's own rate";
}

TEST(TbfReserves, OfBytesCountTheSize) {
  Reserved gate;
  gate.rule("start r jobid={a} reserve=1MB/s");
  gate.share("a", 1);
  gate.empty_root(1);
  gate.send("a", 100, Head::kRegular, Bytes{100'000});
  const std::string order = gate.pass(5000, milliseconds{1});
  EXPECT_NEAR(static_cast<double>(order.size()), 50, 2);
}

TEST(TbfReserves, ARequestThatNeverStartedIsRefunded) {
  Reserved gate;
  gate.rule("start r jobid={a} reserve=100");
  gate.share("a", 1);
  gate.empty_root(1);
  gate.send("a", 2);
  Request& first = gate.gate.next(gate.now).request();
  EXPECT_EQ(gate.gate.next(gate.now).kind(), Decision::Kind::kWait);
  gate.gate.complete(first, gate.now, Outcome::not_started());
  EXPECT_EQ(gate.run(), "a");
}

TEST(TbfReserves, AreReportedWithTheShare) {
  Reserved gate;
  gate.rule("start r jobid={a} reserve=500");
  gate.share("a", 100);
  gate.share("b", 100);
  gate.now += seconds{1};
  gate.send("a", 100);
  gate.send("b", 100);
  gate.run(20);
  Tokens of_a, of_b;
  gate.tbf().report_shares(milliseconds{20}, gate.now, [&](const ShareReport& report) {
    (report.job == JobId("a") ? of_a : of_b) = report.reserved;
  });
  EXPECT_EQ(of_a, Tokens{5}) << "10 ms of 500 a second";
  EXPECT_EQ(of_b, Tokens{0});
  EXPECT_EQ(gate.tbf().reserves_in_use(), 500'000U) << "in 1000 s";
}

TEST(TbfReserves, AreScaledTogether) {
  Reserved gate;
  gate.rule("start r jobid={a} reserve=100");
  gate.share("a", 1);
  gate.empty_root(1);
  gate.send("a", 1000);
  gate.run();
  gate.tbf().set_reserve_scale(kReserveScaleOne / 2, gate.now);
  EXPECT_EQ(gate.tbf().reserve_scale(), kReserveScaleOne / 2);
  const std::string order = gate.pass(200, milliseconds{10});
  EXPECT_NEAR(static_cast<double>(order.size()), 100, 2);
}

TEST(TbfReserves, HoweverLittleIsReservedTheBucketFillsInTime) {
  Reserved gate(false);
  gate.rule("start r jobid={a} rate=5 reserve=1B/d");
  gate.rule("start s jobid={b} rate=5 reserve=1");
  gate.send("a", 1);
  gate.send("b", 1);
  gate.tbf().set_reserve_scale(1, gate.now);
  EXPECT_EQ(gate.run(), "ab");
}

// Withdrawals, promotions and changes of rules while queues stand in several places.
TEST(TbfReserves, NothingIsLostWhileRulesChange) {
  Reserved gate;
  gate.rule("start lim jobid={a b} rate=50 by=rule layer=1");
  gate.rule("start r jobid={a b c} reserve=50 by=rule");
  for (const char* job : {"a", "b", "c"}) gate.share(job, 10);
  std::size_t ran = 0;
  for (int i = 0; i < 3000; ++i) {
    gate.now += milliseconds{1};
    const char* const job = i % 3 == 0 ? "a" : i % 3 == 1 ? "b" : "c";
    Request& sent = gate.send(job, 1, i % 11 == 0 ? Head::kHigh : Head::kRegular);
    if (i % 7 == 0) gate.gate.promote(sent, gate.now);
    if (i % 100 == 20) gate.rule("change r reserve=0");
    if (i % 100 == 40) gate.rule("change r reserve=2MB/s");
    if (i % 100 == 60) gate.rule("change r reserve=50 by=jobid");
    if (i % 100 == 80) gate.rule("change r by=rule");
    if (i % 250 == 99) gate.rule("stop lim");
    if (i % 250 == 199) gate.rule("start lim jobid={a b} rate=50 by=rule layer=1");
    ran += gate.run(1).size();
  }
  EXPECT_EQ(ran + gate.gate.queued(), 3000U);
  EXPECT_GT(ran, 1000U);
}

// ---- reservations of a cluster ----

// One server of a cluster, with the reservation of job a as it holds here.
struct Clustered {
  explicit Clustered(const std::string& rule)
      : gate({.slots = 10'000, .rules = {.in_cluster = true, .sharing = Sharing{}}}) {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
    const auto done = gate.write_rule(rule, kStart);
    EXPECT_TRUE(done) << done.error().message();
    Request request;
    request.attributes.job = JobId("a");
    request.bytes = Bytes{4096};
    gate.admit(request, Head::kRegular, kStart);  // the class exists from now on
    gate.withdraw(request, kStart);
  }
  void slice(std::optional<Rate> ops, std::optional<Rate> bytes = std::nullopt) {
    const ClassSlice all[] = {{.rule = "r", .key = std::nullopt, .slice = {ops, bytes}}};
    gate.engine(Head::kRegular)->set_slices(all, kStart);
  }
  // Per 1000 s.
  std::uint64_t reserved() {
    std::uint64_t found = 0;
    gate.engine(Head::kRegular)->visit_classes(0, 100, kStart, [&](const ClassView& view) {
      if (view.rule.name() == "r") found = tokens_in(view.reserve->rate(), seconds{1000}).count();
    });
    return found;
  }

  Gate gate;
};

TEST(TbfReservesOfACluster, ArePartsAsTheSlicesOfTheLimit) {
  Clustered server("start r jobid={a} rate=1000 reserve=400 scope=cluster");
  EXPECT_EQ(server.reserved(), 1U) << "no slice, no reservation";
  server.slice(Rate::per_second(250));
  EXPECT_EQ(server.reserved(), 100'000U);
  server.slice(Rate(Tokens{1}, seconds{1000}));
  EXPECT_EQ(server.reserved(), 1U) << "not above its slice";
  server.slice(Rate::per_second(5000));
  EXPECT_EQ(server.reserved(), 400'000U) << "not more than all";
}

TEST(TbfReservesOfACluster, InBytesFollowTheSliceOfBytes) {
  Clustered server("start r jobid={a} rate=10 bps=1000B reserve=500B/s scope=cluster");
  server.slice(Rate::per_second(10), Rate::per_second(100));
  EXPECT_EQ(server.reserved(), 50'000U);
}

TEST(TbfReservesOfACluster, AllServersTogetherReserveNoMoreThanTheRule) {
  constexpr std::uint64_t kLimit = 997;
  constexpr std::uint64_t kReserve = 331;
  Rng rng(5);
  for (int round = 0; round < 40; ++round) {
    std::uint64_t left = kLimit * 1000;
    std::uint64_t sum = 0;
    while (left > 0) {
      const std::uint64_t part = std::min(left, 1 + rng.below(kLimit * 400));
      left -= part;
      Clustered server("start r jobid={a} rate=997 reserve=331 scope=cluster");
      server.slice(Rate(Tokens{part}, seconds{1000}));
      const std::uint64_t got = server.reserved();
      ASSERT_LE(got, part);
      ASSERT_GE(got + 1, part * kReserve / kLimit);
      if (part * kReserve >= kLimit) sum += got;  // below it is the least possible rate
    }
    ASSERT_LE(sum, kReserve * 1000);
  }
}

TEST(TbfReservesOfACluster, RunWithinTheSliceBeforeOthers) {
  Clustered server("start r jobid={a} rate=1000 reserve=400 scope=cluster");
  server.slice(Rate::per_second(500));
  RuleEngine& tbf = *server.gate.engine(Head::kRegular);
  tbf.set_share(JobId("a"), Rate::per_second(1), Tokens{1}, 1, kStart);
  // Nothing but reservations runs.
  const BucketShape least(Rate::per_second(1), Tokens{1});
  server.gate.set_root(RootBucket{.rested = least, .busy = least}, kStart);
  std::deque<Request> requests;
  for (int i = 0; i < 1000; ++i) {
    Request& request = requests.emplace_back();
    request.attributes.job = JobId("a");
    request.bytes = Bytes{4096};
    server.gate.admit(request, Head::kRegular, kStart);
  }
  std::size_t ran = 0;
  for (int step = 1; step <= 2000; ++step) {
    const Instant now = kStart + step * milliseconds{1};
    for (;;) {
      const Decision decision = server.gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) break;
      server.gate.complete(decision.request(), now);
      ++ran;
    }
  }
  EXPECT_NEAR(static_cast<double>(ran), 400, 4) << "200 a second reserved, of 500 allowed";
  server.gate.shutdown(kStart + seconds{3});
  for (const Instant later = kStart + seconds{30};;) {
    const Decision decision = server.gate.next(later);
    if (decision.kind() != Decision::Kind::kRun) break;
    server.gate.complete(decision.request(), later);
  }
  for (Request& request : requests) {
    if (request.place() == Request::Place::kQueued) {
      server.gate.withdraw(request, kStart + seconds{30});
    }
  }
}

}  // namespace
}  // namespace weir
