// SPDX-License-Identifier: Apache-2.0
//
// The part of each job's use that is on this server, of all servers of a cluster: a job that is
// spread over 100 servers counts as a hundredth of itself on each, and not as 100 jobs.
//
//   share on a server = nodes x served here / served on all servers
//
// Servers exchange, once in kLength, how much each job was served, as one vector of sums: each job
// has a place in each of kRows rows of kPlaces, by its id, and its sum is at most the least of
// its places. So there is no list of jobs to agree on, the data has one size, and two jobs that
// share a place in every row (one in a million pairs) count as one.
//
//   count() --> ready() --> sums of all servers --> start_epoch() --> part_of()
//
// A job that was not seen yet, and every job of a server that is cut off, counts whole. Integers
// only, no clock; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/vectors.h"
#include "weir/lustre/observer.h"

namespace weir::lustre {

class ShareParts final : public EpochUse {
 public:
  static constexpr std::uint64_t kWhole = 1024;
  static constexpr Nanoseconds kLength = std::chrono::seconds{1};
  static constexpr std::size_t kRows = 2;
  static constexpr std::size_t kPlaces = 1024;
  // With more jobs, those that were served the least are not told apart from whole ones.
  static constexpr std::size_t kJobsMax = 16'384;

  void count(std::span<const ServedByJob> served);
  // In 1/kWhole, at least 1.
  std::uint64_t part_of(const JobId& job) const;
  // In its last epoch it was in step with other servers.
  bool is_in_step() const { return is_in_step_; }

  EpochBytes ready(Instant now) override;
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;

 private:
  struct Use {
    std::uint64_t served = 0;  // since the last epoch
    std::uint64_t recent = 0;  // a mean of epochs, in 1/kFine of a request
    std::uint64_t sent = 0;    // in the call in progress
    std::uint64_t part = kWhole;
  };

  static std::size_t place_of(const JobId& job, std::size_t row);

  std::map<JobId, Use> jobs_;
  bool is_in_step_ = false;
};

}  // namespace weir::lustre
