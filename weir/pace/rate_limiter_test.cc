// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/rate_limiter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/pace/limiter_text.h"

namespace weir {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart = instant_at(5'000'000'000);
constexpr TokenKind kBytes = TokenKind::kBytes;
constexpr TokenKind kOps = TokenKind::kOps;

std::optional<LimiterSpec> spec(std::uint64_t size, Nanoseconds refill_time,
                                std::uint64_t one_time_burst = 0) {
  return *LimiterSpec::refilled_in(Tokens{size}, Tokens{one_time_burst}, refill_time);
}

// The article's example: 1000 bytes per second, no limit of operations.
RateLimiter limiter_of_1000_bytes() { return {spec(1000, seconds{1}), {}, kStart}; }

TEST(RateLimiter, StartsFullAndUnblocked) {
  const RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_FALSE(limiter.is_blocked());
  EXPECT_EQ(limiter.blocked_until(), kNever);
  EXPECT_EQ(limiter.bytes()->size(), Tokens{1000});
  EXPECT_EQ(limiter.bytes()->refill_time(), seconds{1});
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{1000});
  EXPECT_EQ(limiter.bytes()->one_time_burst(), Tokens{0});
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{0});
  EXPECT_FALSE(limiter.ops());
}

TEST(RateLimiter, ZeroSizeOrRefillTimeDisablesABucket) {
  EXPECT_FALSE(spec(0, seconds{1}));
  EXPECT_FALSE(spec(1000, seconds{0}));
  RateLimiter limiter({}, {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{UINT64_MAX}, kOps, kStart));
  EXPECT_TRUE(limiter.consume(Tokens{UINT64_MAX}, kBytes, kStart));
  EXPECT_TRUE(limiter.consume_op(Bytes{UINT64_MAX}, kStart));
}

TEST(RateLimiter, RefusesSpecsThatMakeNoSense) {
  EXPECT_EQ(
      LimiterSpec::refilled_in(Tokens{5}, {}, -seconds{1}).error().message(),
      "rate limiter: negative refill time; give the time in which an empty bucket fills, or 0 "
      "for no limit");
  EXPECT_EQ(LimiterSpec::refilled_in(Tokens{5}, {}, hours{24 * 365 * 101}).error().code,
            std::errc::value_too_large);
  EXPECT_FALSE((LimiterSpec{Tokens{0}, Tokens{0}, Rate::per_second(1)}).check());
}

TEST(RateLimiter, ARefusedRequestBlocksBothKindsUntilItFits) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{1000}, kBytes, kStart));
  EXPECT_FALSE(limiter.is_blocked());
  EXPECT_FALSE(limiter.consume(Tokens{100}, kBytes, kStart));
  EXPECT_TRUE(limiter.is_blocked());
  // This is not a fixed interval of 100 ms: 250 bytes take 250 ms.
  EXPECT_EQ(limiter.blocked_until(), kStart + milliseconds{100});
  EXPECT_FALSE(limiter.consume(Tokens{1}, kOps, kStart + milliseconds{99}));
  EXPECT_TRUE(limiter.unblock(kStart + milliseconds{100}));
  EXPECT_FALSE(limiter.consume(Tokens{250}, kBytes, kStart + milliseconds{100}));
  EXPECT_EQ(limiter.blocked_until(), kStart + milliseconds{250});
  EXPECT_TRUE(limiter.unblock(kStart + milliseconds{250}));
  EXPECT_TRUE(limiter.consume(Tokens{250}, kBytes, kStart + milliseconds{250}));
}

TEST(RateLimiter, StaysBlockedUntilItsTimerEvenWhenTokensAreThere) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{1000}, kBytes, kStart));
  EXPECT_FALSE(limiter.consume(Tokens{100}, kBytes, kStart));
  EXPECT_FALSE(limiter.consume(Tokens{1}, kBytes, kStart + seconds{10}));
}

TEST(RateLimiter, UnblockingWithNothingPendingIsAnError) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_EQ(limiter.unblock(kStart).error().code, std::errc::operation_not_permitted);
  EXPECT_TRUE(limiter.consume(Tokens{1000}, kBytes, kStart));
  EXPECT_FALSE(limiter.consume(Tokens{100}, kBytes, kStart));
  EXPECT_EQ(limiter.unblock(kStart + milliseconds{99}).error().code,
            std::errc::resource_unavailable_try_again);
  EXPECT_TRUE(limiter.is_blocked());
}

