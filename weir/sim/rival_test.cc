// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rival.h"

#include <deque>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "weir/sim/rivals/gift.h"
#include "weir/sim/rivals/io_latency.h"
#include "weir/sim/rivals/lustre_rules.h"
#include "weir/sim/rivals/mclock.h"
#include "weir/sim/rivals/sfq_d.h"
#include "weir/sim/rivals/themis.h"
#include "weir/sim/rivals/weighted_draw.h"
#include "weir/sim/world.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant ms(std::int64_t at) { return instant_at(at * 1'000'000); }

RivalSetup setup_of(std::vector<std::uint64_t> nodes, std::uint32_t slots = 1) {
  RivalSetup setup;
  setup.slots = slots;
  for (std::size_t i = 0; i < nodes.size(); ++i) setup.names.push_back("j" + std::to_string(i));
  setup.nodes = std::move(nodes);
  return setup;
}

// A rival and its requests; each request runs until it is completed.
class Driver {
 public:
  explicit Driver(Rival& rival) : rival_(rival) {}
  ~Driver() {
    while (rival_.take_any() != nullptr) {
    }
  }

  void arrive(std::uint32_t job, int count, std::int64_t at, std::uint64_t bytes = 4096) {
    for (int i = 0; i < count; ++i) {
      Flying& flying = requests_.emplace_back();
      flying.job = job;
      flying.bytes = Bytes{bytes};
      rival_.admit(flying, job, ms(at));
    }
  }
  // The job of the request that runs now, "-" for none.
  std::string start(std::int64_t at) {
    const Decision decision = rival_.next(ms(at));
    if (decision.kind() != Decision::Kind::kRun) return "-";
    running_.push_back(&decision.request());
    return std::to_string(static_cast<Flying&>(decision.request()).job);
  }
  void finish(std::int64_t at) {
    rival_.complete(*running_.front(), ms(at));
    running_.pop_front();
  }
  void finish_all(std::int64_t at) {
    while (!running_.empty()) finish(at);
  }
  // One after the other, `each` ms apart from `at`.
  std::string serve(int count, std::int64_t at, std::int64_t each = 0) {
    std::string order;
    for (int i = 0; i < count; ++i, at += each) {
      order += start(at);
      if (!running_.empty()) finish(at);
    }
    return order;
  }

 private:
  struct Flying : Request {
    std::uint32_t job = 0;
  };
  Rival& rival_;
  std::deque<Flying> requests_;
  std::deque<Request*> running_;
};

// ---- mClock ----

constexpr std::uint64_t kOne = std::uint64_t{1} << Mclock::kFraction;

TEST(Mclock, ServesByTagsAsComputedByHand) {
  // Job 0: reservation 10/s, weight 1. Job 1: no reservation, weight 2. Both have four requests at
  // 0. Tags of the first requests: R0 = 0, P0 = 1; job 1 was idle, so P1 is the smallest P: 1.
  Mclock mclock(setup_of({1, 2}), {{.reservation = Rate::per_second(10)}, {.weight = 2}});
  Driver driver(mclock);
  driver.arrive(0, 4, 0);
  driver.arrive(1, 4, 0);
  EXPECT_EQ(mclock.tags(0).reservation, 0);
  EXPECT_EQ(mclock.tags(0).weight, kOne);
  EXPECT_EQ(mclock.tags(1).weight, kOne);
  // R0 is due: constraint phase. The next R0 is 100 ms, P0 = 2.
  EXPECT_EQ(driver.serve(1, 0), "0");
  EXPECT_EQ(mclock.tags(0).reservation, 100'000'000);
  EXPECT_EQ(mclock.tags(0).weight, 2 * kOne);
  // Weight phase at 10 ms: P1 = 1, 3/2, then 2 like P0, which was tagged first. For that request R0
  // goes back by 1/r, to 0, and is 100 ms for the next again.
  EXPECT_EQ(driver.serve(3, 10), "110");
  EXPECT_EQ(mclock.tags(0).reservation, 100'000'000);
  EXPECT_EQ(driver.serve(1, 10), "1");  // P1 = 2, P0 = 3
  // At 100 ms the reservation is due, though P0 = 3 is larger than P1 = 5/2.
  EXPECT_EQ(mclock.tags(1).weight, 5 * kOne / 2);
  EXPECT_EQ(driver.serve(1, 100), "0");
  EXPECT_EQ(mclock.tags(0).reservation, 200'000'000);
  EXPECT_EQ(driver.serve(2, 100), "10");
}

