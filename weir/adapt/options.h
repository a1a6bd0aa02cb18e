// SPDX-License-Identifier: Apache-2.0
//
// Options of a controller: what it uses as demand, how often it decides, whether idle bandwidth is
// lent within a period, and how fast records fade.
//
//   ControllerOptions{}           Weir's own: backlog, 20 ms, lending, records halve in 60 s
//   ControllerOptions::paper()    as published: served counts, 100 ms, no lending, no fading
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
    kServed,   // what was served in the period, for servers that do not count waiting requests
    kBacklog,  // what waited at the start of the period plus what arrived in it
  };

  static constexpr Nanoseconds kPeriodMin = std::chrono::milliseconds{1};
  static constexpr Nanoseconds kPeriodMax = std::chrono::seconds{10};
  static constexpr Tokens kShareDepthMin{8};
  static constexpr std::uint64_t kShareDepthPeriods = 4;

  Demand demand = Demand::kBacklog;
  Nanoseconds period = std::chrono::milliseconds{20};
  bool lending = true;
  std::optional<Nanoseconds> half_life =
      std::chrono::seconds{60};  // of records; none: records do not fade
  bool floor = true;             // a job that repays keeps half of its initial allocation
  // Depth of share buckets. None: kShareDepthPeriods of the job's allocation, at least
  // kShareDepthMin. While a device is slower than usual, no job can use its tokens; if large jobs
  // could keep fewer periods of tokens than small ones, the small jobs would gain.
  std::optional<Tokens> depth = std::nullopt;
  // Maximum number of jobs with records, and of jobs with a share.
  std::size_t jobs_max = 8192;
  // Levels of a tree of shares above the jobs (tree_shares.h); 0: jobs alone.
  std::size_t levels = 0;

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
