// SPDX-License-Identifier: Apache-2.0
//
// The cost of a decision that reads the clock itself, and the cost of reading the clock alone.
#include <benchmark/benchmark.h>

#include "weir/host/clock.h"
#include "weir/pace/token_bucket.h"

namespace weir::embed {
namespace {

void BM_clock_read(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(host::now());
}
BENCHMARK(BM_clock_read);

void BM_clock_read_and_take(benchmark::State& state) {
  const BucketShape shape(Rate::per_second(333'667'000), Tokens{1'000'000});
  TokenBucket bucket = TokenBucket::full(shape, host::now());
  std::uint64_t taken = 0;
  for (auto _ : state) taken += bucket.take(Tokens{1}, shape, host::now()) ? 1U : 0U;
  benchmark::DoNotOptimize(taken);
}
BENCHMARK(BM_clock_read_and_take);

}  // namespace
}  // namespace weir::embed
