// SPDX-License-Identifier: Apache-2.0
//
// A whole round of the controller: samples of all jobs in, shares to an enforcer that does nothing.
// Demand and loans change from period to period, so nearly every share is written.
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "weir/adapt/controller.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

class NoEnforcer : public Enforcer {
 public:
  Result<void> set(const JobId&, const Share&, Instant) override { return {}; }
  Result<void> change(const JobId&, const Share&, Instant) override { return {}; }
  Result<void> drop(const JobId&, Instant) override { return {}; }
};

enum class Levels : std::uint8_t { kOne, kTree };

// In a tree each job is one of a user of its own, and all users are of one project.
void control_round(benchmark::State& state, Levels levels) {
  const auto count = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kVariants = 4;
  Rng rng(1);
  std::vector<std::vector<JobSample>> periods(kVariants);
  NoEnforcer enforcer;
  Controller controller({.jobs_max = count, .levels = levels == Levels::kTree ? 2U : 0U}, enforcer);
  controller.set_capacity(Rate(Tokens{count * 10 + 7}, std::chrono::milliseconds{20}));
  for (std::size_t i = 0; i < count; ++i) {
    const JobId job(fmt::format("job.{:06}", i * 7919 % count));  // not in the order of ids
    if (!controller.set_nodes(job, 1 + rng.below(1000))) return state.SkipWithError("nodes");
    if (levels == Levels::kTree) {
      controller.tree()->place(job, std::vector{JobId("bio"), JobId(fmt::format("{}", i))});
    }
    for (std::size_t period = 0; period < kVariants; ++period) {
      periods[period].push_back({.job = job,
                                 .arrived = Tokens{1 + rng.below((i + period) % 2 == 0 ? 5 : 60)},
                                 .waiting = Tokens{rng.below(10)},
                                 .borrowed = Tokens{rng.below(3)},
                                 .lent = Tokens{rng.below(3)}});
    }
  }
  std::size_t period = 0;
  Instant now = instant_at(0);
  for (auto _ : state) {
    for (const JobSample& sample : periods[period++ % kVariants]) controller.observe(sample);
    now += std::chrono::milliseconds{20};
    benchmark::DoNotOptimize(controller.decide(now).jobs.data());
  }
  const auto rounds = static_cast<double>(controller.counters().periods);
  state.counters["written"] = static_cast<double>(controller.counters().written) / rounds;
}

void BM_ControlRound(benchmark::State& state) { control_round(state, Levels::kOne); }
void BM_ControlRoundOfTree(benchmark::State& state) { control_round(state, Levels::kTree); }
BENCHMARK(BM_ControlRound)->Arg(1000)->Arg(100'000);
BENCHMARK(BM_ControlRoundOfTree)->Arg(1000)->Arg(100'000);

}  // namespace
}  // namespace weir
