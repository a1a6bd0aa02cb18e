// SPDX-License-Identifier: Apache-2.0
//
// The cost of an event of a simulated run, with and without checkers. An event is taken from the
// heap: a request is done (and the next one arrives, is admitted and dispatched in the same turn),
// a process sends more, a timer fires. The load is that of scenario redistribution.
#include <chrono>

#include <benchmark/benchmark.h>

#include "weir/sim/world.h"

namespace weir::sim {
namespace {

using std::chrono::seconds;

Scenario load() {
  Scenario scenario;
  scenario.length = seconds{60};
  scenario.targets[0].store.service.kind = ServiceTime::Kind::kUniform;
  scenario.jobs.resize(4);
  constexpr std::uint64_t kRequests[] = {200, 150, 300};
  constexpr int kEvery[] = {5, 3, 9};
  for (std::size_t i = 0; i < 4; ++i) {
    JobSpec& job = scenario.jobs[i];
    job.name = "job" + std::to_string(i + 1);
    job.nodes = i < 3 ? 3 : 1;
    ProcessSpec process;
    process.count = i < 3 ? 2 : 16;
    if (i < 3) {
      process.kind = ProcessSpec::Kind::kBurst;
      process.requests = kRequests[i];
      process.every = seconds{kEvery[i]};
      process.start = seconds{static_cast<int>(i)};
    }
    job.processes = {process};
  }
  return scenario;
}

void measure(benchmark::State& state, bool checkers) {
  const Scenario scenario = load();
  const auto contender = static_cast<Contender>(state.range(0));
  state.SetLabel(std::string(contender_name(contender)));
  RunOptions options;
  options.checkers = checkers;
  options.keep_periods = false;
  std::uint64_t events = 0;
  for (auto _ : state) {
    const auto outcome = run(scenario, contender, options);
    events += outcome->events;
  }
  state.counters["events_per_second"] =
      benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}

void BM_World_unchecked(benchmark::State& state) { measure(state, false); }
void BM_World_checked(benchmark::State& state) { measure(state, true); }

BENCHMARK(BM_World_unchecked)->DenseRange(0, 4);
BENCHMARK(BM_World_checked)->DenseRange(0, 4);

}  // namespace
}  // namespace weir::sim