TEST(Mclock, ALimitHoldsThoughTheSlotIsFree) {
  Mclock mclock(setup_of({1, 1}), {{.limit = Rate::per_second(10)}, {}});
  Driver driver(mclock);
  driver.arrive(0, 3, 0);
  EXPECT_EQ(driver.serve(2, 0), "0-");
  EXPECT_EQ(mclock.next(ms(50)).until(), ms(100));
  EXPECT_EQ(driver.serve(2, 100), "0-");
  EXPECT_EQ(driver.serve(1, 200), "0");
}

TEST(Mclock, AnIdleJobSavesNothingUp) {
  Mclock mclock(setup_of({1, 1}), {{}, {}});
  Driver driver(mclock);
  driver.arrive(0, 10, 0);
  EXPECT_EQ(driver.serve(6, 0), "000000");
  driver.arrive(1, 4, 10);  // its P is that of job 0, not 1
  EXPECT_EQ(mclock.tags(1).weight, mclock.tags(0).weight);
  EXPECT_EQ(driver.serve(4, 10), "0101");
}

TEST(Mclock, HalfOfTheEntitlementIsReserved) {
  RivalSetup setup = setup_of({3, 1});
  setup.capacity = Rate::per_second(1000);
  const auto shares = mclock_shares(setup);
  EXPECT_EQ(shares[0].reservation, Rate::per_second(375));
  EXPECT_EQ(shares[1].reservation, Rate::per_second(125));
  EXPECT_EQ(shares[0].weight, 3U);
  EXPECT_FALSE(shares[0].limit);
}

TEST(Mclock, ReservationsOfJobsReplaceThoseByNodes) {
  RivalSetup setup = setup_of({3, 1});
  setup.reserves = {std::nullopt, Rate::per_second(500)};
  const auto shares = mclock_shares(setup);
  EXPECT_FALSE(shares[0].reservation);
  EXPECT_EQ(shares[1].reservation, Rate::per_second(500));
  EXPECT_EQ(shares[1].weight, 1U);
}

// ---- SFQ(D) ----

TEST(SfqD, ServesByStartTagsAsComputedByHand) {
  // Weights 2 and 1, requests of cost 1, all at 0. S0 = 0, 1/2, 1, 3/2 ...; S1 = 0, 1, 2 ... Ties
  // go to the job that was tagged first: 0 and 1 at S = 0; at S = 1 job 1, tagged at the second
  // step.
  SfqD sfq(setup_of({2, 1}), 1, SfqD::Depth::kFixed);
  Driver driver(sfq);
  driver.arrive(0, 6, 0);
  driver.arrive(1, 3, 0);
  EXPECT_EQ(driver.serve(9, 0), "010100100");
}

TEST(SfqD, ALargeRequestPaysForItsSize) {
  RivalSetup setup = setup_of({1, 1});
  setup.cost = Cost::bytes();
  SfqD sfq(std::move(setup), 1, SfqD::Depth::kFixed);
  Driver driver(sfq);
  driver.arrive(0, 2, 0, 4096);
  driver.arrive(1, 5, 0, 1024);
  // S0 = 0, 4096; S1 = 0, 1024, 2048, 3072, 4096: the tie at 4096 goes to job 0, tagged before.
  EXPECT_EQ(driver.serve(7, 0), "0111101");
}

