// SPDX-License-Identifier: Apache-2.0
//
// Waits are divided by cause, and the causes add up to the total.
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/gate.h"

namespace weir {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

using QueueName = std::pair<std::string, Head>;
using Sums = std::map<QueueName, std::uint64_t>;

std::uint64_t ns(Nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

std::uint64_t sum_of(const DelaySums& delays) {
  return std::accumulate(delays.begin(), delays.end(), std::uint64_t{0});
}

std::map<QueueName, DelaySums> delays_of(const Gate& gate, Instant now) {
  std::map<QueueName, DelaySums> all;
  gate.engine(Head::kRegular)->visit_waits(now, [&](const WaitView& wait) {
    all[{std::string(wait.key.job.text()), wait.head}] = wait.delays;
  });
  return all;
}

RootBucket root_of(std::uint64_t per_second, std::uint64_t depth) {
  const BucketShape shape(Rate::per_second(per_second), Tokens{depth});
  return {.rested = shape, .busy = shape};
}

constexpr std::uint16_t kWatchedQueues = 64;

Gate::Options watched(Gate::Options options) {
  options.rules.watched_queues = kWatchedQueues;
  return options;
}

// A Gate with its requests, and a simple account of how long each waited.
struct World {
  explicit World(const Gate::Options& options) : gate(watched(options)) {
    EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  }
  ~World() {
    gate.shutdown(now);
    while (!running.empty() || gate.queued() > 0) {
      run();
      finish_all();
    }
  }

  Request& admit(const std::string& job, Head head = Head::kRegular) {
    Request& request = requests.emplace_back();
    request.attributes.job = JobId(job);
    request.bytes = Bytes{4096};
    gate.admit(request, head, now);
    queued[&request] = {{job, head}, now};
    return request;
  }
  bool run_one() {
    const Decision decision = gate.next(now);
    if (decision.kind() != Decision::Kind::kRun) return false;
    leave(decision.request());
    running.push_back(&decision.request());
    return true;
  }
  void run() {
    while (run_one()) {
    }
  }
  void leave(const Request& request) {
    const auto found = queued.find(&request);
    waited[found->second.first] += ns(now - found->second.second);
    queued.erase(found);
  }
  void withdraw_oldest() {
    for (Request& request : requests) {
      if (request.place() != Request::Place::kQueued) continue;
      leave(request);
      return gate.withdraw(request, now);
    }
  }
  void finish_one(std::size_t at = 0) {
    gate.complete(*running[at], now);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void finish_all() {
    while (!running.empty()) finish_one();
  }
  Sums expected() const {
    Sums all = waited;
    for (const auto& [request, place] : queued) all[place.first] += ns(now - place.second);
    return all;
  }

  Gate gate;
  Instant now = Instant{} + std::chrono::seconds{1};
  std::deque<Request> requests;
  std::vector<Request*> running;
  std::map<const Request*, std::pair<QueueName, Instant>> queued;
  Sums waited;
};

// The difference between an account and the delays; empty: none.
std::string difference(const Sums& expected, const std::map<QueueName, DelaySums>& delays) {
  for (const auto& [name, sum] : expected) {
    const auto found = delays.find(name);
    const std::uint64_t told = found == delays.end() ? 0 : sum_of(found->second);
    if (told == sum) continue;
    return name.first + (name.second == Head::kHigh ? " (hp)" : "") + ": waited " +
           std::to_string(sum) + ", told " + std::to_string(told);
  }
  return {};
}

Gate::Options sharing_options() {
  Gate::Options options{.slots = 3, .hp_slots = 0};
  options.rules.sharing = Sharing{};
  return options;
}

void change_something(World& world, Rng& rng, bool shares) {
  const std::string name = "r" + std::to_string(rng.below(3));
  const std::string job = "j" + std::to_string(rng.below(6));
  const std::string rate = std::to_string(1 + rng.below(2000));
  switch (rng.below(shares ? 6 : 3)) {
    case 0:
      (void)world.gate.write_rule("start " + name + " jobid={" + job + "} rate=" + rate, world.now);
      break;
    case 1:
      (void)world.gate.write_rule("change " + name + " rate=" + rate, world.now);
      break;
    case 2:
      (void)world.gate.write_rule("stop " + name, world.now);
      break;
    case 3:
      world.gate.engine(Head::kRegular)->drop_share(JobId(job), world.now);
      break;
    case 4:
      world.gate.set_root(root_of(1 + rng.below(3000), 3), world.now);
      break;
    default:
      world.gate.engine(Head::kRegular)
          ->set_share(JobId(job), Rate::per_second(1 + rng.below(1000)), Tokens{8},
                      1 + rng.below(4), world.now);
  }
}

void live(World& world, Rng& rng, bool shares) {
  switch (rng.below(10)) {
    case 0:
    case 1:
    case 2:
      world.admit("j" + std::to_string(rng.below(6)),
                  rng.below(4) == 0 ? Head::kHigh : Head::kRegular);
      break;
    case 3:
    case 4:
      world.run();
      break;
    case 5:
      if (!world.running.empty()) world.finish_one(rng.below(world.running.size()));
      break;
    case 6:
      if (rng.below(3) == 0) world.withdraw_oldest();
      break;
    case 7:
      if (rng.below(4) == 0) change_something(world, rng, shares);
      break;
    default:
      world.now += microseconds{rng.below(3000)};
  }
}

void check_that_causes_add_up(std::uint64_t seed, bool shares) {
  Rng rng(seed);
  World world(shares ? sharing_options() : Gate::Options{.slots = 2, .hp_slots = 1});
  for (int step = 0; step < 2000; ++step) {
    live(world, rng, shares);
    if (step % 8 != 0) continue;
    ASSERT_EQ(difference(world.expected(), delays_of(world.gate, world.now)), "")
        << "seed " << seed << ", step " << step;
  }
}

TEST(TbfWaitsProperty, CausesAddUpToTheWaitUnderLimits) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) check_that_causes_add_up(seed, false);
}

TEST(TbfWaitsProperty, CausesAddUpToTheWaitUnderShares) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) check_that_causes_add_up(seed, true);
}

