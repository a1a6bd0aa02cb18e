// SPDX-License-Identifier: Apache-2.0
//
// weir sim group-epochs: groups of clients that take turns on eight servers, together, on each
// server separately, and not at all, as one table. The command and its options are those of other
// scenarios (sim.cc), which calls this for the scenario group-epochs.
//
//   weir sim group-epochs --length 30s
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weir::app {

inline constexpr const char* kGroupEpochs = "group-epochs";
inline constexpr const char* kGroupEpochsTitle =
    "Striped work of three groups of clients on eight servers that take turns together";

struct GroupSimArguments {
  std::optional<std::string> length;
  std::optional<std::string> out;
  std::uint64_t seed = 1;
  bool quiet = false;
};

// The exit status, or a Failure.
int simulate_groups(const GroupSimArguments& arguments);

}  // namespace weir::app
