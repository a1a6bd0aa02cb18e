// SPDX-License-Identifier: Apache-2.0
//
// Most guarantees of time.h are about what does not compile, so most of this test is static.
#include "weir/base/time.h"

#include <chrono>
#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

namespace weir {
namespace {

using namespace std::chrono_literals;

template <class Clock>
concept TellsTheTime = requires {
  Clock::now();
};

static_assert(TellsTheTime<std::chrono::steady_clock>, "the concept itself works");
static_assert(!TellsTheTime<Timeline>, "code that is given its time cannot ask for it");

template <class From>
constexpr bool kBecomesAnInstant =
    std::is_convertible_v<From, Instant> || std::is_constructible_v<Instant, From> ||
    std::is_assignable_v<Instant&, From>;

static_assert(kBecomesAnInstant<Instant>);
static_assert(!kBecomesAnInstant<std::chrono::steady_clock::time_point>);
static_assert(!kBecomesAnInstant<std::chrono::system_clock::time_point>);
static_assert(!kBecomesAnInstant<std::int64_t>, "a bare number has no unit");
static_assert(!std::is_convertible_v<Nanoseconds, Instant>, "a span is not a point");

template <class A, class B>
concept CanBeSubtracted = requires(A a, B b) {
  a - b;
};

static_assert(CanBeSubtracted<Instant, Instant>);
static_assert(!CanBeSubtracted<Instant, std::chrono::steady_clock::time_point>);

static_assert(sizeof(Instant) == 8 && std::is_trivially_copyable_v<Instant>);
static_assert(std::is_same_v<decltype(Instant{} - Instant{}), Nanoseconds>);

TEST(Time, AnInstantIsItsNanoseconds) {
  for (const std::int64_t ns : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, INT64_MIN,
                                INT64_MAX, std::int64_t{1'700'000'000'000'000'000}}) {
    EXPECT_EQ(ns_of(instant_at(ns)), ns);
  }
  EXPECT_EQ(ns_of(instant_at(5) + 2us), 2005);
  EXPECT_EQ(instant_at(2005) - instant_at(5), 2us);
  EXPECT_EQ(Instant{}, instant_at(0));
}

TEST(Time, NeverIsAfterEverything) {
  EXPECT_GT(kNever, instant_at(0) + kTimelineHalf);
  EXPECT_EQ(ns_of(kNever), INT64_MAX);
}

// Under UBSan: additions and subtractions that the header allows do not overflow.
TEST(Time, HalfATimelineOfRoomIsLeftAtBothEnds) {
  const Instant last = instant_at(0) + (kTimelineHalf - 1ns);
  const Instant first = instant_at(0) - kTimelineHalf;
  EXPECT_LT(last, last + kTimelineHalf);
  EXPECT_GT(first, first - kTimelineHalf);
  EXPECT_EQ(last - first, kTimelineHalf + (kTimelineHalf - 1ns));
}

}  // namespace
}  // namespace weir
