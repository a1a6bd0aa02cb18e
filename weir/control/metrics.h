// SPDX-License-Identifier: Apache-2.0
//
// Snapshots in the Prometheus text format. Base units (seconds, bytes), counters that only
// increase, and few series for any number of clients:
//
//   by service, by rule     always
//   by job                  the kJobsMax busiest; all others are summed as jobid="other"
//   histograms              by service, and by job for kTimedJobsMax of the most delayed
//   by namespace of locks   always, where there is a lock service
//   by client of locks      the largest; all others are summed as client="other"
//
// A job gets its own series when it becomes one of the busiest; its earlier requests stay in
// "other", so that neither counter decreases. A series that has not changed for kIdleTime is
// removed and its place goes to another job. Sums over classes add the increase of each class, so
// removed classes do not reduce them. The label is `jobid`: Prometheus gives every series a label
// `job` of its own. Names of clients are escaped (printable_id(), and again for the format), so
// that none can end a line or a label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_map.h>

#include "weir/control/lock_metrics.h"
#include "weir/control/metric_family.h"
#include "weir/control/snapshot.h"

namespace weir::control {

class Metrics {
 public:
  static constexpr std::size_t kJobsMax = 50;
  static constexpr std::size_t kTimedJobsMax = ServiceSnapshot::kTimedJobsMax;
  static constexpr std::size_t kSlicesMax = 50;
  static constexpr Nanoseconds kIdleTime = std::chrono::minutes{5};

  explicit Metrics(std::string version) : version_(std::move(version)) {}

  // The response of a scrape. Snapshots must be given in the order they were taken.
  std::string scrape(const Snapshot& shot);

 private:
  struct RuleSums {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    std::uint64_t wait_ns = 0;

    RuleSums& operator+=(const RuleSums& more);
    RuleSums grown_from(const RuleSums& before) const;
  };
  struct JobSums {
    std::uint64_t requests = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t written_bytes = 0;
    std::uint64_t wait_ns = 0;
    std::uint64_t latency_ns = 0;

    JobSums& operator+=(const JobSums& more);
    JobSums grown_from(const JobSums& before) const;
  };
  template <class Sums>
  struct Series {
    Sums sums;
    Instant moved{};
  };
  struct Timed {
    JobTimes seen;  // in the last snapshot that had them
    JobTimes sums;
    Instant moved{};
  };
  struct Service {
    absl::flat_hash_map<std::uint64_t, RuleSums>
        classes;  // as last seen, by a hash of rule and key
    absl::flat_hash_map<JobId, JobSums, std::hash<JobId>> jobs;
    std::map<std::string, Series<RuleSums>> by_rule;
    std::map<JobId, Series<JobSums>> by_job;
    JobSums other;
    JobTimes times;
    std::map<JobId, Timed> by_timed_job;
  };

  void count_classes(Service& kept, const ServiceSnapshot& shot, Instant now);
  void count_jobs(Service& kept, const ServiceSnapshot& shot, Instant now);
  void count_times(Service& kept, const ServiceSnapshot& shot, Instant now);
  void add_rules(std::string& page) const;
  void add_jobs(std::string& page, const Snapshot& shot) const;
  static void add_nodes(std::string& page, const Snapshot& shot);
  void add_times(std::string& page) const;

  std::string version_;
  std::map<std::string, Service> services_;
  LockMetrics locks_;
};

}  // namespace weir::control
