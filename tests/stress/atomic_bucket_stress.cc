// SPDX-License-Identifier: Apache-2.0
//
// Threads that take from one AtomicBucket at the same time, each with its own time. Together they
// must not get more than the bucket allows, and tokens that they did not get must still be
// available: no exchange may be lost. Also runs under the thread sanitizer.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weir/pace/atomic_bucket.h"

namespace weir {
namespace {

constexpr int kThreads = 8;
constexpr std::int64_t kEndNs = 2'000'000;

// Takes tokens of `cost` as fast as it can while its own time runs from 0 to kEndNs.
std::uint64_t take_all(AtomicBucket& bucket, const BucketShape& shape, AtomicSpill& spill,
                       Tokens cost, std::int64_t step_ns) {
  std::uint64_t taken = 0;
  for (std::int64_t ns = 0; ns <= kEndNs; ns += step_ns) {
    if (bucket.take(cost, shape, instant_at(ns), spill)) taken += cost.count();
  }
  return taken;
}

std::uint64_t run_threads(AtomicBucket& bucket, const BucketShape& shape, AtomicSpill& spill) {
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Tokens cost{static_cast<std::uint64_t>(1 + i % 3)};
      taken += take_all(bucket, shape, spill, cost, 50 + 10 * i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return taken;
}

TEST(AtomicBucketStress, ThreadsTogetherGetWhatTheBucketAllowsAndNoMore) {
  // 10 ns a token, and times in multiples of it, so that no fraction affects the sum.
  const BucketShape shape(Rate::per_second(100'000'000), Tokens{1000});
  AtomicBucket bucket(shape, instant_at(0));
  AtomicSpill spill;
  std::uint64_t taken = run_threads(bucket, shape, spill);
  const std::uint64_t came_in = 1000 + kEndNs / 10;
  EXPECT_LE(taken, came_in);
  while (bucket.take(Tokens{1}, shape, instant_at(kEndNs), spill)) ++taken;
  EXPECT_EQ(taken + spill.collect(shape).count(), came_in);
}

TEST(AtomicBucketStress, ABucketThatIsReadAndThenWrittenIsCaught) {
  // Mistake: the check and the debit are two steps, so two threads may be paid with one token.
  std::atomic<std::int64_t> level{1'000'000};
  std::atomic<std::int64_t> taken{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1'000'000; ++n) {
        const std::int64_t seen = level.load();
        if (seen <= 0) break;
        if (n % 1024 == 0) std::this_thread::yield();
        level.store(seen - 1);
        taken.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken.load(), 1'000'000) << "the threads never met: the stress does not bite";
}

}  // namespace
}  // namespace weir
