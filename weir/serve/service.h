// SPDX-License-Identifier: Apache-2.0
//
// The opened options: a Service is one Target with its policy and rules, a ServedExport is a name
// and a store whose requests a service schedules. Several exports may share a service; then its
// limits, shares and capacity hold for all of them together. A store that hangs does not keep the
// slots of the others (store_watch.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weir/account/op_stats.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/group_epochs.h"
#include "weir/coordinate/target_epochs.h"
#include "weir/host/io_loop.h"
#include "weir/serve/event_log.h"
#include "weir/serve/io_request.h"
#include "weir/serve/kept_rules.h"
#include "weir/serve/options.h"
#include "weir/serve/store.h"
#include "weir/serve/store_errors.h"
#include "weir/serve/store_watch.h"
#include "weir/serve/trace_file.h"
#include "weir/target/target.h"

namespace weir::serve {

// The turns of groups of clients at a service: on this server alone, until it joins others.
class ServiceGroups {
 public:
  ServiceGroups(Target& target, const GroupsOptions& options, Instant now);

  // In step with others from now on. REQUIRES: the handler outlives it.
  void join(EpochHandler& others, Instant now);
  void tick(Instant now) { epochs_->tick(now); }
  // Alone, it continues only while requests wait for a turn; other servers always wait for it.
  Instant next_wake() const;

  // In the order of turns(); "others" are the clients without a group.
  const std::vector<std::string>& names() const { return names_; }
  const GroupEpochs& turns() const { return use_; }
  const TargetEpochs& epochs() const { return *epochs_; }
  bool has_joined() const { return has_joined_; }

 private:
  Target& target_;
  std::vector<std::string> names_;
  LocalEpochHandler local_;
  GroupEpochs use_;
  std::optional<TargetEpochs> epochs_;
  bool has_joined_ = false;
};

struct Service {
  std::string name;
  std::uint32_t slots;
  std::size_t jobs_max;  // maximum number of known jobs
  Target target;
  KeptRules rules;
  std::unique_ptr<ServiceGroups> groups;  // none: no group is preferred
  Instant wakes_at = kNever;

  Service(std::string_view service_name, const Target::Options& options, Instant now)
      : name(service_name),
        slots(options.gate.slots),
        jobs_max(options.jobs_max),
        target(options, now),
        rules(target) {}

  // The next request to run. Turns of groups start and end inside this call.
  Decision next(Instant now);
};

struct ServedExport {
  explicit ServedExport(std::size_t jobs_max)
      : stats(std::min(jobs_max, OpStats::kJobsMaxDefault)) {}

  ExportOptions options;
  std::unique_ptr<Store> store;
  Service* service = nullptr;
  ExportFacts facts;  // its texts are those of `options`
  OpStats stats;      // operations of jobs on this export
  SyncErrors sync_errors;
  StoreWatch watch;
  EventLog log;  // of its store: errors of one export never hide those of another
};

// The owner of limits with scope=cluster: see RuleOptions::in_cluster.
enum class Standing : std::uint8_t { kAlone, kInCluster };

// With its policy started and its rules applied; recorded in the trace from its first call on, if
// there is one. The error names the rule.
Result<std::unique_ptr<Service>> open_service(const ServiceOptions& options,
                                              const std::vector<NodemapOptions>& nodemaps,
                                              UnknownJobs unknown_jobs, const GroupsOptions& groups,
                                              Instant now, TraceFile* trace = nullptr,
                                              Standing standing = Standing::kAlone);
// The error of the first service that could not be opened; opens none permanently.
Result<void> try_services(const ServeOptions& options);
Result<std::unique_ptr<ServedExport>> open_export(const ExportOptions& options, Service& service,
                                                  host::IoLoop& io);

// The nodes of jobs: a line "JOB NODES" each, '#' starts a comment. The error names the line.
using JobTable = std::map<std::string, std::uint64_t>;
Result<JobTable> parse_jobs(std::string_view text);
Result<JobTable> read_jobs(const std::string& path);
// Removes the nodes of jobs of `before` that are no longer listed. Returns the error of the first
// job whose number was refused; the others are set.
Result<void> set_nodes(Target& target, const JobTable& before, const JobTable& jobs, Instant now);

}  // namespace weir::serve
