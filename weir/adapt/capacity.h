// SPDX-License-Identifier: Apache-2.0
//
// Estimates the capacity of a device: tokens completed per second while all slots are busy and more
// requests wait. At other times the device is not the bottleneck, and nothing is measured.
//
//   busy time    |-- 100 ms --|-- 100 ms --| ... |-- 100 ms --|  open
//   tokens            203          198               201         87
//                 \__________ the last 5 s, at most _________/
//
// The estimate is the tokens of the last 5 s of busy time divided by that time; it is unknown
// before the first 100 ms. A change of speed is detected sooner: when the last half second differs
// from the time before it by more than chance explains, the older samples are dropped. Chance: n
// completions vary by about sqrt(n), so a relative difference e with e^2 * n > 4^2, where n is the
// smaller of the two numbers of completions, is four times the usual deviation.
//
// The estimate changes at most once in 100 ms of busy time, so that rates derived from it are
// stable. Integers only; time is an argument; one owner, no locks. Does not allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"

namespace weir {

class CapacityEstimate {
 public:
  static constexpr Nanoseconds kSlice = std::chrono::milliseconds{100};
  static constexpr std::size_t kSlices = 50;  // remembered
  static constexpr std::size_t kRecent = 5;

  // The estimate never exceeds the ceiling.
  explicit CapacityEstimate(std::optional<Rate> ceiling = std::nullopt) : ceiling_(ceiling) {}

  void set_ceiling(std::optional<Rate> ceiling) { ceiling_ = ceiling; }

  // Call when all slots become busy and requests wait, and when that ends; repeated calls change
  // nothing. Calls are in order of time; completions at the moment it ends are reported before.
  void saturate(Instant now);
  void relax(Instant now);
  // Requests with this total cost were completed.
  void complete(Tokens cost, Instant now);
  // The same for an owner that sees counters from time to time: so many requests of one token were
  // completed in so much busy time, and count as spread evenly over it.
  void add(Tokens count, Nanoseconds busy);

  // Tokens a second; none while unknown.
  std::optional<Rate> rate(Instant now);

 private:
  struct Slice {
    std::uint64_t tokens = 0;
    std::uint64_t completions = 0;
  };

  void advance(Instant now);
  void close_slice();
  Slice sum(std::size_t from, std::size_t to) const;
  bool has_changed() const;

  std::optional<Rate> ceiling_;
  std::optional<Instant> counted_to_;  // while saturated
  std::array<Slice, kSlices> slices_{};
  std::size_t first_ = 0;  // the oldest of `count_` closed slices, in a ring
  std::size_t count_ = 0;
  Slice open_;
  Nanoseconds open_time_{0};
  std::optional<Rate> measured_;
};

}  // namespace weir
