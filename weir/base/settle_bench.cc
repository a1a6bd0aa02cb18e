// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/rng.h"
#include "weir/base/settle.h"

namespace weir {
namespace {

std::vector<SettleShare> shares_of(std::size_t count, std::uint64_t weight_max) {
  Rng rng(1);
  std::vector<SettleShare> shares(count);
  for (SettleShare& share : shares) share.weight = 1 + rng.below(weight_max);
  return shares;
}

// One period after another with the weights of jobs: about half a token per job has to move.
void BM_Settle(benchmark::State& state) {
  std::vector<SettleShare> shares = shares_of(static_cast<std::size_t>(state.range(0)), 1000);
  const Tokens total{static_cast<std::uint64_t>(state.range(0)) * 10 + 7};
  for (auto _ : state) {
    settle(shares, total);
    benchmark::DoNotOptimize(shares.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));  // jobs
}
BENCHMARK(BM_Settle)->Arg(10)->Arg(1000)->Arg(100000);

// Equal weights that divide the total: nothing moves, nothing is allocated.
void BM_SettleEvenly(benchmark::State& state) {
  std::vector<SettleShare> shares = shares_of(static_cast<std::size_t>(state.range(0)), 1);
  const Tokens total{static_cast<std::uint64_t>(state.range(0)) * 10};
  for (auto _ : state) {
    settle(shares, total);
    benchmark::DoNotOptimize(shares.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));  // jobs
}
BENCHMARK(BM_SettleEvenly)->Arg(1000)->Arg(100000);

}  // namespace
}  // namespace weir
