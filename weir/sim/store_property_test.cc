// SPDX-License-Identifier: Apache-2.0
//
// The search for the number of slots on six devices, compared with fixed numbers: throughput, and
// the time of requests in the device.
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "weir/sim/world.h"

namespace weir::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kChange{6};
constexpr seconds kSettled{5};  // after the change
constexpr seconds kLength{21};

ServiceTime uniform(Nanoseconds base) {
  return {.kind = ServiceTime::Kind::kUniform, .base = base, .spread_permille = 100};
}

struct Named {
  const char* name;
  std::uint32_t needed;  // the smallest number that reaches 98 % at the end
  StoreSpec store;
  // Two devices miss the goal (docs/design/slots.md); these are the figures that they reach.
  double served_least = 0.98;  // of the best fixed number
  double p99_most = 1.10;      // of the smallest that reaches 98 %
};

Disturbance slower() { return {.at = kChange, .length = kLength, .percent = 150, .channels = 0}; }
Disturbance channels(std::uint32_t count) {
  return {.at = kChange, .length = kLength, .percent = Disturbance::kChannels, .channels = count};
}

std::vector<Named> devices() {
  return {
      {"one channel",
       1,
       {.channels = 1, .service = uniform(microseconds{1000}), .disturbances = {}}},
      {"48 channels, later 12",
       12,
       {.channels = 48, .service = uniform(milliseconds{4}), .disturbances = {channels(12)}}},
      {"16 channels, later 64",
       63,
       {.channels = 16, .service = uniform(milliseconds{4}), .disturbances = {channels(64)}}},
      {"disk with seeks",
       27,
       {.channels = 1,
        .seek = milliseconds{8},
        .service = uniform(milliseconds{4}),
        .disturbances = {}},
       0.98,
       1.31},
      {"log-structured, stalls",
       32,
       {.channels = 32,
        .stall_every = milliseconds{500},
        .stall_for = milliseconds{40},
        .service = uniform(milliseconds{2}),
        .disturbances = {slower()}},
       0.98,
       1.17},
      {"clumps",
       40,
       {.clump = 40,
        .clump_every = milliseconds{100},
        .service = uniform(microseconds{200}),
        .disturbances = {}}},
  };
}

struct Figures {
  double served = 0;  // after the change has settled, per second
  double p99 = 0;
  std::uint32_t slots = 0;
  std::uint64_t findings = 0;
};

Figures measure(const StoreSpec& store, std::optional<std::uint32_t> slots, std::uint64_t seed,
                std::optional<Nanoseconds> target = std::nullopt) {
  Scenario scenario;
  scenario.length = kLength;
  scenario.targets[0].store = store;
  scenario.targets[0].auto_slots = !slots;
  scenario.targets[0].latency_target = target;
  scenario.targets[0].store.slots = slots.value_or(16);
  scenario.targets[0].estimate = true;
  for (const char* name : {"a", "b"}) {
    JobSpec& job = scenario.jobs.emplace_back();
    job.name = name;
    job.processes = {{.window = 512}};
  }
  const Instant from{kChange + kSettled};
  const auto outcome =
      run(scenario, Contender::kWfq, {.seed = seed, .measure_from = from, .keep_periods = false});
  EXPECT_TRUE(outcome.has_value());
  Figures figures;
  const double length = std::chrono::duration<double>(Instant{kLength} - from).count();
  const TargetOutcome& device = outcome->targets[0];
  figures.served = static_cast<double>(device.in_device.count()) / length;
  figures.p99 = static_cast<double>(device.in_device.quantile(99, 100)) / 1e6;
  figures.slots = device.slots;
  figures.findings = outcome->findings;
  return figures;
}

class SlotsAutoOn : public testing::TestWithParam<int> {};

TEST_P(SlotsAutoOn, ReachesTheBestFixedNumber) {
  const Named device = devices()[static_cast<std::size_t>(GetParam())];
  SCOPED_TRACE(device.name);
  const double best = measure(device.store, 512, 1).served;
  const Figures least = measure(device.store, device.needed, 1);
  EXPECT_GE(least.served, 0.975 * best);
  const Figures searched = measure(device.store, std::nullopt, 1);
  EXPECT_EQ(searched.findings, 0U);
  EXPECT_GE(searched.served, device.served_least * best) << searched.slots;
  EXPECT_LE(searched.p99, device.p99_most * least.p99) << searched.slots;
}

INSTANTIATE_TEST_SUITE_P(Devices, SlotsAutoOn, testing::Range(0, 6));

// A checker that cannot fail proves nothing: fixed numbers miss one figure or the other.
TEST(SlotsAuto, FixedNumbersMissTheFigures) {
  const Named device = devices()[1];
  const double best = measure(device.store, 512, 1).served;
  const Figures least = measure(device.store, device.needed, 1);
  EXPECT_LT(measure(device.store, device.needed - 1, 1).served, 0.98 * best);
  EXPECT_GT(measure(device.store, 2 * device.needed, 1).p99, 1.10 * least.p99);
}

TEST(SlotsAuto, ALatencyTargetBoundsTheSlots) {
  const StoreSpec store = {
      .channels = 1, .seek = milliseconds{8}, .service = uniform(milliseconds{4})};
  const Figures free = measure(store, std::nullopt, 1);
  const Figures held = measure(store, std::nullopt, 1, milliseconds{40});
  EXPECT_GT(free.slots, 20U);
  EXPECT_LT(held.slots, 9U);
  EXPECT_LT(held.p99, 60);
  EXPECT_LT(held.served, free.served);
}

}  // namespace
}  // namespace weir::sim
