// SPDX-License-Identifier: Apache-2.0
//
// Rounds written down by hand; the same against the model of a server are in tests/lustre.
#include "weir/adapt/rule_controller.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/adapt/allocator.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

constexpr Nanoseconds kRound = std::chrono::milliseconds{50};
const JobId kBig("big");
const JobId kHog("hog");

// Plays a server that does what it is told: changes are in force in the next round, and fill
// buckets.
struct Played {
  explicit Played(RuleController::Options options = {}) : controller(with_period(options)) {
    EXPECT_TRUE(controller.set_nodes(kBig, 3));
    round({});
  }
  static RuleController::Options with_period(RuleController::Options options) {
    options.period = kRound;
    if (!options.capacity) options.capacity = Rate::per_second(1000);
    return options;
  }

  // Served in the round by each job; those not named are known and served nothing.
  const std::vector<JobRateChange>& round(std::map<JobId, std::uint64_t> served) {
    RuleRound read;
    at += kRound;
    read.at = at;
    read.queued = queued;
    read.busy = 16;
    std::uint64_t sum = 0;
    for (const JobId& job : {kBig, kHog}) {
      read.jobs.push_back({job, Tokens{served[job]}, true, true});
      sum += served[job];
    }
    read.served_all = Tokens{sum};
    for (const auto& [job, rate] : rules) read.rules.push_back({job, rate, reach});
    const auto& changes = controller.decide(read);
    for (const JobRateChange& change : changes) {
      ++writes;
      if (change.rate) {
        rules[change.job] = *change.rate;
        free = 3 * reach;
        written[change.job] = *change.rate;
      } else {
        rules.erase(change.job);
      }
    }
    return changes;
  }
  const std::vector<JobRateChange>& glance(std::uint64_t waiting, std::uint64_t busy) {
    return controller.glance({at + kRound / 4, waiting, busy});
  }
  // Both backlogged, the hog as its rule lets it.
  void contend(int rounds, std::uint64_t yield_percent = 100) {
    for (int i = 0; i < rounds; ++i) {
      std::uint64_t hog = 25;
      if (rules.contains(kHog)) {
        hog = rules[kHog] * reach * yield_percent / 100 / 20 + std::exchange(free, 0);
      }
      round({{kBig, 50 - std::min<std::uint64_t>(hog, 50)}, {kHog, hog}});
    }
  }

  RuleController controller;
  Instant at{};
  std::map<JobId, std::uint32_t> rules;
  std::map<JobId, std::uint32_t> written;  // last, whether it is still there or not
  std::uint32_t reach = 1;
  std::uint64_t queued = 100;
  std::uint64_t free = 0;  // tokens that the last change gave away
  std::uint64_t writes = 0;
};

TEST(RuleController, ALoneJobIsNotLimited) {
  Played played;
  for (int i = 0; i < 100; ++i) played.round({{kHog, 50}});
  EXPECT_TRUE(played.rules.empty());
  EXPECT_EQ(played.writes, 0U);
}

TEST(RuleController, TheSmallerOneOfTwoBackloggedJobsIsHeldAtItsShare) {
  Played played;
  played.contend(40);
  ASSERT_TRUE(played.rules.contains(kHog));
  EXPECT_FALSE(played.rules.contains(kBig));  // the most entitled never
  EXPECT_GE(played.rules[kHog], 125U);        // half of its share, while it pays back
  EXPECT_LE(played.rules[kHog], 320U);
}

TEST(RuleController, TheRuleGoesWhenTheOtherIsGone) {
  Played played;
  played.contend(10);
  ASSERT_TRUE(played.rules.contains(kHog));
  played.round({{kHog, 12}});
  EXPECT_FALSE(played.rules.contains(kHog));
}

TEST(RuleController, AReturningJobHasNoRule) {
  Played played;
  played.contend(10);
  for (int i = 0; i < 10; ++i) played.round({{kBig, 50}});
  EXPECT_TRUE(played.rules.empty());
}

