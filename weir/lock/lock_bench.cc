// SPDX-License-Identifier: Apache-2.0
//
// The cost of a lock: acquired from the cache, enqueued and cancelled in the table, and with a
// million granted locks.
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/lock/client.h"
#include "weir/lock/server.h"

namespace weir::lock {
namespace {

constexpr Instant kNow{};

// A client and a server that exchange messages directly.
struct Pair {
  Pair() {
    server.connect(1, kNow);
    client.connected(kNow);
    talk();
  }
  void talk() {
    while (client.has_message(kNow)) {
      server.receive(1, client.take(kNow), kNow);
      server.dirty().clear();
      client.receive(server.take(1), kNow);
    }
    client.events().clear();
  }

  LockServer server{ServerOptions{.pool = {.limit = 10'000'000}}, 1, LockServer::Start::kFresh,
                    kNow};
  LockClient client{ClientOptions{}};
};

std::vector<std::string> names(std::size_t count) {
  std::vector<std::string> made;
  made.reserve(count);
  for (std::size_t i = 0; i < count; ++i) made.push_back("project/run42/file" + std::to_string(i));
  return made;
}

void BM_CachedLockTakenAgain(benchmark::State& state) {
  Pair pair;
  const std::vector<std::string> all = names(static_cast<std::size_t>(state.range(0)));
  for (const std::string& name : all) {
    const auto got = pair.client.acquire(name, Mode::kExclusive, LockTable::OrWait::kWait, kNow);
    pair.talk();
    pair.client.release(got.ticket, kNow);
  }
  std::size_t i = 0;
  for (auto _ : state) {
    const auto got = pair.client.acquire(all[i], Mode::kExclusive, LockTable::OrWait::kWait, kNow);
    benchmark::DoNotOptimize(got.is_held);
    pair.client.release(got.ticket, kNow);
    if (++i == all.size()) i = 0;
  }
}
BENCHMARK(BM_CachedLockTakenAgain)->Arg(100)->Arg(10'000);

void BM_TableEnqueueAndCancel(benchmark::State& state) {
  LockTable table(1);
  const LockTable::Session session = table.open();
  const std::vector<std::string> all = names(1000);
  std::size_t i = 0;
  for (auto _ : state) {
    const auto got = table.enqueue(session, i, all[i], Mode::kExclusive, LockTable::OrWait::kWait);
    table.cancel(session, got.handle);
    if (++i == all.size()) i = 0;
  }
}
BENCHMARK(BM_TableEnqueueAndCancel);

// Each lock has its own resource, as with files. bench/lock runs this benchmark alone and measures
// its memory.
void BM_MillionGranted(benchmark::State& state) {
  constexpr std::size_t kLocks = 1'000'000;
  for (auto _ : state) {
    LockTable table(1);
    const LockTable::Session session = table.open();
    for (std::size_t i = 0; i < kLocks; ++i) {
      table.enqueue(session, i, "project/run42/file" + std::to_string(i), Mode::kExclusive,
                    LockTable::OrWait::kWait);
    }
    benchmark::DoNotOptimize(table.granted());
  }
}
BENCHMARK(BM_MillionGranted)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace weir::lock
