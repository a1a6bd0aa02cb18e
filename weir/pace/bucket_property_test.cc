// SPDX-License-Identifier: Apache-2.0
//
// Properties of every kind of bucket. Each is shown to work: it must detect a bucket with the
// mistake that it looks for.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/pace/atomic_bucket.h"
#include "weir/pace/token_bucket.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

constexpr Instant kStart = instant_at(0);

// ---- the buckets: full at kStart, take(n, now), ready_at(n) ----

struct Exact {
  explicit Exact(const BucketShape& s) : shape(s), bucket(TokenBucket::full(s, kStart)) {}
  bool take(Tokens n, Instant now) { return bucket.take(n, shape, now); }
  Instant ready_at(Tokens n) const { return bucket.ready_at(n, shape); }
  BucketShape shape;
  TokenBucket bucket;
};

struct Atomic {
  explicit Atomic(const BucketShape& s) : shape(s), bucket(s, kStart) {}
  bool take(Tokens n, Instant now) { return bucket.take(n, shape, now); }
  Instant ready_at(Tokens n) const { return bucket.ready_at(n, shape); }
  BucketShape shape;
  AtomicBucket bucket;
};

// Mistake: whole tokens are added and the time is set to now, so the fraction is lost.
struct FloorAndForget {
  explicit FloorAndForget(const BucketShape& s) : shape(s), level(s.depth()), last(kStart) {}
  bool take(Tokens n, Instant now) {
    level = std::min(level + tokens_in(shape.rate(), now - last), shape.depth());
    last = now;
    if (level < std::min(n, shape.depth())) return false;
    level -= std::min(n, level);
    return true;
  }
  BucketShape shape;
  Tokens level;
  Instant last;
};

// Mistake: the time is used only when a request does not fit, so a bucket that was always full can
// be emptied and then refilled with the time for which it was full.
struct RefillsWhenEmpty {
  explicit RefillsWhenEmpty(const BucketShape& s) : refilled(s), level(s.depth()) {}
  bool take(Tokens n, Instant now) {
    if (n > level) level = (refilled.take(Tokens{0}, now), refilled.level);
    if (n > level) return false;
    level -= n;
    refilled.level = level;
    return true;
  }
  FloorAndForget refilled;
  Tokens level;
};

// Mistake: the wake-up is rounded down, so it is before the token arrives, and the taker waits
// again.
struct WakesTooEarly : Exact {
  using Exact::Exact;
  Instant ready_at(Tokens n) const { return Exact::ready_at(n) - Nanoseconds{1}; }
};

// Mistake: a take of more than the depth waits until the bucket holds as much, which never happens.
struct NoDebt : Exact {
  using Exact::Exact;
  bool take(Tokens n, Instant now) { return n <= shape.depth() && Exact::take(n, now); }
};

// ---- what happens to them ----

struct Step {
  Nanoseconds gap;  // since the previous step
  Tokens cost;
};

struct Trace {
  BucketShape shape;
  std::vector<Step> steps;
};

// Small and large sizes equally often.
std::uint64_t any_size(std::uint64_t most) {
  const int bits = *rc::gen::inRange(0, 63);
  const auto limit = std::min(most, (std::uint64_t{1} << bits));
  return *rc::gen::inRange<std::uint64_t>(1, limit + 1);
}

