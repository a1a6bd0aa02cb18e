// SPDX-License-Identifier: Apache-2.0
//
// The interface that a controller writes its decisions to: it holds a share for each job and paces
// it. The Gate of this process is one; a driver that writes rules to another server is another.
// Administrators' own rules are not in this interface at all, so a controller cannot touch them.
//
// Shares are addressed by job id, never by matching rules again. Any call may fail: the controller
// remembers what it wanted and tries again at the end of the next period. For this, calls are
// idempotent, so a call that repeats one that succeeded succeeds too and changes nothing: set() of
// an existing share changes it, drop() of a missing one succeeds.
//
// Calls are in the order of job ids, and only when something changed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir {

// A job's fraction of a target.
struct Share {
  std::optional<Rate> rate;  // none: the capacity is unknown, and shares only determine the order
  Tokens depth;              // of the bucket; unused without a rate
  std::uint64_t nodes = 1;   // the job's weight in the fair order

  bool operator==(const Share&) const = default;
};

class Enforcer {
 public:
  virtual ~Enforcer() = default;

  // A new share; its bucket starts full.
  virtual Result<void> set(const JobId& job, const Share& share, Instant now) = 0;
  // Another rate, depth or weight for a share that was set; the balance stays.
  virtual Result<void> change(const JobId& job, const Share& share, Instant now) = 0;
  // May be refused while the bucket is not full, so that a job does not lose a debt by being idle;
  // the controller tries again.
  virtual Result<void> drop(const JobId& job, Instant now) = 0;

  // ---- nodes above the jobs, in a tree of shares ----

  // The share of all jobs below a node, new or changed. Parents come before their children.
  virtual Result<void> set_node(std::span<const JobId> /*path*/, const Share& /*share*/,
                                Instant /*now*/) {
    return {};
  }
  virtual Result<void> drop_node(std::span<const JobId> /*path*/, Instant /*now*/) { return {}; }

  // Existing shares, in any order, for a controller that starts. Empty if shares end with the
  // process.
  virtual Result<std::vector<JobId>> held() { return std::vector<JobId>{}; }

 protected:
  Enforcer() = default;
  Enforcer(const Enforcer&) = default;
  Enforcer& operator=(const Enforcer&) = default;
};

}  // namespace weir
