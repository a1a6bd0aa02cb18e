// SPDX-License-Identifier: Apache-2.0
//
// Scenario files of the lock service: TOML with a table [locks] in, a sim::LockScenario out. Errors
// are reported like those of other scenarios (scenario_file.h), and weir-sim(1) lists all keys.
//
//   [locks]
//   limit = 100000
//   clients = 1000
//   appetites = ["equal", "zipf"]      one run for each
#pragma once

#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/sim/lock_world.h"

namespace weir::study {

// Whether a scenario has a table [locks]: it is then of the lock service, otherwise of storage.
bool is_lock_scenario(std::string_view text);

// `where` is the name of the file in messages. EINVAL if it is not valid.
Result<sim::LockScenario> parse_lock_scenario(std::string_view text, const std::string& where);

}  // namespace weir::study