TEST(SfqD, AJobThatReturnsStartsAtTheVirtualTime) {
  SfqD sfq(setup_of({1, 1}), 1, SfqD::Depth::kFixed);
  Driver driver(sfq);
  driver.arrive(0, 10, 0);
  EXPECT_EQ(driver.serve(5, 0), "00000");
  driver.arrive(1, 3, 0);  // v is S of the last dispatched, 4
  EXPECT_EQ(sfq.first_start(1), 4 * (std::uint64_t{1} << SfqD::kFraction));
  EXPECT_EQ(driver.serve(4, 0), "1010");
}

TEST(SfqD, NeverHasMoreThanItsDepthAtTheDevice) {
  SfqD sfq(setup_of({1}, 8), 3, SfqD::Depth::kFixed);
  Driver driver(sfq);
  driver.arrive(0, 5, 0);
  std::string started;
  for (int i = 0; i < 4; ++i) started += driver.start(0);
  EXPECT_EQ(started, "000-");
  driver.finish(1);
  EXPECT_EQ(driver.start(1), "0");
  for (int i = 0; i < 3; ++i) driver.finish(2);
}

TEST(SfqD, TheAutomaticDepthFallsWhileTheDeviceIsSlow) {
  SfqD sfq(setup_of({1}, 16), 16, SfqD::Depth::kAutomatic);
  Driver driver(sfq);
  driver.arrive(0, 400, 0);
  std::int64_t at = 0;
  const auto run_for = [&](std::int64_t until, std::int64_t latency) {
    while (at < until) {
      driver.start(at);
      at += latency;
      driver.finish(at);
    }
  };
  run_for(400, 10);
  EXPECT_EQ(sfq.depth(), 16U);  // at the reference or below: as deep as it may be
  // 30 ms is twice the reference of 15: D falls by half of the error, 1 - 1/2, each window.
  run_for(500, 30);
  EXPECT_LT(sfq.depth(), 16U);
  run_for(2000, 30);
  EXPECT_EQ(sfq.depth(), 1U);
  run_for(4000, 10);
  EXPECT_GT(sfq.depth(), 1U);
}

// ---- statistical tokens ----

TEST(WeightedDraw, FindsTheIndexOfEveryValue) {
  WeightedDraw draw(5);
  const std::uint64_t weights[] = {3, 0, 1, 4, 2};
  for (std::size_t i = 0; i < 5; ++i) draw.set(i, weights[i]);
  EXPECT_EQ(draw.total(), 10U);
  std::string found;
  for (std::uint64_t value = 0; value < 10; ++value) found += std::to_string(draw.at(value));
  EXPECT_EQ(found, "0002333344");
  draw.set(3, 0);
  draw.set(1, 1);
  found.clear();
  for (std::uint64_t value = 0; value < draw.total(); ++value) {
    found += std::to_string(draw.at(value));
  }
  EXPECT_EQ(found, "0001244");
}

TEST(Themis, JobsAreServedInProportionToTheirSlots) {
  Themis themis(setup_of({3, 1}), {3, 1});
  Driver driver(themis);
  driver.arrive(0, 8000, 0);
  driver.arrive(1, 8000, 0);
  const std::string order = driver.serve(8000, 0);
  const auto first = std::count(order.begin(), order.end(), '0');
  // Binomial, 8000 draws of 3/4: standard deviation 39; within five of them.
  EXPECT_NEAR(static_cast<double>(first), 6000, 195);
}

TEST(Themis, ASlotWithoutRequestsIsLeftOut) {
  Themis themis(setup_of({1000, 1}), {1000, 1});
  Driver driver(themis);
  driver.arrive(1, 20, 0);
  EXPECT_EQ(driver.serve(20, 0), std::string(20, '1'));
}

TEST(Themis, CompositeSlotsShareByUserAndThenBySize) {
  // User a has jobs of 3 and 1 nodes, user b one of 1: 3/8, 1/8 and 1/2.
  const auto slots = user_size_fair_slots(setup_of({3, 1, 1}), {"a", "a", "b"});
  const double all = static_cast<double>(std::accumulate(slots.begin(), slots.end(), 0ULL));
  EXPECT_DOUBLE_EQ(static_cast<double>(slots[0]) / all, 0.375);
  EXPECT_DOUBLE_EQ(static_cast<double>(slots[1]) / all, 0.125);
  EXPECT_DOUBLE_EQ(static_cast<double>(slots[2]) / all, 0.5);
}

