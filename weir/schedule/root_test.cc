// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/root.h"

#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/schedule/gate.h"
#include "weir/schedule/policy_kinds.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// 1,000 a second: 10 at once after an idle time, and 100 while requests wait for the device.
RootBucket bucket() {
  return {.rested = BucketShape(Rate::per_second(1000), Tokens{10}),
          .busy = BucketShape(Rate::per_second(1000), Tokens{100})};
}

TEST(Root, WithoutABucketNobodyWaits) {
  Root root;
  EXPECT_FALSE(root.exists());
  EXPECT_EQ(root.ready_at(Tokens{1'000'000}), Instant::min());
  root.pay(Tokens{5}, at(0));
  root.give_back(Tokens{5});
}

TEST(Root, StartsFullAndPaces) {
  Root root;
  root.set(bucket(), at(0));
  root.pay(Tokens{10}, at(0));
  EXPECT_EQ(root.ready_at(Tokens{1}), at(1));
  root.give_back(Tokens{1});
  EXPECT_LE(root.ready_at(Tokens{1}), at(0));
}

TEST(Root, HoldsMoreWhileSomebodyWaitsThanAfterARest) {
  Root busy;
  busy.set(bucket(), at(0));
  busy.pay(Tokens{10}, at(0));
  busy.pay(Tokens{51}, at(50));  // the device was slow, and was never idle
  EXPECT_EQ(busy.ready_at(Tokens{1}), at(52));
  busy.rest();
  busy.pay(Tokens{10}, at(1000));
  EXPECT_EQ(busy.ready_at(Tokens{1}), at(1001)) << "after a rest it holds 10 and no more";
}

TEST(Root, AnotherRateKeepsTheBalance) {
  Root root;
  root.set(bucket(), at(0));
  root.pay(Tokens{10}, at(0));
  root.set(RootBucket{.rested = BucketShape(Rate::per_second(100), Tokens{10}),
                      .busy = BucketShape(Rate::per_second(100), Tokens{100})},
           at(0));
  EXPECT_EQ(root.ready_at(Tokens{1}), at(10));
  root.set(std::nullopt, at(0));
  EXPECT_FALSE(root.exists());
}

// ---- the root of a Gate ----

// A device that completes requests at once, so that only the root limits it.
struct Paced {
  explicit Paced(const RuleOptions& rules = {}, const RootBucket& root = bucket())
      : gate({.slots = 10'000, .rules = rules}) {
    gate.set_root(root, now);
  }
  ~Paced() {
    gate.shutdown(now);
    run();
  }

  void start(std::string_view policy, Heads heads = Heads::kBoth) {
    ASSERT_TRUE(gate.start_policy(policy, "", heads));
  }
  void send(int count, Head head = Head::kRegular, Bytes size = Bytes{4096}) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.job = JobId("j" + std::to_string(i % 3));
      request.bytes = size;
      gate.admit(request, head, now);
    }
  }
  // Runs what may run now; returns how many.
  int run(const Outcome& outcome = {}) {
    int count = 0;
    for (;;) {
      const Decision decision = gate.next(now);
      if (decision.kind() != Decision::Kind::kRun) {
        wake = decision.until();
        return count;
      }
      gate.complete(decision.request(), now, outcome);
      ++count;
    }
  }
  // Runs what may run until then, waking up only when the Gate asks for it.
  int run_until(Instant end) {
    int count = run();
    while (wake <= end) {
      now = wake;
      count += run();
    }
    now = end;
    return count;
  }

  Gate gate;
  Instant now = at(0);
  Instant wake = kNever;
  std::deque<Request> requests;
};

RuleOptions sharing() {
  RuleOptions options;
  options.sharing = Sharing{};
  return options;
}

TEST(GateRoot, HoldsUnderEveryPolicyWithAndWithoutShares) {
  for (const RuleOptions& rules : {RuleOptions{}, sharing()}) {
    for (const auto& kind : policy_kinds()) {
      Paced world(rules);
      world.start(kind->name);
      world.send(3000);
      EXPECT_EQ(world.run(), 10) << kind->name;
      EXPECT_EQ(world.run_until(at(500)), 500) << kind->name;
      EXPECT_EQ(world.run_until(at(1500)), 1000) << kind->name;
    }
  }
}

TEST(GateRoot, HoldsWhilePoliciesAreSwitchedAndDrained) {
  Paced world;
  int served = 0;
  for (int step = 0; step < 20; ++step) {
    world.start(step % 3 == 0 ? "tbf" : step % 3 == 1 ? "fifo" : "crrn");
    world.send(200);
    served += world.run_until(at(10 * (step + 1)));
  }
  EXPECT_EQ(served, 10 + 200);
}

TEST(GateRoot, IsOneForBothHeadsWhateverTheyRun) {
  for (const char* const high : {"fifo", "crrn", "tbf"}) {
    Paced world(sharing());
    world.start("tbf");
    world.start(high, Heads::kHigh);
    world.send(2000);
    world.send(2000, Head::kHigh);
    EXPECT_EQ(world.run(), 10) << high;
    EXPECT_EQ(world.run_until(at(1000)), 1000) << high;
  }
}

TEST(GateRoot, ALargeRequestLeavesADebt) {
  RootBucket bytes = bucket();
  bytes.cost = Cost::bytes();
  Paced world({}, bytes);
  world.send(3, Head::kRegular, Bytes{500});
  EXPECT_EQ(world.run(), 1);
  EXPECT_EQ(world.wake, at(491)) << "10 - 500 tokens, and one more";
  EXPECT_EQ(world.run_until(at(490)), 0);
  EXPECT_EQ(world.run_until(at(491)), 1);
}

TEST(GateRoot, PaysForWhatWasMovedAndGetsBackWhatNeverStarted) {
  RootBucket bytes = bucket();
  bytes.cost = Cost::bytes();
  for (const char* const policy : {"fifo", "tbf"}) {
    Paced world({}, bytes);
    world.start(policy);
    world.send(1, Head::kRegular, Bytes{10});
    EXPECT_EQ(world.run(Outcome::not_started()), 1);
    world.send(1, Head::kRegular, Bytes{10});
    EXPECT_EQ(world.run(Outcome::done(Bytes{4})), 1);
    Request request;
    request.bytes = Bytes{6};
    EXPECT_EQ(world.gate.expected_wait(request, Head::kRegular, world.now), Nanoseconds{0});
    world.gate.charge(request, Head::kRegular, world.now);  // it is empty now
    request.bytes = Bytes{1};
    EXPECT_EQ(world.gate.expected_wait(request, Head::kRegular, world.now), milliseconds{1})
        << policy;
    world.send(1, Head::kRegular, Bytes{1});
    EXPECT_EQ(world.run(), 0) << policy;
  }
}

TEST(GateRoot, GivesBackWhatADeferredRequestPaid) {
  Paced world;
  world.send(10);
  std::vector<Request*> deferred;
  for (int i = 0; i < 10; ++i) {
    Request& request = world.gate.next(world.now).request();
    world.gate.defer(request, world.now);
    deferred.push_back(&request);
  }
  world.send(4);
  EXPECT_EQ(world.run(), 0);
  for (Request* const request : deferred) world.gate.withdraw(*request, world.now);
  EXPECT_EQ(world.run(), 4);
}

TEST(GateRoot, EndsWithTheServer) {
  Paced world;
  world.send(100);
  EXPECT_EQ(world.run(), 10);
  world.gate.shutdown(world.now);
  EXPECT_EQ(world.run(), 90);
}

}  // namespace
}  // namespace weir
