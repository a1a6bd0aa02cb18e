// SPDX-License-Identifier: Apache-2.0
//
// weir sim for scenarios of the lock service: each appetite under each policy, a table, a report.
// The command and its options are those of other scenarios (sim.cc), which calls this for lock
// scenarios. Options without a meaning here are rejected, not ignored.
//
//   weir sim lock-volume --policy weir,lru-100 --out /tmp/locks
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weir/study/scenario_file.h"

namespace weir::app {

struct LockSimArguments {
  std::optional<std::string> policies;  // none: those of the scenario
  std::optional<std::string> length;
  std::optional<std::string> out;
  std::uint64_t seed = 1;
  bool quiet = false;
};

// The exit status, or a Failure.
int simulate_locks(const study::ScenarioText& found, const LockSimArguments& arguments);

}  // namespace weir::app
