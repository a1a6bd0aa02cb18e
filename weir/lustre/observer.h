// SPDX-License-Identifier: Apache-2.0
//
// Turns successive looks at a server into rounds: what each job was served since the last look, the
// sum over the OSTs. Used by the driver, and by `weir lustre record`, which only observes.
//
//   Observer observer;
//   observer.count(view, now, round);       fills everything but the rules
//
// What counters do on real servers:
//   they begin anew     an entry that was cleared, or expired and came back: it counts from 0
//   they go back        with the same start time: nothing is counted
//   they vanish         the job is unknown, not idle, if `keeps` says that it matters; its counters
//                       are kept as long, and for kKeepFor, so that an entry that one read missed
//                       continues
// On the first look at a target it is unknown since when its counters count: nothing is counted.
//
// No clock; one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "weir/adapt/rule_controller.h"
#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/lustre/server.h"

namespace weir::lustre {

class Observer {
 public:
  static constexpr Nanoseconds kKeepFor = std::chrono::minutes{1};

  using Keeps = std::function<bool(const JobId&)>;

  explicit Observer(Keeps keeps = {}) : keeps_(std::move(keeps)) {}

  // Sets everything in `round` but its rules.
  void count(const View& view, Instant now, RuleRound& round);

  // Active jobs of the last look that no rule can name.
  std::uint64_t unnamed() const { return unnamed_; }

 private:
  struct Last {
    std::uint64_t rpcs = 0;
    std::optional<std::uint64_t> since_ns;
    Instant seen_at{};
  };

  void count_target(const TargetView& target, Instant now, std::map<JobId, JobCount>& sums);

  Keeps keeps_;
  std::map<std::string, std::map<JobId, Last>> last_;  // by target
  std::map<std::string, std::uint64_t> last_rpcs_;     // by target
  std::uint64_t unnamed_ = 0;
};

}  // namespace weir::lustre
