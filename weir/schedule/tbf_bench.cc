// SPDX-License-Identifier: Apache-2.0
//
// What a request costs on its way through a Gate under tbf: next, complete and admit, all classes
// with a backlog, every request with its connection's hint.
//
//   equal     one rate for all, requests in memory in the order of their classes
//   random    a thousand rules of random rates, requests shuffled in memory
//   paced     every class waits for its next token, and time moves on to the first
//
// measured_triples() does nothing else, so that instructions can be counted in it.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/allocations_bench.h"
#include "weir/base/rng.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

enum class Rates : std::uint8_t { kEqual, kRandom };
constexpr std::uint64_t kRandomRules = 1000;
constexpr std::uint64_t kBacklog = 2;

class Load {
 public:
  Load(std::uint64_t classes, Rates rates)
      : gate_({.slots = 1, .hp_slots = 0, .tbf = {.classes_max = classes}}),
        hints_(classes),
        requests_(classes * kBacklog),
        order_(classes * kBacklog) {
    static_cast<void>(gate_.start_policy("tbf", "jobid", Heads::kBoth));
    for (std::uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
    if (rates == Rates::kRandom) mix(classes);
    for (std::uint64_t i = 0; i < order_.size(); ++i) admit(order_[i], i % classes);
  }
  ~Load() {
    for (Request& request : requests_) gate_.withdraw(request, now_);
  }

  void pass(Nanoseconds step) {
    now_ += step;
    Decision decision = gate_.next(now_);
    if (decision.kind() == Decision::Kind::kWait) {
      now_ = decision.until();
      decision = gate_.next(now_);
    }
    Request& request = decision.request();
    gate_.complete(request, now_);
    gate_.admit(request, Head::kRegular, now_);
  }

 private:
  void mix(std::uint64_t classes) {
    Rng rng(1);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.below(i)]);
    for (std::uint64_t i = 0; i < std::min(classes, kRandomRules); ++i) {
      const std::string number = std::to_string(i);
      static_cast<void>(gate_.apply_rule("start r" + number + " jobid={" + number + ".*} rate=" +
                                             std::to_string(rng.between(100'000, 900'000)),
                                         now_));
    }
  }
  void admit(std::uint32_t place, std::uint64_t number) {
    Request& request = requests_[place];
    request.attributes.job =
        JobId(std::to_string(number % kRandomRules) + "." + std::to_string(number));
    request.hint = &hints_[number];
    gate_.admit(request, Head::kRegular, now_);
  }

  Instant now_ = instant_at(0);
  Gate gate_;
  std::vector<ClassHint> hints_;
  std::deque<Request> requests_;
  std::vector<std::uint32_t> order_;
};

[[gnu::noinline]] void measured_triples(Load& load, std::uint64_t count, Nanoseconds step) {
  for (std::uint64_t i = 0; i < count; ++i) load.pass(step);
}

void triples(benchmark::State& state, Rates rates, Nanoseconds step) {
  constexpr std::int64_t kBatch = 1000;
  const auto classes = static_cast<std::uint64_t>(state.range(0));
  Load load(classes, rates);
  // Each class has its turn once before it counts.
  measured_triples(load, classes * kBacklog, step);
  const std::uint64_t allocated = allocations();
  while (state.KeepRunningBatch(kBatch)) measured_triples(load, kBatch, step);
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
  state.counters["triples"] =
      static_cast<double>(state.iterations()) + static_cast<double>(classes * kBacklog);
}

void BM_Tbf_triple_equal(benchmark::State& state) {
  triples(state, Rates::kEqual, std::chrono::seconds{1});
}
BENCHMARK(BM_Tbf_triple_equal)->Arg(10)->Arg(1000)->Arg(100'000)->Arg(1'000'000);

void BM_Tbf_triple_random(benchmark::State& state) {
  triples(state, Rates::kRandom, std::chrono::seconds{1});
}
BENCHMARK(BM_Tbf_triple_random)->Arg(10)->Arg(1000)->Arg(100'000)->Arg(1'000'000);

void BM_Tbf_paced(benchmark::State& state) { triples(state, Rates::kEqual, Nanoseconds{0}); }
BENCHMARK(BM_Tbf_paced)->Arg(10)->Arg(1000)->Arg(100'000);

}  // namespace
}  // namespace weir
