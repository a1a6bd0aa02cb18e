// SPDX-License-Identifier: Apache-2.0
//
// The capacity of a device per second, with its unit. "10MB/s" and "10000000" are the same number
// but not the same capacity: the unit stays with the rate from its source (command line, file, API,
// journal) to the Target, which refuses a unit other than that of its requests.
//
//   auto          estimated; `rate`, if given, is the maximum of the estimate
//   4000          operations per second, or tokens with cost=affine
//   100MB/s       bytes per second
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

  // Whether it has the unit of requests of this cost; auto fits any. Otherwise EINVAL, with the
  // unit in use.
  Result<void> check_unit(const Cost& cost) const;

  bool operator==(const Capacity&) const = default;
};

// "operations", "bytes" or "tokens": the unit of a capacity with this cost.
std::string_view unit_of(const Cost& cost);

}  // namespace weir