// ---- GIFT ----

TEST(Gift, OnOneTargetEveryJobGetsItsFairShare) {
  GiftCentre centre;
  const auto shares = centre.decide({{0, 1}}, {3, 1});
  EXPECT_DOUBLE_EQ(shares[0], 0.75);
  EXPECT_DOUBLE_EQ(shares[1], 0.25);
  EXPECT_DOUBLE_EQ(centre.account(0).issued, GiftCentre::kFirstCoupons);  // nothing was taken
}

TEST(Gift, ThrottlesAJobOfOneTargetForOneOfTwoAndPaysWithCoupons) {
  // Job 0 uses targets 0 and 1, job 1 only target 0. Fair: 1/2 each on target 0, so job 0 has 1/2
  // on both, and half of target 1 is free. Job 1 gives a tenth of its half; job 0 gains that on two
  // targets, and job 1 gets coupons for it.
  GiftCentre centre;
  auto shares = centre.decide({{0, 1}, {0}}, {1, 1});
  EXPECT_NEAR(shares[0], 0.55, 1e-9);
  EXPECT_NEAR(shares[1], 0.45, 1e-9);
  EXPECT_NEAR(centre.account(1).issued - centre.account(1).redeemed, 0.05, 1e-9);
  // The system has redeemed nothing of it: no more throttling.
  shares = centre.decide({{0, 1}, {0}}, {1, 1});
  EXPECT_NEAR(shares[1], 0.5, 1e-9);
  // Job 1 redeems beside job 2, which is bound by target 1 and leaves room on target 0. All coupons
  // are redeemed then, so job 3 may be throttled for job 2, by a tenth of its 3/4.
  shares = centre.decide({{1, 2}, {2, 3}}, {1, 1, 1, 3});
  EXPECT_NEAR(centre.account(1).issued, centre.account(1).redeemed, 1e-9);
  EXPECT_NEAR(shares[3], 0.675, 1e-9);
  EXPECT_NEAR(shares[2], 0.325, 1e-9);
  EXPECT_NEAR(shares[1], 0.675, 1e-9);  // its half and all that is left on target 0
}

TEST(Gift, ServesJobsThatStartWithinAnIntervalFromWhatIsLeft) {
  Gift gift(setup_of({1, 1}), std::make_shared<GiftCentre>());
  Driver driver(gift);
  driver.arrive(0, 4, 0);
  EXPECT_EQ(driver.serve(1, 0), "0");
  driver.arrive(1, 4, 1);
  EXPECT_EQ(driver.serve(5, 1), "00011");
  driver.arrive(0, 50, 500);
  EXPECT_EQ(driver.serve(10, 500), std::string(10, '0'));  // job 1 has no share yet
  const std::string later = driver.serve(8, 1000);
  EXPECT_NE(later.find('1'), std::string::npos) << later;
}

// ---- io.latency ----

TEST(IoLatency, TargetsAreInverseToNodes) {
  RivalSetup setup = setup_of({4, 1}, 16);
  setup.capacity = Rate::per_second(1000);  // 16 slots: 16 ms each
  const auto targets = latency_targets_by_nodes(setup);
  EXPECT_EQ(targets[0], milliseconds{32});
  EXPECT_EQ(targets[1], milliseconds{128});
}