// Two jobs whose bursts were of 100 and 150 requests begin another one beside the hog, on a server
// that completes requests in every so many rounds. Returns the reasons of the changes after that.
std::map<JobId, std::string> reasons_beside_the_hog(std::uint64_t nodes_of_a, int every) {
  RuleController controller(Played::with_period({}));
  const JobId a("a");
  const JobId b("b");
  EXPECT_TRUE(controller.set_nodes(a, nodes_of_a) && controller.set_nodes(b, 3));
  Instant at{};
  std::map<JobId, std::string> reasons;
  std::map<JobId, std::uint32_t> rules;
  const auto look = [&](std::uint64_t by_a, std::uint64_t by_b, std::uint64_t by_hog,
                        std::uint64_t queued) {
    RuleRound read;
    at += kRound;
    read.at = at;
    read.jobs = {{.job = a, .served = Tokens{by_a}},
                 {.job = b, .served = Tokens{by_b}},
                 {.job = kHog, .served = Tokens{by_hog}}};
    read.served_all = Tokens{by_a + by_b + by_hog};
    read.queued = queued;
    read.busy = 16;
    for (const auto& [job, rate] : rules) read.rules.push_back({job, rate, 1});
    for (const JobRateChange& change : controller.decide(read)) {
      reasons[change.job] = change.reason;
      rules.erase(change.job);
      if (change.rate) rules[change.job] = *change.rate;
    }
  };
  const auto interval = [&](std::uint64_t by_a, std::uint64_t by_b, std::uint64_t queued) {
    for (int i = 1; i < every; ++i) look(0, 0, 0, queued);
    look(by_a, by_b, 50 * static_cast<std::uint64_t>(every) - by_a - by_b, queued);
  };
  for (int i = 0; i < 10; ++i) interval(0, 0, 64);
  for (int i = 0; i < 5; ++i) interval(20, 30, 96);
  for (int i = 0; i < 40; ++i) interval(0, 0, 64);
  look(0, 0, 0, 96);
  reasons.clear();
  interval(20, 20, 96);
  return reasons;
}

bool gives_way(const std::map<JobId, std::string>& reasons, const char* job) {
  const auto found = reasons.find(JobId(job));
  return found != reasons.end() &&
         found->second.find("is shorter and is served first") != std::string::npos;
}

TEST(RuleController, OfBurstsOfJobsOfTheSameSizeTheShorterIsServedFirstWhereCompletionsAreClumps) {
  const auto reasons = reasons_beside_the_hog(3, 5);
  EXPECT_TRUE(gives_way(reasons, "b"));
  EXPECT_FALSE(gives_way(reasons, "a"));
  EXPECT_FALSE(gives_way(reasons_beside_the_hog(3, 1), "b"));
}

TEST(RuleController, ALargerJobDoesNotGiveWayToTheBurstOfASmallerOne) {
  EXPECT_FALSE(gives_way(reasons_beside_the_hog(1, 5), "b"));
}

// One idle round is no reason: at short periods the rule would come and go.
TEST(RuleController, ARuleOutlivesAPause) {
  Played played;
  played.contend(10);
  played.round({{kBig, 45}, {kHog, 0}});
  EXPECT_TRUE(played.rules.contains(kHog));
}

TEST(RuleController, SmallChangesAreNotWritten) {
  Played played;
  played.contend(20);
  const std::uint64_t before = played.writes;
  played.contend(200);
  EXPECT_LE(played.writes - before, 10U);  // in 10 s
}

TEST(RuleController, LowRatesAreHeldUntilTheirFreeTokensAreAFifth) {
  RuleController::Options options;
  options.capacity = Rate::per_second(100);
  Played played(options);
  std::uint32_t rate = 0;
  std::uint32_t rounds = 0;
  for (int i = 0; i < 400; ++i) {
    played.round({{kBig, 4}, {kHog, 1}});
    const std::uint32_t now = played.rules.contains(kHog) ? played.rules[kHog] : 0;
    if (now == rate) {
      ++rounds;
      continue;
    }
    const bool is_change = rate != 0 && now != 0 && now < 2 * rate;
    // 15 tokens, of which three are a fifth; a round's more or less.
    if (is_change) {
      EXPECT_GE((rounds + 2) * rate, 15U * 20) << "at " << rate;
    }
    rate = now;
    rounds = 0;
  }
}

TEST(RuleController, WhatRulesFallShortOfIsCorrected) {
  Played exact;
  Played late;
  exact.contend(60, 100);
  late.contend(60, 80);
  EXPECT_GT(late.written[kHog] * 100, exact.written[kHog] * 110);
}

