// SPDX-License-Identifier: Apache-2.0
//
// The cost of a request in the Gate: admit, next and complete, while all classes have a backlog.
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/schedule/gate.h"

namespace weir {
namespace {

void pass_through(benchmark::State& state, const char* policy) {
  const auto clients = static_cast<std::uint64_t>(state.range(0));
  constexpr std::uint64_t kBacklog = 4;
  Gate gate({.slots = 1});
  if (!gate.start_policy(policy, "", Heads::kBoth)) return state.SkipWithError("no such policy");
  Instant now = instant_at(0);
  std::vector<std::unique_ptr<Request>> requests;
  for (std::uint64_t i = 0; i < clients * kBacklog; ++i) {
    auto& request = *requests.emplace_back(std::make_unique<Request>());
    request.attributes.nid.low = i % clients;
    request.attributes.nid.net = NetType::kTcp;
    gate.admit(request, Head::kRegular, now);
  }
  for (auto _ : state) {
    now += Nanoseconds{100};
    Request& request = gate.next(now).request();
    gate.complete(request, now);
    gate.admit(request, Head::kRegular, now);
  }
  for (auto& request : requests) gate.withdraw(*request, now);
}
BENCHMARK_CAPTURE(pass_through, fifo, "fifo")->Arg(10)->Arg(1000);
BENCHMARK_CAPTURE(pass_through, crrn, "crrn")->Arg(10)->Arg(1000);

}  // namespace
}  // namespace weir
