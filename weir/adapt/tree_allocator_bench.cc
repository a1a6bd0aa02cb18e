// SPDX-License-Identifier: Apache-2.0
//
// The cost of one period in a tree in which one project has many users with a job each: all of them
// active, and with users that come and go. Divide by the argument for the cost of a user, and
// compare with allocator_bench.cc, which has as many jobs without a tree.
#include <cstddef>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "weir/adapt/tree_allocator.h"
#include "weir/base/rng.h"

namespace weir {
namespace {

constexpr std::size_t kGroups = 16;  // of users that are active in the same period

std::vector<TreeAllocator::Demand> load_of(std::size_t users, std::size_t first) {
  Rng rng(first + 1);
  std::vector<TreeAllocator::Demand> demands;
  demands.reserve(users);
  for (std::size_t i = first; i < first + users; ++i) {
    demands.push_back({.path = {JobId("bio"), JobId(fmt::format("{}", i))},
                       .job = JobId(fmt::format("job.{:07}", i)),
                       .weight = 1 + rng.below(1000),
                       .demand = Tokens{1 + rng.below(i % 2 == 0 ? 5 : 60)}});
  }
  return demands;
}

Allocator::Options options_of(std::size_t users) {
  const std::uint64_t budget = users * 10 + 7;
  return {.rate = Rate(Tokens{budget}, std::chrono::milliseconds{20}),
          .period = std::chrono::milliseconds{20},
          .half_life = {},
          .jobs_max = users};
}

std::uint64_t one(std::string_view) { return 1; }

void all_active(benchmark::State& state) {
  const auto users = static_cast<std::size_t>(state.range(0));
  const auto demands = load_of(users, 0);
  TreeAllocator tree(options_of(users));
  std::vector<TreeAllocator::Node> nodes;
  tree.allocate(demands, one, nodes);
  for (auto _ : state) {
    tree.allocate(demands, one, nodes);
    tree.forget_idle(users);
    benchmark::DoNotOptimize(nodes.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// In each period other users, so that in most of them the longest idle ones are forgotten.
void come_and_go(benchmark::State& state) {
  const auto users = static_cast<std::size_t>(state.range(0));
  std::vector<std::vector<TreeAllocator::Demand>> groups;
  for (std::size_t i = 0; i < 2 * kGroups; ++i) {
    groups.push_back(load_of(users / kGroups, i * users / kGroups));
  }
  TreeAllocator tree(options_of(users));
  std::vector<TreeAllocator::Node> nodes;
  std::size_t period = 0;
  for (auto _ : state) {
    tree.allocate(groups[period++ % groups.size()], one, nodes);
    tree.forget_idle(users);
    benchmark::DoNotOptimize(nodes.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) / static_cast<int>(kGroups));
}

BENCHMARK(all_active)->Arg(1000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(come_and_go)->Arg(1024)->Arg(102'400)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir
