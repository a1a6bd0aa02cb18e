// SPDX-License-Identifier: Apache-2.0
//
// Snapshots in the Prometheus text format. Base units (seconds, bytes), counters that only
// increase, and few series for any number of clients:
//
//   by service, by rule     always
//   by job                  the kJobsMax busiest; all others are summed as job="other"
//   by namespace of locks   always, where there is a lock service
//   by client of locks      the kLockClientsMax largest; all others are summed as client="other"
//
// A job gets its own series when it becomes one of the busiest; its earlier requests stay in
// "other", so that neither counter decreases. A series that has not changed for kIdleTime is
// removed and its place goes to another job. Sums over classes add the increase of each class, so
// removed classes do not reduce them. Names of clients are escaped (printable_id(), and again for
// the format), so that none can end a line or a label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/control/snapshot.h"

namespace weir::control {

// In double quotes, escaped for the text format.
std::string metric_label(std::string_view value);

class Metrics {
 public:
  static constexpr std::size_t kJobsMax = 50;
  static constexpr std::size_t kLockClientsMax = 20;
  static constexpr std::size_t kSlicesMax = 50;
  static constexpr Nanoseconds kIdleTime = std::chrono::minutes{5};

  // The response of a scrape. Snapshots must be given in the order they were taken.
  std::string scrape(const Snapshot& shot);

 private:
  struct Sums {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    std::uint64_t wait_ns = 0;

    Sums& operator+=(const Sums& more);
    Sums grown_from(const Sums& before) const;
  };
  struct Series {
    Sums sums;
    Instant moved{};
  };
  struct Service {
    absl::flat_hash_map<std::uint64_t, Sums> classes;  // as last seen, by a hash of rule and key
    absl::flat_hash_map<JobId, Sums, std::hash<JobId>> jobs;
    std::map<std::string, Series> by_rule;
    std::map<JobId, Series> by_job;
    Sums other;
  };

  void count_classes(Service& kept, const ServiceSnapshot& shot, Instant now);
  void count_jobs(Service& kept, const ServiceSnapshot& shot, Instant now);

  void choose_lock_clients(const lock::NamespaceView& view);
  void add_locks(std::string& page, const std::vector<lock::NamespaceView>& locks);

  std::map<std::string, Service> services_;
  std::map<std::string, std::set<std::uint64_t>>
      lock_clients_;  // clients with a series, by namespace
};

}  // namespace weir::control
