// SPDX-License-Identifier: Apache-2.0
//
// Eight threads on one SharedGate: every request is handed out once and answered, whatever else
// happens to the gate meanwhile; and a request that waits for a token is handed out when the token
// is due.
#include <algorithm>
#include <atomic>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "weir/embed/shared_gate.h"
#include "weir/host/clock.h"

namespace weir::embed {
namespace {

constexpr int kThreads = 8;

struct Tracked : Request {
  std::atomic<int> handed_out{0};
};

// Threads that start meanwhile run before those of ordinary processes, where that is permitted:
// the delays that a test measures are then those of Weir, and not those of a busy machine.
class BeforeOthers {
 public:
  BeforeOthers() { run(SCHED_RR, 1); }
  ~BeforeOthers() { run(SCHED_OTHER, 0); }
  BeforeOthers(const BeforeOthers&) = delete;
  BeforeOthers& operator=(const BeforeOthers&) = delete;

 private:
  static void run(int policy, int priority) {
    const sched_param parameter{.sched_priority = priority};
    static_cast<void>(sched_setscheduler(0, policy, &parameter));
  }
};

// The argument of a worker's callback: the worker serves until it gets nullptr.
struct Worker {
  SharedGate* gate;
  std::atomic<int>* served;
  std::binary_semaphore* finished;

  static void serve(Request* request, void* argument) {
    auto& worker = *static_cast<Worker*>(argument);
    if (request == nullptr) return worker.finished->release();
    static_cast<Tracked*>(request)->handed_out.fetch_add(1);
    worker.served->fetch_add(1);
    worker.gate->complete(*request);
    worker.gate->get_next(serve, argument);
  }
};

TEST(SharedGateStress, EveryRequestIsHandedOutOnceWhateverHappensMeanwhile) {
  constexpr int kEach = 3000;
  auto gate = std::move(*SharedGate::create({.slots = 3}));
  ASSERT_TRUE(gate->start_policy("tbf", "jobid", Heads::kBoth));
  std::vector<std::unique_ptr<Tracked>> all;
  for (int i = 0; i < kThreads * kEach; ++i) {
    all.push_back(std::make_unique<Tracked>());
    all.back()->attributes.job = JobId("job" + std::to_string(i % 20));
  }
  std::atomic<int> served{0}, withdrawn{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::vector<std::unique_ptr<std::binary_semaphore>> finished;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 3; ++i) {
    finished.push_back(std::make_unique<std::binary_semaphore>(0));
    workers.push_back(std::make_unique<Worker>(Worker{gate.get(), &served, finished.back().get()}));
    gate->get_next(Worker::serve, workers.back().get());
  }
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Request& request = *all[static_cast<std::size_t>(t) * kEach + static_cast<std::size_t>(i)];
        gate->incoming(request, i % 7 == 0 ? Head::kHigh : Head::kRegular);
        if (i % 11 == 0 && gate->withdraw(request)) withdrawn.fetch_add(1);
        if (i % 500 == 250) {
          // Refused while a policy without rules runs.
          const std::string rule = "r" + std::to_string(t);
          static_cast<void>(gate->apply_rule("start " + rule + " jobid={job" + std::to_string(t) +
                                             "} rate=50000"));
          static_cast<void>(gate->apply_rule("stop " + rule));
        }
        if (t == 0 && i % 1000 == 999) {
          EXPECT_TRUE(gate->start_policy(i % 2000 == 999 ? "crrn" : "fifo", "", Heads::kBoth));
          EXPECT_TRUE(gate->start_policy("tbf", "jobid", Heads::kBoth));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  gate->shutdown();
  for (auto& done : finished) done->acquire();
  EXPECT_EQ(served + withdrawn, kThreads * kEach);
  for (const auto& tracked : all) EXPECT_LE(tracked->handed_out.load(), 1);
}

TEST(SharedGateStress, AThrottledRequestComesWithItsTokenThoughNothingElseHappens) {
  const BeforeOthers before_others;
  auto gate = std::move(*SharedGate::create({.slots = 1}));
  ASSERT_TRUE(gate->start_policy("tbf", "jobid", Heads::kBoth));
  ASSERT_TRUE(gate->apply_rule("start slow jobid={*} rate=100 burst=1"));
  struct Wait {
    std::binary_semaphore came{0};
    Instant at;
  };
  constexpr int kTokens = 21;
  std::vector<Nanoseconds> late;
  Request first;
  gate->incoming(first);
  Instant token;
  for (int i = 0; i <= kTokens; ++i) {
    Wait wait;
    gate->get_next(
        [](Request*, void* argument) {
          auto& waiting = *static_cast<Wait*>(argument);
          waiting.at = host::now();
          waiting.came.release();
        },
        &wait);
    wait.came.acquire();
    // One token deep: the next arrives 10 ms after this one was taken.
    if (i > 0) late.push_back(wait.at - token);
    token = wait.at + std::chrono::milliseconds{10};
    gate->complete(first);
    gate->incoming(first);
  }
  ASSERT_TRUE(gate->withdraw(first));
  gate->shutdown();
  std::sort(late.begin(), late.end());
  // The bucket may have been charged a little before the callback noted the time.
  EXPECT_GT(late.front(), -Nanoseconds{std::chrono::milliseconds{5}});
  EXPECT_LT(late[late.size() / 2], Nanoseconds{std::chrono::milliseconds{1}}) << "in the middle";
}

}  // namespace
}  // namespace weir::embed