TEST(RateLimiter, MoreThanTheBucketPassesAtOnceWhateverTheFillAndIsPaidFor) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{900}, kBytes, kStart));
  EXPECT_TRUE(limiter.consume(Tokens{3100}, kBytes, kStart));  // 100 available, 3000 in excess
  EXPECT_TRUE(limiter.is_blocked());
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{0});
  EXPECT_EQ(limiter.blocked_until(), kStart + seconds{3});
  EXPECT_TRUE(limiter.unblock(kStart + seconds{3}));
  // The time blocked paid the excess: it does not fill the bucket as well.
  EXPECT_EQ(limiter.bytes()->budget(kStart + seconds{3}), Tokens{0});
  EXPECT_FALSE(limiter.consume(Tokens{1}, kBytes, kStart + seconds{3}));
  EXPECT_EQ(limiter.blocked_until(), kStart + seconds{3} + milliseconds{1});
}

TEST(RateLimiter, RequestsAboveTheSizeKeepTheRateOnAverage) {
  // If the blocked time counted twice, this limiter would pass twice its rate.
  RateLimiter limiter = limiter_of_1000_bytes();
  Instant now = kStart;
  std::uint64_t taken = 0;
  while (now < kStart + seconds{100}) {
    if (limiter.consume(Tokens{1001}, kBytes, now)) taken += 1001;
    now = std::max(now + Nanoseconds{1}, limiter.blocked_until());
    EXPECT_TRUE(limiter.unblock(now));
  }
  EXPECT_LE(taken, 1000U + 100 * 1000 + 1001);
  EXPECT_GE(taken, 100U * 1000);
}

TEST(RateLimiter, ADebtUnderAMillisecondIsWaitedFor) {
  // Rounded down to milliseconds this wait would be 0, which disarms a timer for ever.
  RateLimiter limiter({}, spec(1'000'000, seconds{1}), kStart);
  EXPECT_TRUE(limiter.consume(Tokens{1'000'003}, kOps, kStart));
  EXPECT_TRUE(limiter.is_blocked());
  EXPECT_EQ(limiter.blocked_until(), kStart + microseconds{3});
  // 1/3 of a nanosecond is rounded up.
  RateLimiter fast({}, spec(3'000'000'000, seconds{1}), kStart);
  EXPECT_TRUE(fast.consume(Tokens{3'000'000'001}, kOps, kStart));
  EXPECT_EQ(fast.blocked_until(), kStart + Nanoseconds{1});
}

TEST(RateLimiter, FrequentSmallRefillsLoseNothing) {
  // 3 operations in 10 ms, asked for every 7 us.
  RateLimiter limiter({}, spec(3, milliseconds{10}), kStart);
  std::uint64_t taken = 0;
  for (Instant now = kStart; now <= kStart + seconds{7}; now += microseconds{7}) {
    if (limiter.blocked_until() <= now) {
      EXPECT_TRUE(limiter.unblock(now));
    }
    if (limiter.consume(Tokens{1}, kOps, now)) ++taken;
  }
  EXPECT_EQ(taken, 3U + 2100);
}

TEST(RateLimiter, ABucketThatWasNeverEmptyGivesNoSecondFill) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{500}, kBytes, kStart));
  const Instant later = kStart + seconds{10};
  EXPECT_TRUE(limiter.consume(Tokens{400}, kBytes, later));
  EXPECT_TRUE(limiter.consume(Tokens{600}, kBytes, later));
  EXPECT_FALSE(limiter.consume(Tokens{1}, kBytes, later));
}

TEST(RateLimiter, TheOneTimeBurstIsSpentFirstAndNeverComesBack) {
  RateLimiter limiter(spec(1000, seconds{1}, 500), {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{300}, kBytes, kStart));
  EXPECT_EQ(limiter.bytes()->one_time_burst(), Tokens{500});
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{200});
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{1000});
  EXPECT_TRUE(limiter.consume(Tokens{600}, kBytes, kStart));
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{0});
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{600});
  EXPECT_EQ(limiter.bytes()->budget(kStart + hours{1}), Tokens{1000});
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{0});
}