TEST(TbfWaitsProperty, TheCheckFindsANanosecondThatIsMissing) {
  World world({.slots = 1});
  world.admit("a");
  world.admit("b");
  world.run();
  world.now += milliseconds{5};
  auto delays = delays_of(world.gate, world.now);
  ASSERT_EQ(difference(world.expected(), delays), "");
  for (auto& [name, sums] : delays) {
    for (std::uint64_t& sum : sums) {
      if (sum == 0) continue;
      --sum;
      EXPECT_NE(difference(world.expected(), delays), "");
      ++sum;
    }
  }
}

struct Expectation {
  std::uint64_t limit = 0, share = 0, root = 0, slot = 0, order = 0;
};

void expect_delays(const World& world, const std::string& job, const Expectation& told) {
  const auto all = delays_of(world.gate, world.now);
  const auto found = all.find({job, Head::kRegular});
  ASSERT_NE(found, all.end()) << job;
  EXPECT_EQ(found->second, (DelaySums{told.limit, told.share, told.root, told.slot, told.order}))
      << job;
}

TEST(TbfWaits, ALimitIsWhatItsClassWaitsFor) {
  World world({.slots = 4});
  ASSERT_TRUE(world.gate.write_rule("start r jobid={a} rate=100", world.now));
  for (int i = 0; i < 5; ++i) world.admit("a");
  world.run();  // three at once
  world.now += milliseconds{10};
  world.finish_all();
  world.run();
  world.now += milliseconds{10};
  world.finish_all();
  world.run();
  expect_delays(world, "a", {.limit = ns(milliseconds{30})});  // two for 10 ms, one for 10 more
}

TEST(TbfWaits, WhoIsFirstWaitsForASlotAndTheOthersForTheirTurn) {
  World world({.slots = 1});
  world.admit("a");
  world.run();
  world.admit("b");
  world.admit("c");
  world.now += milliseconds{4};
  world.finish_all();
  world.run_one();
  world.now += milliseconds{6};
  world.finish_all();
  world.run_one();
  expect_delays(world, "a", {});
  expect_delays(world, "b", {.slot = ns(milliseconds{4})});
  expect_delays(world, "c", {.slot = ns(milliseconds{6}), .order = ns(milliseconds{4})});
}

TEST(TbfWaits, TheRateOfTheTargetHoldsUpWhoIsFirst) {
  World world(sharing_options());
  RuleEngine& tbf = *world.gate.engine(Head::kRegular);
  tbf.set_share(JobId("a"), Rate::per_second(1'000'000), Tokens{1000}, 1, world.now);
  world.gate.set_root(root_of(100, 1), world.now);
  world.admit("a");
  world.run();
  world.finish_all();
  world.admit("a");
  world.run();  // refused
  world.now += milliseconds{10};
  world.run();
  expect_delays(world, "a", {.root = ns(milliseconds{10})});
}

TEST(TbfWaits, AShareHoldsUpItsJobWhileOthersRun) {
  Gate::Options options{.slots = 4};
  options.rules.sharing = Sharing{.cost = {}, .lending = false};
  World world(options);
  world.gate.engine(Head::kRegular)
      ->set_share(JobId("a"), Rate::per_second(100), Tokens{1}, 1, world.now);
  world.admit("a");
  world.admit("a");
  world.run();
  world.now += milliseconds{10};
  world.run();
  expect_delays(world, "a", {.share = ns(milliseconds{10})});
}

TEST(TbfWaits, JobsThatNothingHoldsBackWaitForTheirTurnAndASlot) {
  Gate::Options options{.slots = 1};
  options.rules.sharing = Sharing{.cost = {}, .lending = false};
  World world(options);
  RuleEngine& tbf = *world.gate.engine(Head::kRegular);
  for (const char* const job : {"a", "b"}) {
    tbf.set_share(JobId(job), std::nullopt, Tokens{1}, 1, world.now);
    world.admit(job);
    world.admit(job);
  }
  for (const int ms : {4, 6, 5}) {
    world.run_one();
    world.now += milliseconds{ms};
    world.finish_all();
  }
  world.run_one();
  // They take turns: b was first and waited for the slot with two requests for 4 ms, and with the
  // last one for 5 ms.
  expect_delays(world, "a", {.slot = ns(milliseconds{6}), .order = ns(milliseconds{4})});
  expect_delays(world, "b", {.slot = ns(milliseconds{13}), .order = ns(milliseconds{6})});
}

TEST(TbfWaits, BeyondTheBoundThereIsNothingToldAndNothingLost) {
  World world({.slots = 1, .hp_slots = 0});
  for (std::size_t i = 0; i < kWatchedQueues + 10; ++i) world.admit("j" + std::to_string(i));
  EXPECT_EQ(delays_of(world.gate, world.now).size(), kWatchedQueues);
}

}  // namespace
}  // namespace weir
