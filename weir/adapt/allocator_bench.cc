// SPDX-License-Identifier: Apache-2.0
//
// The cost of one period: all jobs active, every second one backlogged, so that each step has work;
// as published, and with fading, the floor and loans. Divide by the argument for the cost of a job.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "weir/adapt/allocator.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

constexpr std::size_t kVariants = 2;  // demands change from period to period

struct Load {
  std::vector<std::vector<Allocator::Demand>> periods{kVariants};
  std::vector<std::vector<Ledger::Loan>> loans{kVariants};
};

Load load_of(std::size_t jobs) {
  Rng rng(1);
  Load load;
  for (std::size_t i = 0; i < jobs; ++i) {
    const JobId job(fmt::format("job.{:06}", i));
    const std::uint64_t nodes = 1 + rng.below(1000);
    for (std::size_t period = 0; period < kVariants; ++period) {
      const Tokens demand{1 + rng.below((i + period) % 2 == 0 ? 5 : 60)};
      load.periods[period].push_back({job, nodes, demand});
      load.loans[period].push_back({job, Tokens{rng.below(3)}, Tokens{rng.below(3)}});
    }
  }
  return load;
}

Allocator::Options options_of(std::size_t jobs) {
  const std::uint64_t budget = jobs * 10 + 7;
  return {.rate = Rate(Tokens{budget}, std::chrono::milliseconds{20}),
          .period = std::chrono::milliseconds{20},
          .half_life = {},
          .jobs_max = jobs};
}

enum class Loans : std::uint8_t { kNone, kSettled };

void allocate(benchmark::State& state, Allocator::Options options, Loans loans) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const Load load = load_of(count);
  Allocator allocator(options);
  std::vector<JobPeriod> jobs;
  std::size_t period = 0;
  for (; period < kVariants; ++period) allocator.allocate(load.periods[period], jobs);
  for (auto _ : state) {
    if (loans == Loans::kSettled) allocator.settle_loans(load.loans[period % kVariants]);
    allocator.allocate(load.periods[period++ % kVariants], jobs);
    benchmark::DoNotOptimize(jobs.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));  // jobs
}

void BM_Allocate(benchmark::State& state) {
  allocate(state, options_of(static_cast<std::size_t>(state.range(0))), Loans::kNone);
}
BENCHMARK(BM_Allocate)->Arg(10)->Arg(1000)->Arg(100000);

Allocator::Options fading_options(const benchmark::State& state) {
  Allocator::Options options = options_of(static_cast<std::size_t>(state.range(0)));
  options.half_life = std::chrono::seconds{60};
  options.floor = true;
  return options;
}

void BM_AllocateFadingWithFloor(benchmark::State& state) {
  allocate(state, fading_options(state), Loans::kNone);
}
BENCHMARK(BM_AllocateFadingWithFloor)->Arg(1000)->Arg(100000);

void BM_SettleLoansAndAllocate(benchmark::State& state) {
  allocate(state, fading_options(state), Loans::kSettled);
}
BENCHMARK(BM_SettleLoansAndAllocate)->Arg(1000)->Arg(100000);

}  // namespace
}  // namespace weir