TEST(RateLimiter, ARefusalLeavesTheOneTimeBurstAlone) {
  RateLimiter limiter(spec(1000, seconds{1}, 500), {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{1400}, kBytes, kStart));  // 500 of the burst, 900 of the rest
  limiter.manual_replenish(Tokens{0}, kBytes, kStart);
  RateLimiter half(spec(1000, seconds{1}, 10), {}, kStart);
  EXPECT_TRUE(half.consume(Tokens{5}, kBytes, kStart));
  EXPECT_TRUE(half.consume(Tokens{1005}, kBytes, kStart));  // 5 of the burst and all the rest
  half.manual_replenish(Tokens{200}, kBytes, kStart);
  EXPECT_FALSE(half.consume(Tokens{300}, kBytes, kStart));
  EXPECT_EQ(half.bytes()->budget(kStart), Tokens{200});
  EXPECT_EQ(half.blocked_until(), kStart + milliseconds{100});
}

TEST(RateLimiter, WhatIsGivenBackFillsTheBurstToItsInitialSizeThenTheBucket) {
  RateLimiter limiter(spec(1000, seconds{1}, 500), {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{100}, kBytes, kStart));
  limiter.manual_replenish(Tokens{300}, kBytes, kStart);
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{500});  // not 700
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{1000});        // not 1200
  EXPECT_TRUE(limiter.consume(Tokens{1300}, kBytes, kStart));
  limiter.manual_replenish(Tokens{300}, kBytes, kStart);
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{0});  // a spent burst stays spent
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{500});
  limiter.manual_replenish(Tokens{UINT64_MAX}, kBytes, kStart);
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{1000});
}

TEST(RateLimiter, HoweverMuchIsGivenBackTheStateIsThatOfAFullBucket) {
  RateLimiter limiter(spec(7, hours{24}), {}, kStart);
  const RateLimiter::State full = limiter.save(kStart);
  for (int i = 0; i < 3; ++i) limiter.manual_replenish(Tokens{UINT64_MAX}, kBytes, kStart);
  EXPECT_EQ(limiter.save(kStart), full);
  EXPECT_EQ(RateLimiter::restore(limiter.save(kStart), kStart)->bytes()->budget(kStart), Tokens{7});
}

TEST(RateLimiter, GivingBackBringsTheWakeUpForward) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{1000}, kBytes, kStart));
  EXPECT_FALSE(limiter.consume(Tokens{500}, kBytes, kStart));
  limiter.manual_replenish(Tokens{300}, kBytes, kStart);
  EXPECT_EQ(limiter.blocked_until(), kStart + milliseconds{200});
}

TEST(RateLimiter, AnOperationAndItsBytesAreTakenTogetherOrNotAtAll) {
  RateLimiter limiter(spec(1000, seconds{1}), spec(10, seconds{1}, 1), kStart);
  EXPECT_TRUE(limiter.consume_op(Bytes{900}, kStart));
  EXPECT_EQ(limiter.ops()->one_time_burst_left(), Tokens{0});
  EXPECT_EQ(limiter.ops()->budget(kStart), Tokens{10});
  EXPECT_FALSE(limiter.consume_op(Bytes{300}, kStart));
  EXPECT_EQ(limiter.ops()->budget(kStart), Tokens{10});
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{100});
  EXPECT_EQ(limiter.blocked_until(), kStart + milliseconds{200});
  EXPECT_TRUE(limiter.unblock(kStart + milliseconds{200}));
  EXPECT_TRUE(limiter.consume(Tokens{10}, kOps, kStart + milliseconds{200}));
  EXPECT_FALSE(limiter.consume_op(Bytes{1}, kStart + milliseconds{200}));
  EXPECT_EQ(limiter.bytes()->budget(kStart + milliseconds{200}), Tokens{300});
  EXPECT_EQ(limiter.blocked_until(), kStart + milliseconds{300});
}

TEST(RateLimiter, AnUpdateKeepsTheFillRatio) {
  RateLimiter limiter(spec(1000, seconds{1}, 100), {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{850}, kBytes, kStart));  // burst 0, bucket 250
  limiter.update_buckets(BucketUpdate::replace(*spec(400, seconds{2}, 60)), BucketUpdate::keep(),
                         kStart);
  EXPECT_EQ(limiter.bytes()->size(), Tokens{400});
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{100});
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{0});
  EXPECT_EQ(limiter.bytes()->budget(kStart + seconds{1}), Tokens{300});
}

