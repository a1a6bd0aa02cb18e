// SPDX-License-Identifier: Apache-2.0
//
// What running servers taught (docs/design/lustre.md), each in the model, with the driver as it is
// and with that lesson left out: a test that passes without it would say nothing. And how far jobs
// exceed their limits, beside the published algorithm.
#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/weir/lustre_sim.h"
#include "weir/lustre/names.h"
#include "weir/study/scenario_file.h"

namespace weir {
namespace {

using sim::Contender;

// A controller that leaves one lesson out.
class Without : public RuleController {
 public:
  using RuleController::Lesson;
  Without(const Options& options, Lesson lesson) : RuleController(options), lesson_(lesson) {}

 private:
  bool heeds(Lesson lesson) const override { return lesson != lesson_; }

  Lesson lesson_;
};
using Lesson = Without::Lesson;

// As measured on a running server, for a time; what differs comes on top.
sim::Scenario live(const char* length, const std::string& server = "") {
  const std::string text = fmt::format(R"(
length = "{}"
[target]
capacity = 400
slots = 16
service = "40ms"
spread = "10%"
[lustre]
cpts = 1
{}
[[job]]
name = "a"
nodes = 3
process = [{{ kind = "burst", count = 16, requests = 10, every = "2s", start = "1s", window = 1 }}]
[[job]]
name = "hog"
nodes = 1
process = [{{ count = 64, window = 1 }}]
)",
                                       length, server);
  auto scenario = study::parse_scenario(text, "live", "");
  EXPECT_TRUE(scenario) << scenario.error().message();
  return *scenario;
}

// Two jobs that never have enough, the larger of so many nodes.
sim::Scenario rivals(const char* length, int nodes, const std::string& server = "") {
  sim::Scenario scenario = live(length, server);
  scenario.jobs[0].nodes = static_cast<std::uint64_t>(nodes);
  scenario.jobs[0].processes = scenario.jobs[1].processes;
  return scenario;
}

// What a driver did, as seen from outside.
struct Watched {
  sim::Outcome outcome;
  std::uint64_t writes = 0;
  std::uint64_t vanished = 0;
  double low_allowed = 0;  // while the hog's rule was from 16 to 40 a second
  double low_served = 0;
  Nanoseconds unheld{0};  // bursts ran and the hog had no rule

