// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the RuleController share; for rule_controller*.cc only:
//
//   rule_controller.cc           a round: accounts, shares, changes; the published algorithm
//   rule_controller_measure.cc   what a round's counters say
//   rule_controller_looks.cc     what the queue shows between two rounds
//   rule_controller_rates.cc     which jobs are held, and at which rate
//
// Counters of a server are believed within the bounds below, so that no sum overflows. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "weir/adapt/rule_controller.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"

namespace weir::rule_bounds {

using Wide = unsigned __int128;

using State = JobDemand::State;

inline constexpr std::uint64_t kOne = 1024;

// Shares are counted in this fraction of a token: with whole tokens no job could have less than one
// per period, which is 50 a second at 20 ms.
inline constexpr std::uint64_t kParts = 64;

inline std::uint64_t count_in(Rate rate, Nanoseconds time) { return tokens_in(rate, time).count(); }

inline std::uint64_t per_second(Rate rate) { return count_in(rate, std::chrono::seconds{1}); }

// What a server says is not checked by anybody before: counters go back and wrap, rounds come late,
// and rules may be listed with a rate of 0. Within these bounds every sum and product below fits.
inline constexpr std::uint64_t kServedMax = std::uint64_t{1} << 40;
inline constexpr std::uint32_t kCountMax = 1 << 16;  // of CPTs, and of tokens in a bucket
inline constexpr Nanoseconds kElapsedMax = std::chrono::hours{1};
inline constexpr Rate kCapacityMin = Rate::per_second(1);
inline constexpr Rate kCapacityMax = Rate::per_second(kTokensPerNanosecondMax * 1'000'000'000);

inline std::uint64_t bounded(std::uint64_t count) { return std::min(count, kServedMax); }

inline Tokens bounded(Tokens served) { return std::min(served, Tokens{kServedMax}); }

inline std::optional<Rate> bounded(std::optional<Rate> capacity) {
  return capacity ? std::optional(std::clamp(*capacity, kCapacityMin, kCapacityMax)) : std::nullopt;
}

inline Rate rate_of(const RuleSeen& seen) { return Rate::per_second(std::max(1U, seen.rate)); }

inline std::uint64_t reach_of(const RuleSeen& seen) {
  return std::clamp(seen.reach, 1U, kCountMax);
}

}  // namespace weir::rule_bounds
