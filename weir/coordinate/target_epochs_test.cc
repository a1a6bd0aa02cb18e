// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/target_epochs.h"

#include <deque>

#include <gtest/gtest.h>

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// Counts the calls of a scheduler, and calls back at once.
class EpochCounter final : public EpochHandler {
 public:
  void next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                  Instant now) override {
    ++next_calls;
    last_current = current;
    callback(next_calls, data, now);
  }
  void last_epoch(std::int64_t current, Instant /*now*/) override {
    ++last_calls;
    last_current = current;
  }
  int next_calls = 0;
  int last_calls = 0;
  std::int64_t last_current = -1;
};

class TenMilliseconds final : public EpochUse {
 public:
  EpochBytes ready(Instant) override { return {}; }
  Nanoseconds start_epoch(std::int64_t, EpochView, Instant) override {
    ++started;
    return milliseconds{10};
  }
  void alone(std::int64_t, Instant) override {}
  int started = 0;
};

struct Life {
  Target target{{.gate = {.slots = 1}}, {}};
  EpochCounter handler;
  TenMilliseconds use;
  TargetEpochs epochs{target, handler, use};
};

TEST(TargetEpochs, InitCallsNextEpochOnceWithoutANumber) {
  Life life;
  life.epochs.init(at(0));
  EXPECT_EQ(life.handler.next_calls, 1);
  EXPECT_EQ(life.handler.last_current, kFirstEpoch);
  EXPECT_EQ(life.use.started, 1);
  EXPECT_EQ(life.epochs.next_wake(), at(10));
  life.epochs.tick(at(9));
  EXPECT_EQ(life.handler.next_calls, 1);
  life.epochs.tick(at(10));
  EXPECT_EQ(life.handler.next_calls, 2);
  EXPECT_EQ(life.handler.last_current, 1);
}

TEST(TargetEpochs, LastEpochComesWhenWhatWasQueuedHasBeenHandedOut) {
  Life life;
  std::deque<Request> requests(2);
  for (Request& request : requests) life.target.admit(request, Head::kRegular, at(0));
  life.epochs.init(at(0));
  life.target.shutdown(at(1));
  life.epochs.tick(at(10));
  EXPECT_EQ(life.handler.last_calls, 0);
  EXPECT_EQ(life.handler.next_calls, 2) << "it goes on with its peers until then";
  for (Request& request : requests) {
    EXPECT_EQ(&life.target.next(at(11)).request(), &request);
    life.target.complete(request, at(11));
  }
  EXPECT_EQ(life.target.next(at(11)).kind(), Decision::Kind::kIdle);
  life.epochs.tick(at(11));
  EXPECT_EQ(life.handler.last_calls, 1);
  EXPECT_EQ(life.handler.last_current, 2);
  EXPECT_TRUE(life.epochs.is_over());
  EXPECT_EQ(life.epochs.next_wake(), kNever);
  life.epochs.tick(at(100));
  EXPECT_EQ(life.handler.last_calls, 1);
  EXPECT_EQ(life.handler.next_calls, 2);
}

}  // namespace
}  // namespace weir
