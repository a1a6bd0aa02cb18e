// SPDX-License-Identifier: Apache-2.0
//
// Throughput of threads that share one SharedGate, in turns per second: each is a triple of
// complete, admit and next under one lock, and all classes have a backlog.
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/assert.h"
#include "weir/embed/shared_gate.h"

namespace weir::embed {
namespace {

constexpr std::uint64_t kBacklog = 4;

struct Shop {
  explicit Shop(std::uint64_t classes) : hints(classes), requests(classes * kBacklog) {
    auto made = SharedGate::create({.slots = 16, .rules = {.classes_max = classes}});
    WEIR_ASSERT(made && (*made)->start_policy("tbf", "jobid", Heads::kBoth));
    gate = std::move(*made);
    // So fast that no request waits for a token.
    WEIR_ASSERT(gate->apply_rule("change default rate=999999 burst=1000000000"));
    for (std::uint64_t i = 0; i < requests.size(); ++i) {
      requests[i].attributes.job = JobId("job" + std::to_string(i % classes));
      requests[i].hint = &hints[i % classes];
      gate->incoming(requests[i]);
    }
  }
  ~Shop() {
    for (Request& request : requests) {
      if (!gate->withdraw(request)) gate->complete(request);
    }
    gate->shutdown();
  }

  std::vector<ClassHint> hints;
  std::deque<Request> requests;
  std::unique_ptr<SharedGate> gate;
};

void keep(Request* request, void* kept) { *static_cast<Request**>(kept) = request; }

void BM_SharedGate_triple(benchmark::State& state) {
  static std::unique_ptr<Shop> shop;
  if (state.thread_index() == 0)
    shop = std::make_unique<Shop>(static_cast<std::uint64_t>(state.range(0)));
  Request* mine = nullptr;
  for (auto _ : state) {
    shop->gate->turn(mine, mine, keep, &mine);
  }
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) shop.reset();
}
BENCHMARK(BM_SharedGate_triple)->Arg(10)->Arg(1000)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace weir::embed
