// SPDX-License-Identifier: Apache-2.0
//
// weir sim for scenarios of the lock service: each appetite under each policy, a table, a report.
// The command and its options are those of other scenarios (sim.cc), which hands over what it finds
// to be of this kind. What has no meaning here is refused, not ignored.
//
//   weir sim lock-volume --policy weir,lru-100 --out /tmp/locks
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weir/study/scenario_file.h"

namespace weir::app {

struct LockSimArguments {
  std::optional<std::string> policies;  // none: the scenario's own
  std::optional<std::string> length;
  std::optional<std::string> out;
  std::uint64_t seed = 1;
  bool quiet = false;
};

// The exit status, or a Failure.
int simulate_locks(const study::ScenarioText& found, const LockSimArguments& arguments);

}  // namespace weir::app
