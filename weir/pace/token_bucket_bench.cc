// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <cstdint>

#include <benchmark/benchmark.h>

#include "weir/base/allocations_bench.h"
#include "weir/pace/atomic_bucket.h"
#include "weir/pace/token_bucket.h"

namespace weir {
namespace {

// Time moves by what the takes cost, so about every take succeeds, as in a paced server. 333,667
// divides no power of ten: the part is carried on every take.
constexpr std::uint64_t kRate = 333'667;
constexpr std::uint64_t kDepth = 4096;

std::uint64_t step_ns(std::uint64_t cost) { return cost * 1'000'000'000 / kRate + 1; }

template <class Bucket>
void take_loop(benchmark::State& state, Bucket& bucket, const BucketShape& shape) {
  const Tokens cost{static_cast<std::uint64_t>(state.range(0))};
  const Nanoseconds step{static_cast<std::int64_t>(step_ns(cost.count()))};
  Instant now = instant_at(1'000'000'000);
  std::uint64_t taken = 0;
  const std::uint64_t allocated = allocations();
  for (auto _ : state) {
    now += step;
    taken += bucket.take(cost, shape, now) ? 1U : 0U;
  }
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
  state.counters["taken"] =
      benchmark::Counter(static_cast<double>(taken), benchmark::Counter::kAvgIterations);
}

void BM_TokenBucket_take(benchmark::State& state) {
  const BucketShape shape(Rate::per_second(kRate), Tokens{kDepth});
  TokenBucket bucket = TokenBucket::full(shape, instant_at(0));
  take_loop(state, bucket, shape);
}
BENCHMARK(BM_TokenBucket_take)->Arg(1)->Arg(1000);

void BM_AtomicBucket_take(benchmark::State& state) {
  const BucketShape shape(Rate::per_second(kRate), Tokens{kDepth});
  AtomicBucket bucket(shape, instant_at(0));
  take_loop(state, bucket, shape);
}
BENCHMARK(BM_AtomicBucket_take)->Arg(1)->Arg(1000);

// The exchange alone: no take of an AtomicBucket is faster on this host.
void BM_floor_exchange(benchmark::State& state) {
  std::atomic<std::int64_t> word{0};
  benchmark::DoNotOptimize(&word);
  for (auto _ : state) {
    std::int64_t seen = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) {
    }
  }
}
BENCHMARK(BM_floor_exchange);

}  // namespace
}  // namespace weir