TEST(RuleController, RatesAreDividedByTheCptsThatAJobReaches) {
  RuleController::Options options;
  options.cpts = 4;
  Played one(options);
  one.contend(60);  // reaches one CPT of four
  Played all(options);
  all.reach = 4;
  all.contend(60);
  ASSERT_TRUE(one.rules.contains(kHog) && all.rules.contains(kHog));
  EXPECT_LT(all.rules[kHog] * 2, one.rules[kHog]);
}

TEST(RuleController, RatesRiseWhileRequestsWaitAndTheServerIdles) {
  Played played;
  played.contend(10);
  const std::uint32_t before = played.rules[kHog];
  for (int i = 0; i < 6; ++i) {
    const std::uint64_t hog = played.rules.contains(kHog) ? played.rules[kHog] / 20 : 25;
    played.round({{kBig, 22}, {kHog, hog}});  // together far below 50
  }
  EXPECT_TRUE(!played.rules.contains(kHog) || played.rules[kHog] > before);
}

TEST(RuleController, AQueueThatGrowsIsANewcomerForAMoment) {
  Played played;
  for (int i = 0; i < 10; ++i) played.round({{kHog, 50}});
  played.queued = 120;
  played.round({{kHog, 50}});
  EXPECT_TRUE(played.rules.contains(kHog));
  played.round({{kHog, 3}});
  played.round({{kHog, 3}});
  played.round({{kHog, 3}});
  EXPECT_FALSE(played.rules.contains(kHog));  // nobody came
  played.queued = 140;
  played.round({{kHog, 50}});
  EXPECT_FALSE(played.rules.contains(kHog));  // not believed again at once
}

// Between rounds the queue tells of a newcomer, and idle threads of its end.
TEST(RuleController, AGlanceAtTheQueueHoldsAndReleases) {
  Played played;
  for (int i = 0; i < 10; ++i) played.round({{kHog, 50}});
  EXPECT_TRUE(played.glance(100, 16).empty());
  const auto held = played.glance(116, 16);
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0].job, kHog);
  EXPECT_EQ(held[0].rate, 95U);  // 16 in service and 3 tokens are two thirds of it in 300 ms
  played.rules[kHog] = *held[0].rate;
  played.queued = 130;
  played.contend(4);  // it came
  EXPECT_TRUE(played.glance(130, 16).empty());
  EXPECT_TRUE(played.glance(130, 5).empty());  // may be chance
  const auto released = played.glance(130, 5);
  ASSERT_EQ(released.size(), 1U);
  EXPECT_FALSE(released[0].rate);
}

// The hog keeps 116 requests outstanding. When the others have fewer than would fill the server,
// they no longer need it for themselves.
TEST(RuleController, AHeldJobIsReleasedWhenTheOthersHaveFewRequestsLeft) {
  Played played;
  for (int i = 0; i < 10; ++i) played.round({{kHog, 50}});
  const auto held = played.glance(116, 16);
  ASSERT_EQ(held.size(), 1U);
  played.rules[kHog] = *held[0].rate;
  played.queued = 116;
  played.contend(4);
  EXPECT_TRUE(played.glance(113, 16).empty());  // 13 of 16
  const auto released = played.glance(111, 16);
  ASSERT_EQ(released.size(), 1U);
  EXPECT_FALSE(released[0].rate);
  // It stays released until their last requests are counted.
  played.rules.clear();
  played.queued = 100;
  played.round({{kBig, 11}, {kHog, 30}});
  EXPECT_TRUE(played.rules.empty());
}

// So few requests get their turn among the hog's.
TEST(RuleController, AJobThatCannotFillTheServerNeedsNoRoom) {
  Played played;
  for (int i = 0; i < 10; ++i) played.round({{kHog, 50}});
  EXPECT_TRUE(played.glance(111, 16).empty());
}

// A rule can give a job less than its share whatever its rate, where the server takes requests in
// clumps. Then it goes without for a while.
TEST(RuleController, AJobThatIsOwedRequestsIsLetGoForAWhile) {
  Played played;
  std::uint64_t due = 0;
  std::uint64_t got = 0;
  std::uint64_t writes = 0;
  for (int i = 0; i < 600; ++i) {
    const bool is_held = played.rules.contains(kHog);
    const std::uint64_t hog = is_held ? 6 : 25;  // of 12 or 13
    played.round({{kBig, 50 - hog}, {kHog, hog}});
    if (i < 200) continue;
    if (i == 200) writes = played.writes;
    due += 25;
    got += 2 * hog;
  }
  EXPECT_NEAR(static_cast<double>(got), static_cast<double>(due), 0.05 * static_cast<double>(due));
  EXPECT_LE(played.writes - writes, 60U);  // in 20 s
}

