// SPDX-License-Identifier: Apache-2.0
//
// How a controller divides a target: what it uses as demand, how often it decides, whether idle
// bandwidth is lent within a period, and how long a loan is remembered.
//
//   ControllerOptions{}           Weir's own: backlog, 20 ms, lending, records fade by half in 60 s
//   ControllerOptions::paper()    as published: served counts, 100 ms, no lending, records for ever
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir {

struct ControllerOptions {
  enum class Demand : std::uint8_t {
    kServed,   // what was served in the period: what a server that keeps no count of waiters knows
    kBacklog,  // what waited at its start and what arrived in it
  };

  static constexpr Nanoseconds kPeriodMin = std::chrono::milliseconds{1};
  static constexpr Nanoseconds kPeriodMax = std::chrono::seconds{10};
  static constexpr Tokens kShareDepthMin{8};
  static constexpr std::uint64_t kShareDepthPeriods = 4;

  Demand demand = Demand::kBacklog;
  Nanoseconds period = std::chrono::milliseconds{20};
  bool lending = true;
  std::optional<Nanoseconds> half_life = std::chrono::seconds{60};  // of records; none: for ever
  bool floor = true;  // who repays keeps half of what it was first given
  // Of share buckets. None: kShareDepthPeriods of the job's allocation, kShareDepthMin at least.
  // While a device is slower than usual for a moment nobody can use its tokens; if large jobs kept
  // fewer periods of them than small ones, the small would win by it.
  std::optional<Tokens> depth = std::nullopt;
  // Jobs whose records are remembered, and jobs that hold a share.
  std::size_t jobs_max = 8192;

  static ControllerOptions paper() {
    return {.demand = Demand::kServed,
            .period = std::chrono::milliseconds{100},
            .lending = false,
            .half_life = std::nullopt,
            .floor = false,
            .depth = Tokens{3}};
  }
};

}  // namespace weir
