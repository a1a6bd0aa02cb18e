// SPDX-License-Identifier: Apache-2.0
//
// The opened options: a Service is one Target with its policy and rules, a ServedExport is a name
// and a store whose requests a service schedules. Several exports may share a service; then its
// limits, shares and capacity hold for all of them together. A store that hangs does not keep the
// slots of the others (store_watch.h). The loops of a server share both: what a Target decides and
// the accounts are reached through a Dispatcher (dispatcher.h), or in a command.
#pragma once

#include <algorithm>
#include <atomic>
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
  SharesOptions shares = {};              // as in the file that was applied last
  Instant wakes_at = kNever;
  std::size_t dispatcher = 0;  // among those of the server

  Service(std::string_view service_name, const Target::Options& options, Instant now)
      : name(service_name),
        slots(options.gate.slots),
        jobs_max(options.jobs_max),
        target(options, now),
        rules(target) {}

  // The next request to run. Turns of groups start and end inside this call.
  Decision next(Instant now) { return groups == nullptr ? target.next(now) : next_of_groups(now); }

 private:
  Decision next_of_groups(Instant now);
};

struct ServedExport {
  explicit ServedExport(std::size_t jobs_max)
      : stats(std::min(jobs_max, OpStats::kJobsMaxDefault)) {}

  // A store that may hang has completed an operation. Loops share the time, so it is written only
  // if it is much later than before.
  void note_done(Instant now) {
    constexpr Nanoseconds kPrecision = std::chrono::milliseconds{10};
    if (now - done_at() >= kPrecision) done_ns_.store(ns_of(now), std::memory_order_relaxed);
  }
  Instant done_at() const { return Instant{Nanoseconds{done_ns_.load(std::memory_order_relaxed)}}; }

  ExportOptions options;
  std::size_t index = 0;         // among the exports of the server
  std::unique_ptr<Store> store;  // of the first loop, until that takes it
  Service* service = nullptr;
  ExportFacts facts;  // its texts are those of `options`
  OpStats stats;      // operations of jobs on this export; guarded as the Target of its service
  SyncErrors sync_errors;
  EventLog log;  // of its store: errors of one export never hide those of another

 private:
  std::atomic<std::int64_t> done_ns_ = 0;
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
// EINVAL: there are groups, and no service has a policy that supports them.
Result<void> check_groups(const GroupsOptions& groups,
                          const std::vector<std::unique_ptr<Service>>& services);
// The error of the first service that could not be opened; opens none permanently.
Result<void> try_services(const ServeOptions& options);
Result<std::unique_ptr<ServedExport>> open_export(const ExportOptions& options, Service& service,
                                                  host::IoLoop& io);

// Shares of accounts of Slurm, and of their users: "physics", "physics/alice".
using AccountShares = std::map<std::string, std::uint64_t, std::less<>>;
// Whether nodes of any service have the weight of an account.
bool has_accounts(const ServeOptions& options);
// Sets the weights of nodes that have those of an account; that of an account that is gone is 1.
// Returns a line for each of these.
std::vector<std::string> set_account_weights(Service& service, const AccountShares& accounts,
                                             Instant now);

// The nodes of jobs: a line "JOB NODES" each, '#' starts a comment. The error names the line.
using JobTable = std::map<std::string, std::uint64_t>;
Result<JobTable> parse_jobs(std::string_view text);
Result<JobTable> read_jobs(const std::string& path);
// Removes the nodes of jobs of `before` that are no longer listed. Returns the error of the first
// job whose number was refused; the others are set.
Result<void> set_nodes(Target& target, const JobTable& before, const JobTable& jobs, Instant now);

}  // namespace weir::serve