BucketShape any_shape() {
  const Nanoseconds times[] = {std::chrono::seconds{1}, std::chrono::hours{24},
                               std::chrono::milliseconds{20}, Nanoseconds{1'000'000'007}};
  const Rate rate(Tokens{any_size(1'000'000'000'000)}, times[*rc::gen::inRange(0, 4)]);
  Tokens depth{any_size(1'000'000)};
  while (!BucketShape::fits(rate, depth)) depth = Tokens{depth.count() / 2};
  return {rate, depth};
}

// Gaps are limited so that no trace leaves the timeline.
Trace any_trace() {
  constexpr std::uint64_t kGapMax = std::uint64_t{1} << 56;
  Trace trace{any_shape(), {}};
  const auto fill_ns = static_cast<std::uint64_t>(trace.shape.fill_time().count());
  const int length = *rc::gen::inRange(1, 40);
  for (int i = 0; i < length; ++i) {
    const std::uint64_t gap = any_size(std::clamp<std::uint64_t>(2 * fill_ns, 2, kGapMax)) - 1;
    trace.steps.push_back({Nanoseconds{static_cast<std::int64_t>(gap)},
                           Tokens{any_size(trace.shape.depth().count())}});
  }
  return trace;
}

// ---- the properties: empty if they hold, otherwise the violation ----

// Every window holds at most depth + rate x its length.
template <class Bucket>
std::string over_limit(const Trace& trace) {
  struct Grant {
    Instant at;
    Tokens cost;
  };
  Bucket bucket(trace.shape);
  std::vector<Grant> grants;
  Instant now = kStart;
  for (const Step& step : trace.steps) {
    now += step.gap;
    if (bucket.take(step.cost, now)) grants.push_back({now, step.cost});
  }
  for (std::size_t first = 0; first < grants.size(); ++first) {
    Wide granted = 0;
    for (std::size_t last = first; last < grants.size(); ++last) {
      granted += grants[last].cost.count();
      const auto ns = static_cast<std::uint64_t>((grants[last].at - grants[first].at).count());
      const Rate rate = trace.shape.rate();
      const Wide allowed =
          Wide{trace.shape.depth().count()} * rate.time_ns() + Wide{rate.tokens()} * ns;
      if (granted * rate.time_ns() > allowed) {
        return "grants " + std::to_string(first) + " to " + std::to_string(last);
      }
    }
  }
  return {};
}

// Takes token by token as long as there are any.
template <class Bucket>
std::uint64_t drain(Bucket& bucket, Instant now, std::uint64_t most) {
  std::uint64_t taken = 0;
  while (taken < most && bucket.take(Tokens{1}, now)) ++taken;
  return taken;
}

constexpr std::uint64_t kDrainMax = 2000;

// A taker that takes every available token gets all of them, however often it checks: those of the
// full bucket and rate x time, as long as it checks before the bucket is full again. It leaves less
// than a token, so that time is the time of one token less than the depth.
template <class Bucket>
std::string loses_tokens(const Trace& trace) {
  Bucket bucket(trace.shape);
  const Wide below_rim = Wide{trace.shape.depth().count() - 1} * trace.shape.rate().time_ns();
  const auto patience_ns = static_cast<std::int64_t>(below_rim / trace.shape.rate().tokens());
  std::uint64_t taken = 0;
  Instant now = kStart;
  for (const Step& step : trace.steps) {
    taken += drain(bucket, now, kDrainMax - taken);
    if (taken == kDrainMax) return {};
    const std::uint64_t due =
        trace.shape.depth().count() + tokens_in(trace.shape.rate(), now - kStart).count();
    if (taken != due) return std::to_string(taken) + " of " + std::to_string(due);
    now += Nanoseconds{step.gap.count() % (patience_ns + 1)};
  }
  return {};
}

// A refused take reports the earliest time at which it will succeed.
template <class Bucket>
std::string never_wakes(const Trace& trace) {
  Bucket bucket(trace.shape);
  Instant now = kStart;
  for (const Step& step : trace.steps) {
    now += step.gap;
    if (now > kStart + kTimelineHalf) return {};
    // Every other request is larger than the bucket.
    const bool large = step.cost.count() % 2 == 1;
    const Tokens cost = large ? step.cost + trace.shape.depth() : step.cost;
    if (bucket.take(cost, now)) continue;
    const Instant ready = bucket.ready_at(cost);
    if (ready <= now) return "refused, yet ready";
    if (ready > kStart + kTimelineHalf) return {};  // beyond what the bucket promises
    if (bucket.take(cost, ready - Nanoseconds{1})) return "ready before it said";
    if (!bucket.take(cost, ready)) return "refused at the time it was promised";
    now = ready;
  }
  return {};
}

// Refill is additive over any split of an interval: reading a bucket in between does not change
// what it holds.
template <class Bucket>
std::string split_matters(const Trace& trace) {
  Bucket whole(trace.shape), split(trace.shape);
  const Tokens all = trace.shape.depth();
  if (!whole.take(all, kStart) || !split.take(all, kStart)) return "not full at the start";
  Instant now = kStart;
  for (const Step& step : trace.steps) {
    now += step.gap;
    split.take(Tokens{0}, now);
  }
  const std::uint64_t held = drain(whole, now, kDrainMax);
  const std::uint64_t held_split = drain(split, now, kDrainMax);
  if (held != held_split) return std::to_string(held) + " or " + std::to_string(held_split);
  return {};
}

template <class Property>
bool holds(Property property) {
  return rc::check([&] {
    const Trace trace = any_trace();
    RC_LOG() << "rate " << trace.shape.rate().tokens() << "/" << trace.shape.rate().time_ns()
             << "ns depth " << trace.shape.depth().count() << "\n";
    for (const Step& step : trace.steps) {
      RC_LOG() << "+" << step.gap.count() << "ns take " << step.cost.count() << "\n";
    }
    RC_ASSERT(property(trace) == "");
  });
}

TEST(BucketProperty, NoWindowHoldsMoreThanDepthPlusRateTimesItsLength) {
  EXPECT_TRUE(holds(over_limit<Exact>));
  EXPECT_TRUE(holds(over_limit<Atomic>));
  EXPECT_FALSE(holds(over_limit<RefillsWhenEmpty>)) << "the checker does not bite";
}

TEST(BucketProperty, NothingIsLostAtAnyRate) {
  EXPECT_TRUE(holds(loses_tokens<Exact>));
  EXPECT_FALSE(holds(loses_tokens<FloorAndForget>)) << "the checker does not bite";
  // The atomic variant may lose tokens by its rounding.
  EXPECT_FALSE(holds(loses_tokens<Atomic>));
}

TEST(BucketProperty, WhatWaitsIsWokenAndNotTooEarly) {
  EXPECT_TRUE(holds(never_wakes<Exact>));
  EXPECT_TRUE(holds(never_wakes<Atomic>));
  EXPECT_FALSE(holds(never_wakes<WakesTooEarly>)) << "the checker does not bite";
  EXPECT_FALSE(holds(never_wakes<NoDebt>)) << "the checker does not bite";
}

TEST(BucketProperty, RefillIsAdditiveOverAnySplitOfAnInterval) {
  EXPECT_TRUE(holds(split_matters<Exact>));
  EXPECT_TRUE(holds(split_matters<Atomic>));
  EXPECT_FALSE(holds(split_matters<FloorAndForget>)) << "the checker does not bite";
}

// The atomic variant may lose at most one nanosecond of the rate per take.
RC_GTEST_PROP(BucketProperty, TheAtomicVariantRoundsByLessThanANanosecondATake, ()) {
  const Trace trace = any_trace();
  Exact exact(trace.shape);
  Atomic atomic(trace.shape);
  Instant now = kStart;
  std::int64_t takes = 0;
  for (const Step& step : trace.steps) {
    now = std::max(now + step.gap, atomic.ready_at(step.cost));
    if (now > kStart + kTimelineHalf) return;
    RC_ASSERT(exact.take(step.cost, now));  // the exact one is never behind
    RC_ASSERT(atomic.take(step.cost, now));
    ++takes;
    RC_ASSERT(atomic.ready_at(Tokens{0}) - exact.ready_at(Tokens{0}) <= Nanoseconds{takes});
  }
}

// Incoming tokens equal those taken, left and spilled: to the token, and with the fraction of the
// spill, exactly.
RC_GTEST_PROP(BucketProperty, TakenLeftAndSpilledIsAllThatCameIn, ()) {
  const Trace trace = any_trace();
  TokenBucket bucket = TokenBucket::full(trace.shape, kStart);
  Spill spill;
  Wide taken = 0, spilled = 0;
  Instant now = kStart;
  for (const Step& step : trace.steps) {
    now += step.gap;
    if (bucket.take(step.cost, trace.shape, now, spill)) taken += step.cost.count();
    spilled += spill.collect().count();
    const Rate rate = trace.shape.rate();
    const Wide came_in = Wide{trace.shape.depth().count()} * rate.time_ns() +
                         Wide{rate.tokens()} * static_cast<std::uint64_t>(ns_of(now));
    const Wide seen = taken + spilled + bucket.level(trace.shape, now).count();
    // Two fractions of less than a token each are not visible: in the bucket and in the spill.
    RC_ASSERT(seen * rate.time_ns() <= came_in);
    RC_ASSERT((seen + 2) * rate.time_ns() > came_in);
  }
}

}  // namespace
}  // namespace weir
