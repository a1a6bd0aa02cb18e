// SPDX-License-Identifier: Apache-2.0
//
// What a driver is doing, as values for the control socket: its load, its jobs, and a sentence that
// says why a job is held.
//
//   StatusKeeper keeper;
//   after each round:   keeper.count(driver, now);      keeper.status(driver, now)
//   explain(status, job, "14:02:11")
//       "held at 102/s since 14:02:11 because climate and ocean are entitled to 298/s"
//
// No clock; one owner.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/lustre/driver.h"

namespace weir::lustre {

struct JobStatus {
  JobId job;
  std::uint64_t nodes = 1;
  JobDemand::State state = JobDemand::State::kIdle;
  bool known = true;                        // it has counters
  std::uint64_t served = 0;                 // since the driver has known it
  std::uint64_t per_second = 0;             // lately
  std::uint64_t cost = RequestCosts::kOne;  // of its requests lately, in 1/RequestCosts::kOne
  std::uint64_t entitlement = 0;            // a second; 0: no other job competes with it
  std::int64_t record = 0;                  // tokens: above 0 lent, below 0 borrowed
  Hold hold;
  std::optional<JobLimits::Cap> limit = {};  // of a cluster, that holds it now
};

struct Status {
  Instant at{};
  std::string service;
  bool is_paper = false;
  bool is_dry_run = false;
  std::optional<std::uint64_t> capacity;  // a second
  std::uint64_t queued = 0;
  std::uint64_t busy = 0;
  std::uint32_t cpts = 1;
  Driver::Counters counters;
  std::uint64_t held = 0;
  std::uint64_t unlimited = 0;  // jobs that match a limit and have no rule
  std::vector<JobStatus> jobs;  // in the order of their ids

  const JobStatus* find(std::string_view job) const;
};

class StatusKeeper {
 public:
  static constexpr Nanoseconds kWindow = std::chrono::seconds{1};

  void count(const Driver& driver, Instant now);
  Status status(const Driver& driver, Instant now) const;

 private:
  struct Sums {
    std::uint64_t served = 0;
    std::uint64_t window = 0;
    std::uint64_t per_second = 0;
  };

  std::map<JobId, Sums> jobs_;
  std::optional<Instant> window_;
};

// `since`: when the job was held, as people read it.
std::string explain(const Status& status, const JobStatus& job, std::string_view since);

// "idle", "active" or "backlogged"
std::string_view state_name(JobDemand::State state);

}  // namespace weir::lustre
