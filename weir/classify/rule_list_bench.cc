// SPDX-License-Identifier: Apache-2.0
//
// The cost of a new class: its request is matched against all rules. The requests match no rule, or
// the last one, so every rule is checked.
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/base/allocations_bench.h"
#include "weir/base/assert.h"
#include "weir/base/rng.h"
#include "weir/classify/rule_list.h"

namespace weir {
namespace {

void start(RuleList& list, std::int64_t number, const std::string& conds) {
  const std::string text = "start r" + std::to_string(number) + " " + conds + " rate=5";
  WEIR_ASSERT(list.apply(parse_command(text, list.type()).value()).has_value());
}

// Distinct requests, so that no branch predictor learns the results.
std::vector<Attributes> make_requests(Rng& rng) {
  std::vector<Attributes> requests(1024);
  for (Attributes& request : requests) {
    request.job = JobId("other." + std::to_string(rng.below(100'000)));
    request.nid = {0, 0xc0a8'0000 + rng.below(65536), 0, NetType::kTcp, AddressFamily::kIpv4};
    request.uid = 100'000 + static_cast<std::uint32_t>(rng.below(1000));
    request.opcode = 3;
  }
  return requests;
}

template <class Conds>
void match_loop(benchmark::State& state, Conds conds) {
  RuleList list(FieldSet::generic());
  for (std::int64_t i = 0; i < state.range(0); ++i) start(list, i, conds(std::to_string(i), i));
  Rng rng(1);
  const std::vector<Attributes> requests = make_requests(rng);
  benchmark::DoNotOptimize(list.match(requests[0], 0));  // builds the index
  const std::uint64_t allocated = allocations();
  std::size_t turn = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(list.match(requests[turn++ % requests.size()], 0));
  }
  state.counters["allocations"] = static_cast<double>(allocations() - allocated);
}

void BM_MatchLiteralJobs(benchmark::State& state) {
  match_loop(state, [](const std::string& n, std::int64_t) { return "jobid={dd." + n + "}"; });
}
BENCHMARK(BM_MatchLiteralJobs)->Arg(10)->Arg(1000)->Arg(10'000);

void BM_MatchJobGlobs(benchmark::State& state) {
  match_loop(state, [](const std::string& n, std::int64_t) { return "jobid={*o*r." + n + "x}"; });
}
BENCHMARK(BM_MatchJobGlobs)->Arg(10)->Arg(1000);

void BM_MatchNidPrefixes(benchmark::State& state) {
  match_loop(state, [](const std::string&, std::int64_t i) {
    return "nid={10." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ".0/24@tcp}";
  });
}
BENCHMARK(BM_MatchNidPrefixes)->Arg(10)->Arg(1000);

void BM_MatchNidLists(benchmark::State& state) {
  match_loop(state, [](const std::string&, std::int64_t i) {
    return "nid={10.168." + std::to_string(i % 256) + ".[1-8,16-24/2]@tcp [0-8]@gni}";
  });
}
BENCHMARK(BM_MatchNidLists)->Arg(10)->Arg(1000);

void BM_MatchUsers(benchmark::State& state) {
  match_loop(state, [](const std::string& n, std::int64_t) { return "uid={" + n + "}"; });
}
BENCHMARK(BM_MatchUsers)->Arg(10)->Arg(1000);

// All kinds in turn, half of them with a second condition.
void BM_MatchMixed(benchmark::State& state) {
  match_loop(state, [](const std::string& n, std::int64_t i) -> std::string {
    const std::string part = std::to_string(i % 256);
    switch (i % 4) {
      case 0:
        return "jobid={dd." + n + " cp." + n + "}&opcode={ost_write}";
      case 1:
        return "jobid={*." + n + "}";
      case 2:
        return "nid={192.168." + part + ".[1-8,16-24/2]@tcp}&uid={" + n + "}";
      default:
        return "uid={" + n + "},gid={" + n + "}&opcode={ost_read}";
    }
  });
}
BENCHMARK(BM_MatchMixed)->Arg(10)->Arg(1000)->Arg(10'000);

// The first match after a command also builds the index.
void BM_FirstMatchAfterACommand(benchmark::State& state) {
  RuleList list(FieldSet::generic());
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    start(list, i, "jobid={dd." + std::to_string(i) + "}");
  }
  Rng rng(1);
  const std::vector<Attributes> requests = make_requests(rng);
  const auto first = parse_command("change r1 rank=r5", list.type()).value();
  const auto second = parse_command("change r1 rank=r3", list.type()).value();
  std::size_t turn = 0;
  for (auto _ : state) {
    WEIR_ASSERT(list.apply(turn++ % 2 == 0 ? first : second).has_value());
    benchmark::DoNotOptimize(list.match(requests[turn % requests.size()], 0));
  }
}
BENCHMARK(BM_FirstMatchAfterACommand)->Arg(1000)->Arg(10'000);

void BM_ParseCommand(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(parse_command(
        "start dd jobid={dd.* cp.0}&nid={10.0.0.[1-8]@tcp} rate=100", FieldSet::generic()));
  }
}
BENCHMARK(BM_ParseCommand);

void BM_AttributesHash(benchmark::State& state) {
  Rng rng(1);
  const std::vector<Attributes> requests = make_requests(rng);
  std::size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(requests[turn++ % requests.size()].hash());
}
BENCHMARK(BM_AttributesHash);

}  // namespace
}  // namespace weir