TEST(IoLatency, HalvesTheDepthOfOthersWhenATargetIsMissed) {
  IoLatency latency(setup_of({2, 1}, 16), {milliseconds{10}, milliseconds{100}});
  Driver driver(latency);
  const auto round = [&](std::int64_t at, std::int64_t lasts) {
    driver.arrive(0, 1, at);
    driver.arrive(1, 3, at);
    while (driver.start(at) != "-") {
    }
    driver.finish_all(at + lasts);
  };
  EXPECT_EQ(latency.depth_of(1), IoLatency::kNoLimit);
  // A job with a target of 10 ms has windows of 160 ms; its mean is 50. The requests of the other
  // are counted from its first window of 1 s on, so it is throttled after that.
  for (std::int64_t at = 0; at < 1000; at += 50) round(at, 50);
  EXPECT_EQ(latency.depth_of(1), IoLatency::kNoLimit);
  for (std::int64_t at = 1000; at < 4000; at += 50) round(at, 50);
  const std::uint32_t throttled = latency.depth_of(1);
  EXPECT_LE(throttled, 8U);
  EXPECT_GE(throttled, 1U);
  EXPECT_EQ(latency.depth_of(0), IoLatency::kNoLimit);
  // Its target is met again: the depth of the other returns step by step, 500 ms apart.
  for (std::int64_t at = 4000; at < 40'000; at += 50) round(at, 5);
  EXPECT_EQ(latency.depth_of(1), IoLatency::kNoLimit);
}

TEST(IoLatency, WithoutAMissRequestsLeaveInOrderOfArrival) {
  IoLatency latency(setup_of({2, 1}), {seconds{1}, seconds{2}});
  Driver driver(latency);
  driver.arrive(1, 1, 0);
  driver.arrive(0, 2, 1);
  driver.arrive(1, 1, 2);
  EXPECT_EQ(driver.serve(4, 3), "1001");
}

// ---- Lustre ----

TEST(LustreRules, HoldsEachJobToItsRateThoughTheSlotIsFree) {
  RivalSetup setup = setup_of({3, 1});
  setup.capacity = Rate::per_second(40);
  LustreRules rules(std::move(setup));
  Driver driver(rules);
  driver.arrive(1, 10, 0);
  // A new class has its depth of 3; then 10 per second.
  EXPECT_EQ(driver.serve(4, 0), "111-");
  EXPECT_EQ(driver.serve(1, 50), "-");
  EXPECT_EQ(driver.serve(2, 101), "1-");
}

// ---- in the world ----

Scenario busy() {
  Scenario scenario;
  scenario.length = seconds{10};
  scenario.targets[0].store.service.kind = ServiceTime::Kind::kUniform;
  scenario.jobs.resize(2);
  scenario.jobs[0].name = "big";
  scenario.jobs[0].nodes = 3;
  scenario.jobs[0].processes = {{.count = 4, .window = 8}};
  scenario.jobs[1].name = "small";
  scenario.jobs[1].processes = {{.count = 16, .window = 8}};
  return scenario;
}

TEST(RivalProperty, EveryRivalPassesAllCheckersWithFaults) {
  for (const Contender contender : kRivals) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      Scenario scenario = busy();
      scenario.faults.late_permille = 200;
      scenario.faults.late_by = milliseconds{5};
      scenario.faults.lost_permille = 100;
      scenario.faults.steps = {{seconds{2}, seconds{3}}, {seconds{5}, -seconds{4}}};
      ASSERT_TRUE(check(scenario));
      const auto outcome = run(scenario, contender, {.seed = seed, .measures = true});
      ASSERT_TRUE(outcome) << outcome.error().message();
      EXPECT_EQ(outcome->findings, 0U)
          << contender_name(contender) << ": " << outcome->first_findings.front();
      EXPECT_GT(outcome->served, 1000U) << contender_name(contender);
    }
  }
}

TEST(RivalProperty, FairOnesServeByNodes) {
  for (const Contender contender : {Contender::kMclock, Contender::kSfqD, Contender::kSfqDAuto,
                                    Contender::kGift, Contender::kThemis, Contender::kLustreTbf}) {
    const auto outcome = run(busy(), contender, {.measures = true});
    ASSERT_TRUE(outcome);
    ASSERT_TRUE(outcome->jobs[0].share);
    EXPECT_NEAR(*outcome->jobs[0].share, 0.75, 0.02) << contender_name(contender);
    ASSERT_EQ(outcome->measured.size(), 2U);
    EXPECT_LT(outcome->measured[0].shortfall_mean, 0.05) << contender_name(contender);
  }
  const auto none = run(busy(), Contender::kNone, {.measures = true});
  EXPECT_GT(none->measured[0].shortfall_mean, 0.5);
}

