// SPDX-License-Identifier: Apache-2.0
//
// Scenarios with a Lustre server, for weir sim: connects the model (weir/sim) and the driver
// (weir/lustre) through the text of the files in memory, one policy per run.
//
//   none       fifo                     static     fixed rules by nodes
//   adaptbf    the published algorithm, as weir lustre run --algorithm paper
//   weir       the driver as weir lustre runs it
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "weir/adapt/rule_controller.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lustre/driver.h"
#include "weir/lustre/tree.h"
#include "weir/sim/contender.h"
#include "weir/sim/lustre_world.h"
#include "weir/sim/outcome.h"
#include "weir/sim/scenario.h"

namespace weir::app {

struct LustreSimOptions {
  std::uint64_t seed = 1;
  std::optional<Nanoseconds> period = {};
  // With policy none: tbf instead of fifo, without rules.
  bool tbf_without_rules = false;
  // Creates the controller of a driver; without it a driver creates its own.
  std::function<std::unique_ptr<RuleController>(const RuleController::Options&)> controller = {};
  // Called for every command that was written.
  std::function<void(std::string_view command, Instant now)> written = {};
  // Called after each round of a driver.
  std::function<void(const lustre::Driver&, const sim::LustreServer&, Instant)> watch = {};
  std::function<void(const sim::Rpc&, Instant started, Instant now)> done = {};
  // With policy none: called every period, and for glances between two.
  std::function<void(lustre::Tree&, Instant now)> round = {};
  std::function<void(lustre::Tree&, Instant now)> glance = {};
};

// EINVAL for wfq, which cannot be expressed as rules.
Result<sim::Outcome> simulate_lustre(const sim::Scenario& scenario, sim::Contender contender,
                                     const LustreSimOptions& options);

}  // namespace weir::app
