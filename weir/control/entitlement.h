// SPDX-License-Identifier: Apache-2.0
//
// What a job is entitled to of the capacity of its service, alone or in a tree of shares, in words
// and numbers for explanations (explain.h).
//
//   path_words()       "project 7 40 % -> uid 1001 50 % -> ior.7 all"
//   entitlement_of()   tokens per second
//
// Functions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weir/control/snapshot.h"

namespace weir::control {

// Empty without a tree, and if the path is not known.
std::string path_words(const ServiceSnapshot& service, const JobSnapshot& job);

// None: the weights of all jobs are not known.
std::optional<std::uint64_t> entitlement_of(const ServiceSnapshot& service, const JobSnapshot& job);

// What gives the job a larger part: a larger weight, if others share its node; otherwise the weight
// of the lowest node that has siblings. `cure` is the command, or else the result is the end of a
// sentence. `weighing` is the rule that sets the weight; nullptr: its nodes do.
std::string more_share(const ServiceSnapshot& service, const JobSnapshot& job,
                       const RuleSnapshot* weighing, std::string& cure);

}  // namespace weir::control