TEST(Rival, SaysWhatItCannotExpress) {
  Scenario scenario = busy();
  scenario.targets[0].cost = Cost::bytes();
  const auto refused = run(scenario, Contender::kIoLatency, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "policy 'io-latency': cannot express the scenario: a latency target is for requests of "
            "one size, and requests are charged by size; leave the policy out");
  EXPECT_FALSE(run(scenario, Contender::kLustreTbf, {}));
  EXPECT_TRUE(run(scenario, Contender::kMclock, {}));
}

TEST(Rival, ReservationsAreForThoseThatHaveThem) {
  Scenario scenario = busy();
  EXPECT_EQ(obstacle(Contender::kStatic, scenario), "");
  scenario.jobs[1].reserve = Rate::per_second(400);
  const auto refused = run(scenario, Contender::kSfqD, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "policy 'sfq-d': cannot express the scenario: it has shares by nodes only, and a job "
            "has a reservation; leave the policy out");
  std::string able;
  for (const Contender contender : kContenders) {
    if (obstacle(contender, scenario).empty()) able += std::string(contender_name(contender)) + " ";
  }
  for (const Contender contender : kRivals) {
    if (obstacle(contender, scenario).empty()) able += std::string(contender_name(contender)) + " ";
  }
  EXPECT_EQ(able, "none weir wfq mclock ");
}

TEST(Rival, TreesOfSharesAreForThoseThatHaveThem) {
  Scenario scenario = busy();
  scenario.targets[0].tree = {FieldSet{Field::kProjid}};
  const auto refused = run(scenario, Contender::kThemis, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "policy 'themis': cannot express the scenario: it has shares of jobs alone, and the "
            "scenario has a tree of shares; leave the policy out");
  EXPECT_NE(obstacle(Contender::kStatic, scenario), "");
  EXPECT_NE(obstacle(Contender::kAdaptbf, scenario), "");
  for (const Contender contender : {Contender::kNone, Contender::kWeir, Contender::kWfq}) {
    EXPECT_EQ(obstacle(contender, scenario), "");
  }
}

TEST(Rival, MclockKeepsAReservationOfAJobWithFewNodes) {
  // By nodes 250 of 1000; 400 are reserved.
  Scenario scenario = busy();
  scenario.jobs[1].reserve = Rate::per_second(400);
  const auto outcome = run(scenario, Contender::kMclock, {.measures = true});
  ASSERT_TRUE(outcome);
  EXPECT_NEAR(outcome->jobs[1].throughput, 400, 8);
  EXPECT_LT(outcome->measured[1].reserve_missed.value_or(1), 0.03);
  EXPECT_FALSE(outcome->measured[0].reserve_missed);
  scenario.jobs[1].reserve = std::nullopt;
  const auto without = run(scenario, Contender::kMclock, {.measures = true});
  EXPECT_NEAR(without->jobs[1].throughput, 250, 8);
}

TEST(Rival, TheTimeOfItsDecisionsIsEstimated) {
  std::int64_t readings = 0;
  // Each reading is one nanosecond after the other: no time but that of the clock.
  const Stopwatch stopwatch{.now = [&] { return Nanoseconds{++readings}; },
                            .switches = [] { return std::uint64_t{0}; }};
  const auto outcome = run(busy(), Contender::kMclock, {.stopwatch = stopwatch});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->decision_time, Nanoseconds{0});
  // Arrival, decision and completion of each request, and decisions that wait.
  EXPECT_GT(readings, static_cast<std::int64_t>(2 * 3 * outcome->served / CallMeter::kEvery));
  EXPECT_FALSE(run(busy(), Contender::kMclock, {})->decision_time);
}

}  // namespace
}  // namespace weir::sim
