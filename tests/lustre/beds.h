// SPDX-License-Identifier: Apache-2.0
//
// The two beds on which the driver was measured on a running server, in the model: what was served,
// how long the bursts took, how many rules were written, and how far a held job exceeded its rule.
// The scenarios are in scenarios/lustre-bed-*.toml, the rounds of the server in
// docs/design/lustre.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/weir/lustre_sim.h"
#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/sim/scenario.h"

namespace weir::beds {

// From scenarios/. The bursty jobs are ja, jb and jc; the job that always has requests is hog.
sim::Scenario bed(char which);
// Jobs that always want more, one for each size, on bed B: j1 is of the first size, and so on.
sim::Scenario greedy(const std::vector<std::uint64_t>& sizes, Nanoseconds length,
                     std::uint32_t processes = 64);

struct Measured {
  // Of a job with a rule of at most kLowRate: completions, and rate x time.
  struct OverLimit {
    double served = 0;
    double allowed = 0;
    double ratio() const { return allowed > 0 ? served / allowed : 0; }
  };

  std::uint64_t served = 0;
  std::map<std::string, std::uint64_t> by_job;
  std::map<std::string, double> p99_ms;  // from the release of a request to its completion
  std::uint64_t writes = 0;
  OverLimit raw;
  OverLimit settled;         // from one service time after the rule began
  Nanoseconds held{0};       // time for which hog had a rule
  std::uint64_t pieces = 0;  // times it was started
  std::vector<std::string> commands;
};

inline constexpr std::uint32_t kLowRate = 90;
inline constexpr Nanoseconds kServiceTime = std::chrono::milliseconds{40};

enum class Policy : std::uint8_t { kNone, kTbf, kPaper, kWeir };

Measured measure(const sim::Scenario& scenario, Policy policy, std::uint64_t seed,
                 app::LustreSimOptions options = {});

}  // namespace weir::beds
