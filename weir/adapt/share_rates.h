// SPDX-License-Identifier: Apache-2.0
//
// The rate and depth of a share bucket, for jobs and for the nodes above them in a tree of shares:
// what an allocation per period becomes, and what a newcomer gets until the period ends.
//
//   allotted_share(Tokens{5}, weight, options)     5 tokens per period, a bucket of max(8, 4 x 5)
//
// Values only.
#pragma once

#include <cstdint>
#include <optional>

#include "weir/adapt/enforcer.h"
#include "weir/adapt/options.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"

namespace weir {

// Depth of the bucket of a share with this allocation per period.
Tokens share_depth(Tokens allotted, const ControllerOptions& options);

// The share of an allocation: at least one token per period, so that no job starves.
Share allotted_share(Tokens allotted, std::uint64_t weight, const ControllerOptions& options);

// The share of a newcomer until the period ends: rate * weight / (held + weight), where `held` is
// the sum of the weights of the others that hold a share. None: the capacity is unknown.
Share newcomer_share(std::optional<Rate> rate, std::uint64_t weight, std::uint64_t held,
                     const ControllerOptions& options);

// Number of idle periods in which an empty bucket fills.
std::uint64_t periods_to_fill(const Share& share, Nanoseconds period);

}  // namespace weir
