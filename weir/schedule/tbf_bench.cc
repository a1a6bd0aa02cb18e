// SPDX-License-Identifier: Apache-2.0
//
// What a request costs on its way through a Gate under tbf: next, complete and admit, all classes
// with a backlog. Overload: every class may run and tags decide. Paced: every class waits for its
// next token, and time moves on to the first.
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/schedule/gate.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

class Load {
 public:
  explicit Load(std::uint64_t classes)
      : gate_({.slots = 1, .hp_slots = 0, .tbf = {.classes_max = classes + 1}}) {
    if (!gate_.start_policy("tbf", "jobid", Heads::kBoth)) return;
    constexpr std::uint64_t kBacklog = 2;
    requests_.reserve(classes * kBacklog);
    for (std::uint64_t i = 0; i < classes * kBacklog; ++i) {
      auto& request = *requests_.emplace_back(std::make_unique<Request>());
      request.attributes.job = JobId("job" + std::to_string(i % classes));
      gate_.admit(request, Head::kRegular, now_);
    }
  }
  ~Load() {
    for (auto& request : requests_) gate_.withdraw(*request, now_);
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
  Instant now_ = instant_at(0);
  std::vector<std::unique_ptr<Request>> requests_;
  Gate gate_;
};

void BM_Tbf_overload(benchmark::State& state) {
  Load load(static_cast<std::uint64_t>(state.range(0)));
  for (auto _ : state) load.pass(std::chrono::milliseconds{1});
}
BENCHMARK(BM_Tbf_overload)->Arg(10)->Arg(1000)->Arg(100'000);

void BM_Tbf_paced(benchmark::State& state) {
  Load load(static_cast<std::uint64_t>(state.range(0)));
  for (auto _ : state) load.pass(Nanoseconds{0});
}
BENCHMARK(BM_Tbf_paced)->Arg(10)->Arg(1000)->Arg(100'000);

}  // namespace
}  // namespace weir
