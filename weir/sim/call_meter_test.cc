// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/call_meter.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

// One batch of samples.
constexpr int kCalls = static_cast<int>(CallMeter::kEvery * CallMeter::kBatch);

// A clock that moves by 7 whenever it is read, and with what is measured.
struct TestClock {
  Nanoseconds now{0};
  std::uint64_t switches = 0;
  std::uint64_t readings = 0;

  Stopwatch stopwatch() {
    return {.now =
                [this] {
                  ++readings;
                  now += Nanoseconds{7};
                  return now;
                },
            .switches = [this] { return switches; }};
  }
};

TEST(CallMeter, EstimatesAllCallsFromEvery101st) {
  TestClock clock;
  CallMeter meter(clock.stopwatch());
  const std::uint64_t before = clock.readings;
  for (int i = 0; i < kCalls; ++i) {
    const CallMeter::Span span = meter.span();
    clock.now += Nanoseconds{100};
  }
  // The 7 that a reading takes are not part of it.
  EXPECT_EQ(meter.estimate(), Nanoseconds{kCalls * 100});
  EXPECT_EQ(clock.readings - before, 2 * CallMeter::kBatch);
}

TEST(CallMeter, CallsThatAlternateAreBothMeasured) {
  TestClock clock;
  CallMeter meter(clock.stopwatch());
  for (int i = 0; i < 2 * kCalls; ++i) {
    const CallMeter::Span span = meter.span();
    clock.now += Nanoseconds{i % 2 == 0 ? 50 : 150};
  }
  EXPECT_EQ(meter.estimate(), Nanoseconds{2 * kCalls * 100});
}

TEST(CallMeter, ABatchInWhichTheThreadLostItsProcessorDoesNotCount) {
  TestClock clock;
  CallMeter meter(clock.stopwatch());
  for (int i = 0; i < 3 * kCalls; ++i) {
    const CallMeter::Span span = meter.span();
    clock.now += Nanoseconds{100};
    if (i == kCalls + kCalls / 2) ++clock.switches;
    if (i / kCalls == 1) clock.now += Nanoseconds{4'000'000};
  }
  EXPECT_EQ(meter.estimate(), Nanoseconds{3 * kCalls * 100});
}

TEST(CallMeter, CallsThatTakeNoTimeAreNotNegative) {
  Nanoseconds now{0};
  std::uint64_t readings = 0;
  CallMeter meter({.now =
                       [&] {
                         now += Nanoseconds{++readings <= 2 * CallMeter::kReadings ? 9 : 1};
                         return now;
                       },
                   .switches = [] { return std::uint64_t{0}; }});
  EXPECT_FALSE(meter.estimate());
  for (int i = 0; i < kCalls; ++i) {
    const CallMeter::Span span = meter.span();
  }
  EXPECT_EQ(meter.estimate(), Nanoseconds{0});
}

TEST(CallMeter, NothingIsMeasuredWithoutAClock) {
  CallMeter meter({});
  for (int i = 0; i < kCalls; ++i) {
    const CallMeter::Span span = meter.span();
  }
  EXPECT_FALSE(meter.estimate());
}

}  // namespace
}  // namespace weir::sim
