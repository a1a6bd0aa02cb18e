// SPDX-License-Identifier: Apache-2.0
//
// The cost of a decision under shares: next, complete and admit, while all jobs have a backlog.
//
//   flat     one level: every job has a share of the target
//   tree     three levels: ten projects, their users, and as many jobs for each user
//
//   ready    all shares can always pay
//   paced    time advances to the first share that can pay
//
// Weights of jobs are random, so that neither order is that of memory.
//
// measured_triples() does nothing else, so that instructions can be counted in it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/allocations_bench.h"
#include "weir/base/rng.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/rule_engine.h"

namespace weir {
namespace {

enum class Levels : std::uint8_t { kFlat, kTree };
constexpr std::uint64_t kProjects = 10;
constexpr std::uint64_t kBacklog = 2;
constexpr Tokens kDepth{8};

Gate::Options options_of(std::uint64_t jobs, Levels levels) {
  Gate::Options options{.slots = 1, .hp_slots = 0, .rules = {.classes_max = jobs}};
  options.rules.sharing = Sharing{};
  if (levels == Levels::kTree) {
    options.rules.sharing->levels = {{Field::kProjid}, {Field::kUid}};
  }
  return options;
}

class Load {
 public:
  Load(std::uint64_t jobs, Levels levels)
      : gate_(options_of(jobs, levels)),
        hints_(jobs),
        requests_(jobs * kBacklog),
        users_(jobs == 1000 ? 10 : 100) {
    static_cast<void>(gate_.start_policy("tbf", "jobid", Heads::kBoth));
    // One rule without a limit: the order is by shares alone.
    static_cast<void>(gate_.write_rule("change default rate=0", now_));
    std::vector<std::uint32_t> order(requests_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    Rng rng(1);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    RuleEngine& engine = *gate_.engine(Head::kRegular);
    for (std::uint64_t i = 0; i < jobs; ++i) {
      engine.set_share(job(i), Rate::per_second(1000), kDepth, 1 + rng.below(1000), now_);
    }
    if (levels == Levels::kTree) {
      for (std::uint64_t p = 0; p < kProjects; ++p) {
        const std::uint64_t in_project = jobs / kProjects * 1000;
        set(engine, {JobId(std::to_string(p))}, in_project, 1 + p);
        for (std::uint64_t u = 0; u < users_; ++u) {
          set(engine, {JobId(std::to_string(p)), JobId(std::to_string(u))}, in_project / users_,
              1 + u % 3);
        }
      }
    }
    for (std::uint64_t i = 0; i < order.size(); ++i) admit(order[i], i % jobs);
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
  static JobId job(std::uint64_t number) { return JobId("job" + std::to_string(number)); }
  void set(RuleEngine& engine, const std::vector<JobId>& path, std::uint64_t rate,
           std::uint64_t weight) {
    engine.set_node_share(path, Rate::per_second(rate), Tokens{4 * rate / 50}, weight, now_);
  }
  void admit(std::uint32_t place, std::uint64_t number) {
    Request& request = requests_[place];
    request.attributes.job = job(number);
    request.attributes.projid = static_cast<std::uint32_t>(number % kProjects);
    request.attributes.uid = static_cast<std::uint32_t>(number / kProjects % users_);
    request.hint = &hints_[number];
    gate_.admit(request, Head::kRegular, now_);
  }

  Instant now_ = instant_at(1'000'000'000);
  Gate gate_;
  std::vector<ClassHint> hints_;
  std::deque<Request> requests_;
  std::uint64_t users_;
};

[[gnu::noinline]] void measured_triples(Load& load, std::uint64_t count, Nanoseconds step) {
  for (std::uint64_t i = 0; i < count; ++i) load.pass(step);
}

void triples(benchmark::State& state, Levels levels, Nanoseconds step) {
  constexpr std::int64_t kBatch = 1000;
  const auto jobs = static_cast<std::uint64_t>(state.range(0));
  Load load(jobs, levels);
  measured_triples(load, jobs * kBacklog, step);
  const std::uint64_t allocated = allocations();
  while (state.KeepRunningBatch(kBatch)) measured_triples(load, kBatch, step);
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
}

void BM_Shares_flat_ready(benchmark::State& state) {
  triples(state, Levels::kFlat, std::chrono::seconds{1});
}
BENCHMARK(BM_Shares_flat_ready)->Arg(1000)->Arg(100'000);
void BM_Shares_tree_ready(benchmark::State& state) {
  triples(state, Levels::kTree, std::chrono::seconds{1});
}
BENCHMARK(BM_Shares_tree_ready)->Arg(1000)->Arg(100'000);

// As fast as the shares of all jobs together allow.
void BM_Shares_flat_paced(benchmark::State& state) {
  triples(state, Levels::kFlat, Nanoseconds{1'000'000 / state.range(0)});
}
BENCHMARK(BM_Shares_flat_paced)->Arg(1000)->Arg(100'000);
void BM_Shares_tree_paced(benchmark::State& state) {
  triples(state, Levels::kTree, Nanoseconds{1'000'000 / state.range(0)});
}
BENCHMARK(BM_Shares_tree_paced)->Arg(1000)->Arg(100'000);

}  // namespace
}  // namespace weir