// Jobs that compete for long get their due, whatever they had before they were held.
TEST(RuleController, WhatAJobGotTooMuchAtFirstIsMadeUpFor) {
  RuleController::Options options;
  options.capacity = Rate::per_second(400);
  Played played(options);
  std::uint64_t got = 0;
  for (int i = 0; i < 400; ++i) {
    std::uint64_t hog = 10;
    if (played.rules.contains(kHog)) {
      // Whole requests, and the rest later.
      hog = played.rules[kHog] * static_cast<std::uint64_t>(i + 1) / 20 -
            played.rules[kHog] * static_cast<std::uint64_t>(i) / 20;
      hog += std::exchange(played.free, 0);
    }
    got += hog;
    played.round({{kBig, 20 - std::min<std::uint64_t>(hog, 20)}, {kHog, hog}});
  }
  EXPECT_NEAR(static_cast<double>(got), 2000, 60);  // 100 a second for 20 s
}

TEST(RuleController, JobsOfTheSameSizeAreNotHeld) {
  Played played;
  EXPECT_TRUE(played.controller.set_nodes(kHog, 3));
  for (int i = 0; i < 20; ++i) played.round({{kHog, 50}});  // borrowed for a while
  for (int i = 0; i < 40; ++i) played.round({{kBig, 25}, {kHog, 25}});
  EXPECT_TRUE(played.rules.empty());
}

TEST(RuleController, CapacityIsMeasuredWhileNoRuleIsInTheWay) {
  RuleController::Options options;
  options.period = kRound;
  RuleController controller(options);
  RuleRound read;
  for (int i = 0; i < 100; ++i) {
    read.at += kRound;
    read.queued = 10;
    read.jobs = {{kHog, Tokens{20}, true, true}};
    read.served_all = Tokens{20};
    controller.decide(read);
  }
  ASSERT_TRUE(controller.capacity());
  const Tokens rate = tokens_in(*controller.capacity(), std::chrono::seconds{1});
  EXPECT_NEAR(static_cast<double>(rate.count()), 400, 10);
}

// A server of 400 a second under one job, seen by counters: smooth, or 40 every 100 ms. Returns how
// far the measured capacity is off, in percent.
class Measured400 {
 public:
  explicit Measured400(bool clumps, Nanoseconds round) : clumps_(clumps), round_(round) {
    RuleController::Options options;
    options.period = round;
    controller_.emplace(options);
  }

  // The load goes on while nobody looks, or there is none for that time.
  enum class Gap : std::uint8_t { kLoaded, kIdle };
  void gap(Nanoseconds time, Gap kind = Gap::kLoaded) {
    if (kind == Gap::kIdle) idle_ += time;
    look(time);
  }
  void load(Nanoseconds time) {
    for (const Instant end = at_ + time; at_ < end;) look(round_);
  }
  // The next look shows counters that are not those of the time since the last one.
  void lose(bool known) { loses_ = true, known_ = known; }
  double off_percent() const {
    if (!controller_->capacity()) return 100;
    const auto rate = tokens_in(*controller_->capacity(), std::chrono::seconds{1}).count();
    return std::abs(static_cast<double>(rate) - 400) / 4;
  }

 private:
  std::uint64_t served_by(Instant at) const {
    const auto ns = static_cast<std::uint64_t>((at - idle_).time_since_epoch().count());
    return clumps_ ? ns / 100'000'000 * 40 : ns * 4 / 10'000'000;
  }
  void look(Nanoseconds after) {
    at_ += after;
    const std::uint64_t all = served_by(at_);
    RuleRound read;
    read.at = at_;
    read.queued = 48;
    read.busy = 16;
    const std::uint64_t served = loses_ ? 3 : all - seen_;
    read.jobs = {{kHog, Tokens{served}, !loses_ || known_, true}};
    if (!loses_ || known_) read.served_all = Tokens{all - seen_};
    seen_ = all;
    loses_ = false;
    controller_->decide(read);
  }

