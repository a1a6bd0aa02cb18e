// SPDX-License-Identifier: Apache-2.0
//
// The cost of a request in a Gate under tbf: next, complete and admit, while all classes have a
// backlog and every request has the hint of its connection.
//
//   equal     one rate for all, requests in memory in the order of their classes
//   random    a thousand rules of random rates, requests shuffled in memory
//   paced     every class waits for its next token, and time advances to the first
//
// measured_triples() does nothing else, so that instructions can be counted in it.
//
// BM_floor_order is the part of `random` that no scheduler can do without: the first of so many
// tags moves back by a random step, in a heap of the standard library.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
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
      : gate_({.slots = 1, .hp_slots = 0, .rules = {.classes_max = classes}}),
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
      std::string rule = "start r" + number;
      rule += " jobid={" + number;
      rule += ".*} rate=" + std::to_string(rng.between(100'000, 900'000));
      static_cast<void>(gate_.write_rule(rule, now_));
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
  // Each class is served once before the measurement.
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

void BM_floor_order(benchmark::State& state) {
  struct Tag {
    std::uint64_t start;
    std::uint64_t step;
    bool operator>(const Tag& other) const { return start > other.start; }
  };
  Rng rng(1);
  std::vector<Tag> tags(static_cast<std::size_t>(state.range(0)));
  for (Tag& tag : tags) {
    tag = {0, 1'000'000'000 / static_cast<std::uint64_t>(rng.between(100'000, 900'000))};
  }
  for (auto _ : state) {
    std::pop_heap(tags.begin(), tags.end(), std::greater<>());
    tags.back().start += tags.back().step;
    std::push_heap(tags.begin(), tags.end(), std::greater<>());
  }
}
BENCHMARK(BM_floor_order)->Arg(10)->Arg(1000);

// ---- classes ----

Request& named(Request& request, std::uint64_t number) {
  request.attributes.job = JobId("job" + std::to_string(number));
  return request;
}

// A tbf that has seen this many jobs.
std::unique_ptr<Tbf> known_jobs(std::uint64_t count, std::size_t classes_max) {
  RuleOptions options;
  options.classes_max = classes_max;
  auto tbf = std::make_unique<Tbf>(FieldSet{Field::kJobid}, options);
  Request request;
  for (std::uint64_t i = 0; i < count; ++i) {
    tbf->admit(named(request, i), Head::kRegular, instant_at(0));
    tbf->remove(request, Head::kRegular, instant_at(0));
  }
  return tbf;
}

void BM_Tbf_find(benchmark::State& state) {
  const auto classes = static_cast<std::uint64_t>(state.range(0));
  const auto tbf = known_jobs(classes, classes);
  Rng rng(1);
  std::vector<Attributes> asked(4096);
  for (Attributes& attributes : asked) {
    attributes.job = JobId("job" + std::to_string(rng.below(classes)));
  }
  std::size_t at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(tbf->totals(asked[at++ % asked.size()], Head::kRegular));
  }
}
BENCHMARK(BM_Tbf_find)->Arg(1000)->Arg(100'000);

void BM_Tbf_find_cached(benchmark::State& state) {
  const auto tbf = known_jobs(1000, 1000);
  Request request;
  ClassHint hint;
  request.hint = &hint;
  tbf->admit(named(request, 1), Head::kRegular, instant_at(0));
  tbf->remove(request, Head::kRegular, instant_at(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(hint);
    benchmark::DoNotOptimize(tbf->is_current(hint, Head::kRegular));
  }
}
BENCHMARK(BM_Tbf_find_cached);

// The first request of each of many new classes. Each is timed in several runs, and its fastest run
// counts: the code does the same each time, the machine does not.
void BM_Tbf_new_class(benchmark::State& state) {
  constexpr std::uint64_t kKnown = 100'000;
  constexpr std::uint64_t kNew = 20'000;
  constexpr int kRuns = 5;
  using Clock = std::chrono::steady_clock;
  std::vector<std::int64_t> fastest(kNew, INT64_MAX);
  for (auto _ : state) {
    for (int run = 0; run < kRuns; ++run) {
      const auto tbf = known_jobs(kKnown, kKnown + kNew);
      std::deque<Request> requests(kNew);
      for (std::uint64_t i = 0; i < kNew; ++i) {
        Request& request = named(requests[i], kKnown + i);
        const auto start = Clock::now();
        tbf->admit(request, Head::kRegular, instant_at(0));
        const std::int64_t took = (Clock::now() - start).count();
        fastest[i] = std::min(fastest[i], took);
      }
      for (Request& request : requests) tbf->remove(request, Head::kRegular, instant_at(0));
    }
  }
  std::sort(fastest.begin(), fastest.end());
  state.counters["p99_ns"] = static_cast<double>(fastest[kNew * 99 / 100]);
  state.counters["worst_ns"] = static_cast<double>(fastest.back());
}
BENCHMARK(BM_Tbf_new_class)->Iterations(1)->Unit(benchmark::kMillisecond);

double per_class(std::uint64_t bytes, std::uint64_t classes) {
  return static_cast<double>(bytes) / static_cast<double>(classes);
}

void BM_Tbf_memory(benchmark::State& state) {
  const auto classes = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    std::deque<Request> requests(classes);
    const std::uint64_t empty = resident_bytes();
    const auto tbf = known_jobs(classes, classes);
    const std::uint64_t idle = resident_bytes();
    for (std::uint64_t i = 0; i < classes; ++i) {
      tbf->admit(named(requests[i], i), Head::kRegular, instant_at(0));
    }
    const std::uint64_t backlogged = resident_bytes();
    state.counters["idle_bytes"] = per_class(idle - empty, classes);
    state.counters["backlogged_bytes"] = per_class(backlogged - empty, classes);
    for (Request& request : requests) tbf->remove(request, Head::kRegular, instant_at(0));
  }
}
BENCHMARK(BM_Tbf_memory)->Arg(100'000)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir
