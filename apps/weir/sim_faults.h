// SPDX-License-Identifier: Apache-2.0
//
// weir sim cluster-faults: a hundred clusters one after the other, each with its own seed,
// whose servers crash, stop, slow down and lose their connections while they share a limit and
// move through epochs, with all invariants checked (weir/sim/epoch_checkers.h). A seed that
// fails is named.
//
//   weir sim cluster-faults --seed 1000        seeds 1000 to 1099
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weir/coordinate/slices.h"

namespace weir::app {

inline constexpr const char* kClusterFaults = "cluster-faults";
inline constexpr const char* kClusterFaultsTitle =
    "A hundred clusters whose servers crash, stop and lose each other, checked";

struct FaultSimArguments {
  std::uint64_t seed = 1;  // the first
  std::uint64_t clusters = 100;
  Partition partition = Partition::kSafe;
  std::optional<std::string> out = std::nullopt;
  bool quiet = false;
};

// The exit status, or a Failure.
int simulate_faults(const FaultSimArguments& arguments);

}  // namespace weir::app