TEST(RateLimiter, UpdatingOftenDoesNotDefeatTheLimit) {
  RateLimiter limiter = limiter_of_1000_bytes();
  std::uint64_t taken = 0;
  const LimiterSpec variants[] = {*spec(1000, seconds{1}), *spec(999, seconds{1}, 50)};
  for (int ms = 0; ms <= 10'000; ++ms) {
    const Instant now = kStart + milliseconds{ms};
    limiter.update_buckets(BucketUpdate::replace(variants[ms % 2]), BucketUpdate::keep(), now);
    if (limiter.blocked_until() <= now) {
      EXPECT_TRUE(limiter.unblock(now));
    }
    while (limiter.consume(Tokens{1}, kBytes, now)) ++taken;
  }
  EXPECT_LE(taken, 11'000U);
  EXPECT_GE(taken, 10'900U);
}

TEST(RateLimiter, AFullBucketIsGivenOnlyWhenAskedFor) {
  RateLimiter limiter(spec(1000, seconds{1}, 10), {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{1010}, kBytes, kStart));
  limiter.update_buckets(
      BucketUpdate::replace(*spec(500, seconds{1}, 7), BucketUpdate::Fill::kFull),
      BucketUpdate::keep(), kStart);
  EXPECT_EQ(limiter.bytes()->budget(kStart), Tokens{500});
  EXPECT_EQ(limiter.bytes()->one_time_burst_left(), Tokens{7});
}

TEST(RateLimiter, AnUpdateMovesTheWakeUpOfWhatIsBlocked) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{1'000'000}, kBytes, kStart));
  EXPECT_EQ(limiter.blocked_until(), kStart + seconds{999});
  limiter.update_buckets(BucketUpdate::replace(*spec(999'000, seconds{1})), BucketUpdate::keep(),
                         kStart);
  EXPECT_EQ(limiter.blocked_until(), kStart + seconds{1});
  limiter.update_buckets(BucketUpdate::disable(), BucketUpdate::keep(), kStart);
  EXPECT_EQ(limiter.blocked_until(), kStart);
  EXPECT_TRUE(limiter.unblock(kStart));
  EXPECT_FALSE(limiter.bytes());
}

TEST(RateLimiter, ARequestThatASmallerSizeCannotHoldIsLetThrough) {
  RateLimiter limiter = limiter_of_1000_bytes();
  EXPECT_TRUE(limiter.consume(Tokens{1000}, kBytes, kStart));
  EXPECT_FALSE(limiter.consume(Tokens{600}, kBytes, kStart));
  limiter.update_buckets(BucketUpdate::replace(*spec(500, seconds{1})), BucketUpdate::keep(),
                         kStart);
  ASSERT_LE(limiter.blocked_until(), kStart);
  EXPECT_TRUE(limiter.unblock(kStart));
  EXPECT_TRUE(limiter.consume(Tokens{600}, kBytes, kStart));
}

TEST(RateLimiter, ADisabledBucketStartsFullWhenEnabledAgain) {
  RateLimiter limiter = limiter_of_1000_bytes();
  limiter.update_buckets(BucketUpdate::keep(), BucketUpdate::replace(*spec(5, seconds{1})), kStart);
  EXPECT_EQ(limiter.ops()->budget(kStart), Tokens{5});
}

TEST(RateLimiter, APausedMachineKeepsItsBudgetItsDebtAndItsBlock) {
  RateLimiter limiter(spec(1000, seconds{1}, 100), spec(7, seconds{3}), kStart);
  EXPECT_TRUE(limiter.consume_op(Bytes{90}, kStart));
  EXPECT_TRUE(limiter.consume(Tokens{2010}, kBytes, kStart));
  ASSERT_TRUE(limiter.is_blocked());
  const RateLimiter::State state = limiter.save(kStart + milliseconds{300});
  // An hour passes; another machine, another clock.
  const Instant elsewhere = instant_at(77);
  RateLimiter restored = *RateLimiter::restore(state, elsewhere);
  EXPECT_EQ(restored.blocked_until(), elsewhere + milliseconds{700});
  EXPECT_EQ(restored.save(elsewhere), state);
  EXPECT_FALSE(restored.consume(Tokens{5000}, kBytes, elsewhere));
  EXPECT_TRUE(restored.unblock(elsewhere + milliseconds{700}));
  EXPECT_EQ(restored.bytes()->budget(elsewhere + milliseconds{700}), Tokens{0});
  // On the same clock it is the same limiter.
  EXPECT_EQ(*RateLimiter::restore(state, kStart + milliseconds{300}), limiter);
}

TEST(RateLimiter, RefusesAStateThatContradictsItself) {
  const RateLimiter::State good = limiter_of_1000_bytes().save(kStart);
  const auto refused = [&](auto change) {
    RateLimiter::State state = good;
    change(*state.bytes);
    return !RateLimiter::restore(state, kStart);
  };
  using Bucket = LimiterBucket::State;
  EXPECT_FALSE(refused([](Bucket&) {}));
  EXPECT_TRUE(refused([](Bucket& b) { b.spec.size = Tokens{0}; }));
  EXPECT_TRUE(refused([](Bucket& b) { b.one_time_burst_left = Tokens{1}; }));
  EXPECT_TRUE(refused([](Bucket& b) { b.zero_part = b.spec.rate.tokens(); }));
  EXPECT_TRUE(refused([](Bucket& b) { b.zero_age = Nanoseconds::max(); }));
  EXPECT_TRUE(refused([](Bucket& b) { b.zero_age = Nanoseconds::min(); }));
  EXPECT_TRUE(refused([](Bucket& b) { b.spec.size = Tokens{UINT64_MAX}; }));
}

TEST(RateLimiter, EqualityIsOfLimitsAndFill) {
  RateLimiter one = limiter_of_1000_bytes(), other = limiter_of_1000_bytes();
  EXPECT_EQ(one, other);
  EXPECT_TRUE(one.consume(Tokens{1}, kBytes, kStart));
  EXPECT_NE(one, other);
  EXPECT_TRUE(other.consume(Tokens{1}, kBytes, kStart));
  EXPECT_EQ(one, other);
}

TEST(RateLimiter, NoSixtyFourBitSizeOverflows) {
  const Nanoseconds years = hours{24 * 365 * 20};
  RateLimiter limiter(spec(UINT64_MAX, years, UINT64_MAX), {}, kStart);
  EXPECT_TRUE(limiter.consume(Tokens{UINT64_MAX}, kBytes, kStart));  // the burst
  EXPECT_TRUE(limiter.consume(Tokens{UINT64_MAX}, kBytes, kStart));  // the bucket
  EXPECT_FALSE(limiter.consume(Tokens{UINT64_MAX}, kBytes, kStart));
  EXPECT_EQ(limiter.blocked_until(), kStart + years);
  limiter.update_buckets(BucketUpdate::replace(*spec(1, Nanoseconds{1})), BucketUpdate::keep(),
                         kStart + years / 2);
  EXPECT_LE(limiter.blocked_until(), kStart + years / 2);
}

std::optional<LimiterSpec> any_spec() {
  return spec(*rc::gen::inRange<std::uint64_t>(0, 2000),
              Nanoseconds{*rc::gen::inRange<std::int64_t>(0, 3'000'000'000)},
              *rc::gen::inRange<std::uint64_t>(0, 100));
}

BucketUpdate any_update() {
  const auto changed = any_spec();
  return changed ? BucketUpdate::replace(*changed) : BucketUpdate::disable();
}

// Mistake: a timer in milliseconds, rounded down; a wait of 0 disarms it.
struct MillisecondTimer : RateLimiter {
  using RateLimiter::RateLimiter;
  explicit MillisecondTimer(const RateLimiter& other) : RateLimiter(other) {}
  Instant blocked_until() const {
    if (!is_blocked()) return kNever;
    const auto wait = RateLimiter::blocked_until() - kStart;
    return wait % milliseconds{1} == wait ? kNever
                                          : kStart + wait / milliseconds{1} * milliseconds{1};
  }
};

template <class Limiter>
void do_something(Limiter& limiter, Instant now) {
  const TokenKind kind = *rc::gen::element(kBytes, kOps);
  const auto n = *rc::gen::inRange<std::uint64_t>(0, 3000);
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      limiter.consume(Tokens{n}, kind, now);
      break;
    case 1:
      limiter.consume_op(Bytes{n}, now);
      break;
    case 2:
      limiter.manual_replenish(Tokens{n}, kind, now);
      break;
    case 3:
      limiter.update_buckets(any_update(), any_update(), now);
      break;
    case 4:
      limiter = Limiter(*RateLimiter::restore(limiter.save(now), now));
      break;
    default:
      if (limiter.blocked_until() <= now) RC_ASSERT(limiter.unblock(now).has_value());
  }
}

// After any calls to a limiter, a user that then requests an operation and follows the contract
// gets it: there is no state in which work waits and nothing wakes it.
template <class Limiter>
void work_is_woken() {
  Limiter limiter(any_spec(), any_spec(), kStart);
  Instant now = kStart;
  const int steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    now += Nanoseconds{*rc::gen::inRange<std::int64_t>(0, 100'000'000)};
    do_something(limiter, now);
    RC_ASSERT(limiter.is_blocked() == (limiter.blocked_until() != kNever));
  }
  const Bytes wanted{*rc::gen::inRange<std::uint64_t>(0, 3000)};
  for (int tries = 0; !limiter.consume_op(wanted, now); ++tries) {
    RC_ASSERT(tries < 4);  // an old block, then operations, then bytes
    RC_ASSERT(limiter.blocked_until() != kNever);
    now = std::max(now, limiter.blocked_until());
    RC_ASSERT(limiter.unblock(now).has_value());
  }
}

TEST(RateLimiterProperty, WorkIsNeverLeftWaitingForEver) {
  EXPECT_TRUE(rc::check(work_is_woken<RateLimiter>));
  EXPECT_FALSE(rc::check(work_is_woken<MillisecondTimer>)) << "the checker does not bite";
}

RC_GTEST_PROP(LimiterTextProperty, ReadsBackWhatItWrote, ()) {
  RateLimiter limiter(spec(*rc::gen::inRange<std::uint64_t>(0, 1'000'000), seconds{3}, 77),
                      spec(*rc::gen::inRange<std::uint64_t>(0, 1000), milliseconds{13}), kStart);
  limiter.consume_op(Bytes{*rc::gen::inRange<std::uint64_t>(0, 2'000'000)}, kStart);
  limiter.consume_op(Bytes{*rc::gen::inRange<std::uint64_t>(0, 2'000'000)}, kStart);
  const RateLimiter::State state = limiter.save(kStart + milliseconds{5});
  RC_ASSERT(*parse_limiter_text(limiter_text(state), "f") == state);
}

TEST(LimiterText, IsWhatTheHeaderShows) {
  RateLimiter limiter(spec(524'288, milliseconds{10}), spec(10, milliseconds{10}, 5), kStart);
  ASSERT_TRUE(limiter.consume(Tokens{2}, kOps, kStart));
  ASSERT_TRUE(limiter.consume(Tokens{524'288}, kBytes, kStart));
  ASSERT_FALSE(limiter.consume(Tokens{65'536}, kBytes, kStart));
  EXPECT_EQ(limiter_text(limiter.save(kStart)),
            "weir-limiter 1\n"
            "bytes size=524288 burst=0/0 rate=4096/78125 zero=0+0\n"
            "ops size=10 burst=3/5 rate=1/1000000 zero=10000000+0\n"
            "block bytes 65536\n"
            "end\n");
}

TEST(LimiterText, RefusesEverythingElse) {
  const std::string good = limiter_text(limiter_of_1000_bytes().save(kStart));
  ASSERT_TRUE(parse_limiter_text(good, "f"));
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(parse_limiter_text(good.substr(0, length), "f")) << length;
  }
  EXPECT_FALSE(parse_limiter_text(good + "x", "f"));
  for (const char* bad :
       {"weir-limiter 2\nend\n", "weir-limiter 1\nbytes size=1 burst=0/0 rate=0/5 zero=0+0\nend\n",
        "weir-limiter 1\nbytes size=1 burst=0/0 rate=5/0 zero=0+0\nend\n",
        "weir-limiter 1\nbytes size=1 burst=0/0 rate=2/4 zero=0+0\nend\n",
        "weir-limiter 1\nbytes size=01 burst=0/0 rate=1/4 zero=0+0\nend\n",
        "weir-limiter 1\nbytes size=99999999999999999999 burst=0/0 rate=1/4 zero=0+0\nend\n",
        "weir-limiter 1\nblock disk 5\nend\n"}) {
    const auto state = parse_limiter_text(bad, "quota");
    ASSERT_FALSE(state) << bad;
    EXPECT_EQ(state.error().message(),
              "quota: is not the saved state of a limiter; remove it to start with full buckets");
  }
}

}  // namespace
}  // namespace weir