  double low_ratio() const { return low_served / low_allowed; }
  std::uint64_t served(std::string_view job) const {
    for (const sim::JobOutcome& one : outcome.jobs) {
      if (one.name == job) return one.served;
    }
    return 0;
  }
  double wait_p99_ms(std::string_view job) const {
    for (const sim::JobOutcome& one : outcome.jobs) {
      if (one.name == job) return static_cast<double>(one.wait.quantile(99, 100)) / 1e6;
    }
    return 0;
  }
};

Watched watch(const sim::Scenario& scenario, Contender contender,
              std::optional<Lesson> without = {}, std::uint64_t seed = 1) {
  Watched watched;
  Instant last{};
  std::optional<std::uint32_t> held;
  std::map<JobId, std::uint64_t> served;
  app::LustreSimOptions options;
  options.seed = seed;
  if (without) {
    options.controller = [lesson = *without](const RuleController::Options& controller) {
      return std::make_unique<Without>(controller, lesson);
    };
  }
  options.done = [&](const sim::Rpc& rpc, Instant, Instant) { ++served[rpc.job]; };
  options.watch = [&](const lustre::Driver& driver, const sim::LustreServer&, Instant now) {
    const double elapsed = static_cast<double>((now - last).count()) / 1e9;
    if (served[JobId("a")] > 0 && !held) watched.unheld += now - last;
    if (held && *held >= 16 && *held <= 40) {
      watched.low_allowed += *held * elapsed;
      watched.low_served += static_cast<double>(served[JobId("hog")]);
    }
    last = now;
    served.clear();
    held.reset();
    for (const RuleSeen& rule : driver.rules()) {
      if (rule.job == JobId("hog")) held = rule.rate;
    }
    watched.writes = driver.counters().writes;
    watched.vanished = driver.counters().vanished;
  };
  watched.outcome = *app::simulate_lustre(scenario, contender, options);
  return watched;
}

double of_none(const sim::Scenario& scenario, const Watched& watched) {
  const Watched none = watch(scenario, Contender::kNone);
  return static_cast<double>(watched.outcome.served) / static_cast<double>(none.outcome.served);
}

// 1. Every newcomer makes the others vanish from job_stats, for good.
TEST(LustreLessons, AJobThatVanishesIsUnknownNotIdle) {
  const sim::Scenario scenario = live("2s", "vanish = \"100%\"\nvanish_for = \"1h\"");
  const Watched with = watch(scenario, Contender::kWeir);
  const Watched without = watch(scenario, Contender::kWeir, Lesson::kVanished);
  EXPECT_GT(with.vanished, 0U);
  EXPECT_LT(with.unheld * 3, without.unheld);
  EXPECT_LE(with.wait_p99_ms("a"), without.wait_p99_ms("a"));
}

// 2. What is paced costs the device more, so capacity is less than it was when it was measured.
TEST(LustreLessons, CapacityFollowsTheDispatchPattern) {
  // Less in parallel than it is entitled to: while the hog is held, few threads have work.
  const auto few = [](std::uint32_t count, const char* server) {
    sim::Scenario scenario = rivals("4s", 3, server);
    scenario.jobs[0].processes[0].count = count;
    return scenario;
  };
  const sim::Scenario scenario = few(7, "thin_percent = 200");
  EXPECT_GT(of_none(scenario, watch(scenario, Contender::kWeir)), 0.9);
  EXPECT_LT(of_none(scenario, watch(scenario, Contender::kWeir, Lesson::kIdling)), 0.8);
  // The model has it: the same rules give less where few threads at work cost more.
  EXPECT_LT(watch(few(3, "thin_percent = 200"), Contender::kStatic).outcome.served * 10,
            watch(few(3, ""), Contender::kStatic).outcome.served * 9);
}

// 3.
TEST(LustreLessons, ALoneJobIsNotLimited) {
  sim::Scenario scenario = live("2s");
  scenario.jobs.erase(scenario.jobs.begin());
  const Watched with = watch(scenario, Contender::kWeir);
  EXPECT_EQ(with.writes, 0U);
  EXPECT_GT(of_none(scenario, with), 0.999);
  EXPECT_LT(of_none(scenario, watch(scenario, Contender::kWeir, Lesson::kLone)), 0.97);
  EXPECT_LT(of_none(scenario, watch(scenario, Contender::kAdaptbf)), 0.97);
}

// 4. Of 400 a second a quarter is the hog's, in five seconds 500.
TEST(LustreLessons, WhatARuleFallsShortOfIsMadeUpFor) {
  const sim::Scenario scenario = rivals("5s", 3);
  const std::uint64_t with = watch(scenario, Contender::kWeir).served("hog");
  const std::uint64_t without = watch(scenario, Contender::kWeir, Lesson::kYield).served("hog");
  EXPECT_GE(with, 475U);
  EXPECT_LE(with, 525U);
  EXPECT_LT(without, 450U);
}

// 5. Changes are few, since each gives tokens away.
TEST(LustreLessons, RatesAreKeptUntilTheirFreeTokensAreFew) {
  const sim::Scenario scenario = rivals("5s", 12);
  const Watched with = watch(scenario, Contender::kWeir);
  const Watched without = watch(scenario, Contender::kWeir, Lesson::kRefill);
  EXPECT_LE(with.writes, 20U);  // four in a second
  EXPECT_GT(without.writes, 100U);
}

// 6.
TEST(LustreLessons, WhoComesBackFindsRoomAtOnce) {
  const sim::Scenario scenario = live("6s");
  const Watched with = watch(scenario, Contender::kWeir);
  const Watched without = watch(scenario, Contender::kWeir, Lesson::kReturn);
  EXPECT_LT(with.wait_p99_ms("a") * 1.15, without.wait_p99_ms("a"));
}

// 7. The hog shows no more than its rule lets through, and without this it would be let go.
TEST(LustreLessons, AJobAtItsRateWantsMore) {
  const sim::Scenario scenario = rivals("4s", 3);
  const Watched with = watch(scenario, Contender::kWeir);
  const Watched without = watch(scenario, Contender::kWeir, Lesson::kBacklog);
  EXPECT_LT(with.unheld * 2, without.unheld);
}

// 8. A client has a few requests in flight, of all its jobs together: those of a job that is held
// fill them, and its neighbours wait behind them. No rule of a server cures it; more in flight
// does.
TEST(LustreLessons, AHeldJobBlocksItsNeighboursOnTheSameClient) {
  const auto neighbours_served = [](std::uint32_t in_flight) {
    sim::LustreServer::Options options;
    sim::LustreServer server(options, Rng(1));
    Instant now{};
    EXPECT_TRUE(server.write(lustre::kPoliciesPath, "tbf jobid", now));
    EXPECT_TRUE(server.write(lustre::kRulesPath, "start held jobid={held} rate=10", now));
    std::uint64_t served = 0;
    std::uint64_t turn = 0;
    std::vector<sim::Rpc> next;
    const auto send = [&] {
      server.arrive({.job = JobId(turn % 2 == 0 ? "held" : "free"), .tag = turn}, now);
      ++turn;  // one process each, with as much as the client takes
    };
    for (std::uint32_t i = 0; i < in_flight; ++i) send();
    while (now < instant_at(4'000'000'000)) {
      now = server.next();
      std::uint32_t done = 0;
      server.run(now, [&](const sim::Rpc& rpc, Instant, Instant) {
        served += rpc.job == JobId("free");
        ++done;
      });
      for (; done > 0; --done) send();
    }
    return served;
  };
  const std::uint64_t with_8 = neighbours_served(8);
  const std::uint64_t with_64 = neighbours_served(64);
  EXPECT_LT(with_8, 60U);  // as the held one: 10 a second
  EXPECT_GT(with_64, with_8);
}

// ---- limits ----

// The low limits of the set-up that was measured: there the published algorithm, which fills
// buckets with every write, serves 1.5 times what its limits allow.
TEST(LustreLimits, LowLimitsAreExceededByAFifthAtMost) {
  const auto file = study::load_scenario("lustre-live");
  ASSERT_TRUE(file);
  sim::Scenario as_measured = *file;
  as_measured.length = std::chrono::seconds{12};
  const Watched paper = watch(as_measured, Contender::kAdaptbf, {}, 3);
  EXPECT_GT(paper.low_allowed, 5);
  EXPECT_GT(paper.low_ratio(), 1.3);
  // Ours avoids such limits where they do not last, so it is tried where they do.
  const auto low = study::load_scenario("lustre-low-limits");
  ASSERT_TRUE(low);
  sim::Scenario scenario = *low;
  scenario.length = std::chrono::seconds{10};
  const Watched weir = watch(scenario, Contender::kWeir, {}, 3);
  EXPECT_GT(weir.low_allowed, 100);
  EXPECT_LE(weir.low_ratio(), 1.2);
  const Watched in_live = watch(as_measured, Contender::kWeir);
  EXPECT_LE(in_live.low_served, 1.2 * in_live.low_allowed + 4);
}

// Every stretch of a rule, from one write to the next: what is taken from the queue is the rate,
// and the tokens that the write gave away.
struct Stretch {
  Instant from;
  std::uint32_t rate = 0;
};

// The most that any stretch had beyond its rate; `settles` is when a class has seen its rule.
double most_beyond(Contender contender, std::uint64_t& stretches) {
  const sim::Scenario scenario = live("12s");
  const Nanoseconds settles = std::chrono::milliseconds{50};
  std::optional<Stretch> now;
  std::vector<Instant> taken;
  double most = 0;
  const auto close = [&](Instant at) {
    if (now && at > now->from + settles) {
      const auto count = std::count_if(taken.begin(), taken.end(), [&](Instant started) {
        return started > now->from + settles && started <= at;
      });
      const double time = static_cast<double>((at - now->from - settles).count()) / 1e9;
      most = std::max(most, static_cast<double>(count) - time * now->rate);
      ++stretches;
    }
    now.reset();
  };
  app::LustreSimOptions options;
  options.done = [&](const sim::Rpc& rpc, Instant started, Instant) {
    if (rpc.job == JobId("hog")) taken.push_back(started);
  };
  options.written = [&](std::string_view command, Instant at) {
    const std::size_t rate = command.find("rate=");
    if (command.starts_with("start") && command.find("{hog}") == std::string_view::npos) return;
    close(at);
    if (rate == std::string_view::npos) return;
    Stretch next{at, 0};
    std::from_chars(command.data() + rate + 5, command.data() + command.size(), next.rate);
    now = next;
  };
  EXPECT_TRUE(app::simulate_lustre(scenario, contender, options));
  return most;
}

TEST(LustreLimits, ALimitIsExceededByItsRefillAtMost) {
  std::uint64_t stretches = 0;
  // Depth 3, and one that was on its way.
  EXPECT_LE(most_beyond(Contender::kWeir, stretches), 4);
  EXPECT_GT(stretches, 5U);
}

}  // namespace
}  // namespace weir
