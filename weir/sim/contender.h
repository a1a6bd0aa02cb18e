// SPDX-License-Identifier: Apache-2.0
//
// The policies under which a scenario is run, for comparison. Each configures the same Target;
// nothing is scheduled here.
//
//   none      first come, first served
//   static    a fixed rate for every job by its nodes, whether it has work or not; depth 3
//   adaptbf   the controller as published
//   weir      Weir's controller
//   wfq       fair queueing by nodes, without tokens: the upper bound for comparison
//   mclock, sfq-d, sfq-d-auto, gift, themis, io-latency, lustre-tbf
//             schedulers of others, instead of a Target; see rival.h
//   slices, fixed, each   of a limit on many servers; see cluster_limit.h
//
// make_stage() creates a Target with the nodes of every job and its rules. The properties of a
// policy that checkers need (the limits of jobs, and whether a slot may idle) are here too.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/sim/parts_check.h"
#include "weir/sim/scenario.h"
#include "weir/target/target.h"

namespace weir::sim {

enum class Contender : std::uint8_t {
  kNone,
  kStatic,
  kAdaptbf,
  kWeir,
  kWfq,
  kMclock,
  kSfqD,
  kSfqDAuto,
  kGift,
  kThemis,
  kIoLatency,
  kLustreTbf,
  kSlices,
  kFixed,
  kEach
};
inline constexpr std::array kContenders = {Contender::kNone, Contender::kStatic,
                                           Contender::kAdaptbf, Contender::kWeir, Contender::kWfq};
// Schedulers of others; see rival.h.
inline constexpr std::array kRivals = {
    Contender::kMclock, Contender::kSfqD,      Contender::kSfqDAuto, Contender::kGift,
    Contender::kThemis, Contender::kIoLatency, Contender::kLustreTbf};
constexpr bool is_rival(Contender contender) {
  return contender >= Contender::kMclock && contender <= Contender::kLustreTbf;
}
// Of a limit on many servers; see cluster_limit.h.
inline constexpr std::array kClusterContenders = {Contender::kSlices, Contender::kFixed,
                                                  Contender::kEach};
constexpr bool is_cluster_contender(Contender contender) { return contender >= Contender::kSlices; }

std::string_view contender_name(Contender contender);
std::optional<Contender> contender_by(std::string_view name);

// Whether its result depends on the period.
constexpr bool has_periods(Contender contender) {
  return contender == Contender::kAdaptbf || contender == Contender::kWeir;
}
// Its default period.
Nanoseconds own_period(Contender contender);

// A limit that must hold over every window: rate x its length + depth.
struct Limit {
  Rate rate;
  Tokens depth;
};

// When a target may leave a slot free while requests wait.
enum class Idling : std::uint8_t {
  kForbidden,
  kAtCapacity,  // while `enough` is reached
  kAllowed,     // its rules may require it
};

struct Bounds {
  std::vector<std::optional<Limit>> jobs;      // by the order of the scenario
  std::optional<Limit> whole;                  // of all jobs together
  std::optional<Limit> enough = std::nullopt;  // of the same: below it no slot may idle
  Idling idling = Idling::kAllowed;
  // What a job gets at least in every second in which it has requests waiting throughout, by the
  // order of the scenario; empty: nothing.
  std::vector<std::optional<Rate>> reserves = {};
  std::optional<JobTree> tree = std::nullopt;  // none: shares of jobs alone
};

// The jobs in the tree of a target.
JobTree job_tree(const Scenario& scenario, const TargetSpec& spec);

struct Stage {
  std::unique_ptr<Target> target;
  Bounds bounds;
};

// What of the scenario the policy cannot express, and why; empty: nothing. `none` is the absence of
// control, which leaves nothing to express.
std::string obstacle(Contender contender, const Scenario& scenario);

// EINVAL if the policy cannot be configured for the target, or is a rival. A policy without
// reservations leaves them out.
Result<Stage> make_stage(Contender contender, const Scenario& scenario, const TargetSpec& spec,
                         std::optional<Nanoseconds> period, Instant now);

}  // namespace weir::sim
