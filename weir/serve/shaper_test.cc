// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/shaper.h"

#include <chrono>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart = instant_at(1'000'000'000);

TEST(Shaper, WithoutPartsItChangesNothing) {
  Shaper shaper({});
  EXPECT_EQ(shaper.done_at(Bytes{1U << 20}, kStart), kStart);
}

TEST(Shaper, OperationsComeOneAfterTheOtherAndLatencyOverlaps) {
  Shaper shaper({Rate::per_second(2000), std::nullopt, milliseconds{1}});
  EXPECT_EQ(shaper.done_at(Bytes{4096}, kStart), kStart + microseconds{1500});
  EXPECT_EQ(shaper.done_at(Bytes{4096}, kStart), kStart + microseconds{2000});
  EXPECT_EQ(shaper.done_at(Bytes{4096}, kStart), kStart + microseconds{2500});
  // Unused time is lost.
  EXPECT_EQ(shaper.done_at(Bytes{4096}, kStart + seconds{1}),
            kStart + seconds{1} + microseconds{1500});
}

TEST(Shaper, TheSlowerOfOperationsAndBytesDecides) {
  Shaper shaper({Rate::per_second(1000), Rate::per_second(1'000'000), {}});
  EXPECT_EQ(shaper.done_at(Bytes{100}, kStart), kStart + milliseconds{1});
  EXPECT_EQ(shaper.done_at(Bytes{100'000}, kStart), kStart + microseconds{100'100});
}

TEST(Shaper, RemaindersAreCarried) {
  Shaper shaper({Rate::per_second(3), std::nullopt, {}});
  Instant done = kStart;
  for (int i = 0; i < 3'000'000; ++i) done = shaper.done_at(Bytes{0}, kStart);
  EXPECT_EQ(done, kStart + seconds{1'000'000});
}

TEST(Shaper, AChangeActsOnWhatComesAfterIt) {
  Shaper shaper({Rate::per_second(1000), std::nullopt, {}});
  EXPECT_EQ(shaper.done_at(Bytes{0}, kStart), kStart + milliseconds{1});
  shaper.reshape({Rate::per_second(100), std::nullopt, {}}, kStart);
  EXPECT_EQ(shaper.done_at(Bytes{0}, kStart), kStart + milliseconds{11});
}

}  // namespace
}  // namespace weir::serve
