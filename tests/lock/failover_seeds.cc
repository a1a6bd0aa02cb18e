// SPDX-License-Identifier: Apache-2.0
//
// Seeded fault schedules of lock servers that take over from each other (weir/sim/lock_failover.h),
// too many for the unit tests.
//
//   failover_seeds FIRST COUNT        exits with 1 if a holder was not alone, and names the seed
//
// Each seed is a run of its own, so threads share nothing but the next number.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "weir/sim/lock_failover.h"

namespace {

struct Totals {
  std::mutex mutex;
  std::uint64_t uses = 0;
  std::uint64_t lost = 0;
  std::uint64_t terms = 0;
  std::uint64_t faults = 0;
  std::uint64_t findings = 0;
};

void add(Totals& totals, const weir::sim::FailoverOutcome& outcome, std::uint64_t seed) {
  const std::lock_guard<std::mutex> lock(totals.mutex);
  totals.uses += outcome.uses;
  totals.lost += outcome.lost;
  totals.terms += outcome.terms;
  totals.faults += outcome.faults;
  totals.findings += outcome.findings;
  for (const std::string& text : outcome.first_findings) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const std::uint64_t first = std::strtoull(argv[1], nullptr, 10);
  const std::uint64_t end = first + std::strtoull(argv[2], nullptr, 10);
  Totals totals;
  std::atomic<std::uint64_t> next = first;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t seed = next++; seed < end; seed = next++) {
        add(totals, weir::sim::run_failover({}, seed), seed);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  std::printf(
      "schedules %llu, faults %llu, terms %llu, locks held %llu, lost in use %llu, "
      "findings %llu\n",
      static_cast<unsigned long long>(end - first), static_cast<unsigned long long>(totals.faults),
      static_cast<unsigned long long>(totals.terms), static_cast<unsigned long long>(totals.uses),
      static_cast<unsigned long long>(totals.lost),
      static_cast<unsigned long long>(totals.findings));
  return totals.findings == 0 && totals.uses > 0 ? 0 : 1;
}