  bool clumps_;
  Nanoseconds round_;
  std::optional<RuleController> controller_;
  Instant at_{};
  Nanoseconds idle_{0};
  std::uint64_t seen_ = 0;
  bool loses_ = false;
  bool known_ = true;
};

TEST(RuleController, GapsAndClumpsDoNotFalsifyTheCapacity) {
  using Gap = Measured400::Gap;
  for (const bool clumps : {false, true}) {
    for (const std::int64_t round_ms : {20, 50, 67}) {
      Measured400 server(clumps, std::chrono::milliseconds{round_ms});
      const auto where = [&](const char* what, std::int64_t ms) {
        return fmt::format("{} of {} ms, rounds of {} ms, {}", what, ms, round_ms,
                           clumps ? "clumps" : "smooth");
      };
      server.load(std::chrono::seconds{2});
      EXPECT_LE(server.off_percent(), 5) << where("start", 0);
      for (const std::int64_t gap_ms : {100, 250, 500, 1'000, 2'000, 5'000, 7'000, 60'000}) {
        for (const Gap kind : {Gap::kLoaded, Gap::kIdle}) {
          server.gap(std::chrono::milliseconds{gap_ms}, kind);
          EXPECT_LE(server.off_percent(), 15) << where("at the end of a gap", gap_ms);
          server.load(std::chrono::seconds{2});
          EXPECT_LE(server.off_percent(), 5) << where("gap", gap_ms);
        }
      }
      for (const bool known : {false, true}) {
        server.lose(known);
        server.load(std::chrono::seconds{2});
        EXPECT_LE(server.off_percent(), 5) << where("lost entries", 0);
      }
    }
  }
}

// A driver that never looks more often than once in a second still measures.
TEST(RuleController, RareRoundsMeasureTheCapacityToo) {
  Measured400 server(false, std::chrono::milliseconds{20});
  for (int i = 0; i < 10; ++i) server.gap(std::chrono::seconds{1});
  EXPECT_LE(server.off_percent(), 5);
}

// Seen on a running server: policy fifo for 7 s, or SIGSTOP for 6 s, while one job has the server
// for itself. The gap was taken for five seconds in which nothing was served.
TEST(RuleController, AGapWithoutARoundDoesNotEndTheDriver) {
  for (const std::int64_t gap_ms : {100, 1'000, 4'900, 5'100, 7'000, 60'000, 86'400'000}) {
    RuleController::Options options;
    options.period = kRound;
    RuleController controller(options);
    RuleRound read;
    const auto round = [&](Nanoseconds after, std::uint64_t served) {
      read.at += after;
      read.queued = 10;
      read.jobs = {{kHog, Tokens{served}, true, true}};
      read.served_all = Tokens{served};
      controller.decide(read);
    };
    for (int i = 0; i < 20; ++i) round(kRound, 20);
    round(std::chrono::milliseconds{gap_ms}, 2);
    for (int i = 0; i < 200; ++i) round(kRound, i % 3 == 0 ? 0 : 30);
    ASSERT_TRUE(controller.capacity()) << gap_ms << " ms";
    EXPECT_GE(tokens_in(*controller.capacity(), std::chrono::seconds{1}), Tokens{1});
  }
}

// Counters that are garbage: the answers need not be good, but there are answers.
TEST(RuleController, NoCountEndsTheDriver) {
  constexpr std::uint64_t kAll = UINT64_MAX;
  for (const auto mode : {RuleController::Mode::kWeir, RuleController::Mode::kPaper}) {
    RuleController::Options options;
    options.mode = mode;
    options.cpts = 0;
    options.depth = 0;
    RuleController controller(options);
    RuleRound read;
    for (const std::uint64_t served : {kAll, std::uint64_t{0}, kAll, std::uint64_t{1}, kAll}) {
      for (const std::int64_t ns : {1, 0, 1'000'000'000}) {
        read.at += Nanoseconds{ns};
        read.queued = served;
        read.jobs = {{kBig, Tokens{served}, true, true}, {kHog, Tokens{kAll - served}, true, true}};
        read.served_all = Tokens{served};
        read.rules = {{kHog, 0, 0}};
        for (const JobRateChange& change : controller.decide(read)) {
          if (!change.rate) continue;
          EXPECT_GE(*change.rate, 1U);
          EXPECT_LE(*change.rate, RuleController::kRateMax);
        }
        controller.glance({read.at, kAll - served, served});
      }
    }
  }
}

TEST(RuleController, WhatAnEarlierRunLeftIsStoppedInTheFirstRound) {
  RuleController::Options options;
  options.capacity = Rate::per_second(1000);
  RuleController controller(options);
  RuleRound read;
  read.at = instant_at(1);
  read.rules = {{kHog, 7, 1}};
  const auto& changes = controller.decide(read);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_FALSE(changes[0].rate);
}

TEST(RuleController, ThePaperWritesEveryActiveJobEveryPeriod) {
  RuleController::Options options = RuleController::Options::paper();
  Played played(options);
  for (int i = 0; i < 10; ++i) played.round({{kBig, 20}, {kHog, 30}});
  EXPECT_EQ(played.writes, 20U);
}

// Against the Allocator alone, which the oracle of the facts page checks to the token.
TEST(RuleController, ThePaperIsTheAllocationOfServedCountsToTheToken) {
  RuleController::Options options = RuleController::Options::paper();
  options.capacity = Rate::per_second(1000);
  options.cpts = 2;
  RuleController controller(options);
  Allocator oracle({.rate = *options.capacity, .period = options.period});
  const std::vector<std::pair<JobId, std::uint64_t>> jobs = {
      {JobId("a"), 1}, {JobId("b"), 3}, {JobId("c"), 2}};
  for (const auto& [job, nodes] : jobs) ASSERT_TRUE(controller.set_nodes(job, nodes));
  Rng rng(3);
  RuleRound round;
  round.at = instant_at(1);
  controller.decide(round);
  for (int i = 0; i < 500; ++i) {
    round.at += options.period;
    round.jobs.clear();
    std::vector<Allocator::Demand> demands;
    for (const auto& [job, nodes] : jobs) {
      const std::uint64_t served = rng.below(4) == 0 ? 0 : rng.below(60);
      round.jobs.push_back({job, Tokens{served}});
      demands.push_back({job, nodes, Tokens{served}});
    }
    std::vector<JobPeriod> expected;
    oracle.allocate(demands, expected);
    const auto& changes = controller.decide(round);
    std::uint64_t nodes_before = UINT64_MAX;
    std::size_t written = 0;
    for (const JobRateChange& change : changes) {
      if (!change.rate) continue;
      const auto job = std::find_if(expected.begin(), expected.end(),
                                    [&](const JobPeriod& each) { return each.job == change.job; });
      ASSERT_NE(job, expected.end());
      const std::uint64_t rate = std::max<std::uint64_t>(job->final.count(), 1) * 10 / 2;
      EXPECT_EQ(*change.rate, rate) << "round " << i;
      EXPECT_LE(job->nodes, nodes_before);
      nodes_before = job->nodes;
      ++written;
    }
    EXPECT_EQ(written, expected.size());
    for (const JobRateChange& change : changes) apply_to(round.rules, change);
    EXPECT_EQ(round.rules.size(), expected.size());
  }
}

// A rate of 1 for every job would be the result of dividing nothing.
TEST(RuleController, ThePaperNeedsACapacity) {
  RuleController controller(RuleController::Options::paper());
  RuleRound round;
  for (int i = 1; i < 5; ++i) {
    round.at = instant_at(i * 100'000'000);
    round.jobs = {{kBig, Tokens{40}}, {kHog, Tokens{40}}};
    EXPECT_TRUE(controller.decide(round).empty());
  }
}

TEST(RuleController, ManagesTenThousandJobs) {
  RuleController::Options options;
  options.capacity = Rate::per_second(100'000);
  RuleController controller(options);
  RuleRound round;
  for (int i = 0; i < 10'000; ++i)
    round.jobs.push_back({JobId(fmt::format("{:05}", i)), Tokens{1}});
  round.queued = 10'000;
  for (int i = 1; i <= 3; ++i) {
    round.at = instant_at(i * 20'000'000);
    for (const JobRateChange& change : controller.decide(round)) apply_to(round.rules, change);
  }
  EXPECT_EQ(controller.demands().size(), 10'000U);
}

}  // namespace
}  // namespace weir
