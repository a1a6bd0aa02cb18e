// SPDX-License-Identifier: Apache-2.0
//
// What a device does a second, with its unit. "10MB/s" and "10000000" are the same number and not
// the same capacity: the unit stays with the rate from where it was written (command line, file,
// API, journal) to the Target, which refuses any unit but the one its requests are counted in.
//
//   auto          estimated; `rate`, if there is one, is the most it is taken for
//   4000          operations a second, or tokens where cost=affine counts more than one for each
//   100MB/s       bytes a second
//
// Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/classify/limits.h"

namespace weir {

struct Capacity {
  enum class Kind : std::uint8_t { kAuto, kOps, kBytes };
  Kind kind = Kind::kAuto;
  std::optional<Rate> rate = std::nullopt;  // of kOps and kBytes

  static constexpr Capacity ops(Rate rate) { return {Kind::kOps, rate}; }
  static constexpr Capacity bytes(Rate rate) { return {Kind::kBytes, rate}; }

  // Whether it counts what requests of this cost are counted in; auto fits any. EINVAL otherwise,
  // with the unit in force.
  Result<void> check_unit(const Cost& cost) const;

  bool operator==(const Capacity&) const = default;
};

// "operations", "bytes" or "tokens": what a capacity beside this cost is counted in.
std::string_view unit_of(const Cost& cost);

}  // namespace weir
