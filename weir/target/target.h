// SPDX-License-Identifier: Apache-2.0
//
// One device as the server and the simulator see it, and the only way to its scheduler: start here.
// Everything that changes a decision is a command of the Target, and each is reported to the
// recorder, so that a trace can be replayed; everything else only reads. Normal operation:
//
//   target.admit(request, head, now);
//   Decision decision = target.next(now);       run this | ask again then | idle
//   target.complete(request, now);
//
// It contains a Gate, the controller that shares the device between jobs, and their accounts. The
// controller's periods end inside the same calls: wait_until includes the end of the period while
// jobs are active, so one timer is enough; while no job is active there are no wake-ups, and missed
// periods are processed with the next call, at most one minute of them.
//
//   admit ---> JobStats <--- complete           counters of each job
//                 | end of the period
//   Gate's loans -+--> Controller --> shares of the policy with rules, by job id
//   busy slots ------> CapacityEstimate          if the capacity is not configured
//              ------> SlotSearch                if the number of slots is not
//
// A job's first request in a period gives it a share at once if it has none. A configured capacity
// holds under every policy, with and without a controller (weir/schedule/root.h). Shares, slices
// and groups need a policy with rules on the regular head: under another policy the controller is
// suspended and reports it; when a policy with rules is started again, it gets all shares.
//
// Time is an argument. One owner, no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "weir/account/job_stats.h"
#include "weir/account/request_record.h"
#include "weir/adapt/capacity.h"
#include "weir/adapt/controller.h"
#include "weir/adapt/options.h"
#include "weir/adapt/period.h"
#include "weir/adapt/slot_search.h"
#include "weir/base/job_id.h"
#include "weir/base/rate.h"
#include "weir/classify/limits.h"
#include "weir/classify/nid.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/rule_engine.h"
#include "weir/target/device_capacity.h"
#include "weir/target/recorder.h"

namespace weir {

class Target {
 public:
  struct Options {
    Gate::Options gate = {};
    // Search for the number of slots, from gate.slots on (slot_search.h).
    bool auto_slots = false;
    // With auto_slots: the mean time in the device that more slots must not exceed.
    std::optional<Nanoseconds> latency_target = std::nullopt;
    // None: only limits apply.
    std::optional<ControllerOptions> controller = std::nullopt;
    // Tokens per second that the device can serve; with estimate_capacity the maximum of the
    // estimate. None and no estimate: shares determine the order, but do not pace.
    std::optional<Rate> capacity = std::nullopt;
    bool estimate_capacity = false;
    Cost cost = {};  // what a request takes from the capacity
    // Levels of a tree of shares above the jobs, top first (share_level.h); none: jobs alone.
    // Only with a controller.
    std::vector<FieldSet> share_levels = {};
    // A job whose nodes are not set counts as the number of its clients, by NID; off: as one.
    bool nodes_by_clients = false;
    std::size_t jobs_max = JobStats::kJobsMaxDefault;
    // Jobs with histograms of their own (job_stats.h).
    std::size_t timed_jobs_max = 0;
  };
  using PeriodListener = std::function<void(const PeriodReport&)>;
  using CapacitySource = weir::CapacitySource;

  // The root bucket that keeps a device with this many slots at its capacity.
  static RootBucket root_of(Rate capacity, std::uint32_t slots);

  Target(const Options& options, Instant now);
  // REQUIRES: as for the Gate.
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // ---- requests ----

  // See gate.h.

  void admit(Request& request, Head head, Instant now);
  Decision next(Instant now);
  // The capacity estimate counts completed requests, not failed ones. Returns the record, for
  // accounts of the caller.
  RequestRecord complete(Request& request, Instant now, const Outcome& outcome = {});
  void withdraw(Request& request, Instant now);
  void promote(Request& request, Instant now);
  void defer(Request& request, Instant now);
  void resume(Request& request, Instant now);
  // Counted as arrived, started and finished at once.
  void charge(Request& request, Head head, Instant now);
  // No admit follows; see Gate::shutdown().
  void shutdown(Instant now);

  // ---- policies and rules; see gate.h ----

  Result<void> set_policy(std::string_view name, std::string_view argument, Heads heads,
                          Instant now);
  Result<void> set_tunable(Head head, std::string_view name, std::uint64_t value, Instant now);
  Result<void> apply_rule(const RuleChange& change, Instant now);
  // The same from text.
  Result<void> write_rule(std::string_view text, Instant now);
  // All of them in this order, or none. The error names the command that cannot be applied.
  Result<void> apply_rules(std::span<const RuleChange> changes, Instant now);
  // What this server may use of rules with scope=cluster (rule_engine.h). Ignored under a policy
  // without rules.
  void set_slices(std::span<const ClassSlice> slices, Instant now);
  // Clients that go first (RuleOptions::groups). Ignored under a policy without rules.
  void prefer_group(std::optional<std::uint32_t> group, Instant now);
  // While held, no request of the regular head is started; shutdown() ends it.
  void hold(bool is_held, Instant now);

  // ---- the device and its jobs ----

  // Number of nodes of a job; 0: remove the setting. EINVAL for a number out of range.
  Result<void> set_nodes(const JobId& job, std::uint64_t nodes, Instant now);
  // The weight of a node above the jobs in the tree of shares, by the values of its path with /
  // between them; 0: remove the setting. EINVAL without a tree, and for a path or weight that
  // cannot be.
  Result<void> set_node_weight(std::string_view path, std::uint64_t weight, Instant now);
  // When a request of the job last used its nodes, or they were set; none: they are not set.
  std::optional<Instant> nodes_used_at(const JobId& job) const;
  // As Options::capacity and estimate_capacity, from now on; a new estimate starts unknown.
  // Without a controller there is no estimate. EINVAL: another unit than Options::cost; then
  // nothing changes.
  Result<void> set_capacity(const Capacity& capacity, Instant now);
  // The same from a trace: in tokens of this target's own unit. No source: unchanged.
  void replay_capacity(std::optional<Rate> capacity, std::optional<CapacitySource> source,
                       Instant now);
  // Lending records, as saved by the last run. Call before the first period ends; without a
  // controller it has no effect. On failure nothing changes.
  Result<void> restore(const Controller::State& state, Instant now);
  // As Options::nodes_by_clients: earlier counts are discarded.
  void set_nodes_by_clients(bool counts, Instant now);
  // The configured or estimated capacity; none while unknown.
  std::optional<Rate> capacity() const;
  // As Options::share_levels.
  const std::vector<FieldSet>& share_levels() const { return options_.share_levels; }
  // What a request takes from it.
  const Cost& cost() const { return options_.cost; }

  // Called at the end of every period.
  void on_period(PeriodListener listener) { listener_ = std::move(listener); }

  // Reports every call and every period from now on. At most one recorder, which outlives the
  // Target or is removed with nullptr.
  void record(TargetRecorder* recorder);

  // ---- reading ----

  std::size_t queued() const { return gate_.queued(); }
  std::size_t running() const { return gate_.running(); }
  std::size_t running(Head head) const { return gate_.running(head); }
  std::size_t deferred() const { return gate_.deferred(); }
  bool is_shut_down() const { return gate_.is_shut_down(); }
  // The minimum time that a request like this would wait if it arrived now (gate.h).
  Nanoseconds expected_wait(const Request& request, Head head, Instant now) const {
    return gate_.expected_wait(request, head, now);
  }
  // The current policy of a head.
  const Policy& policy(Head head) const { return gate_.policy_in_force(head); }
  std::vector<Gate::PolicyStatus> policies(Head head) const { return gate_.policies(head); }
  // Increases with every policy that is started.
  std::uint64_t policy_switches() const { return gate_.switches(); }
  // Rules, classes and waits of a head; nullptr if its policy has no rules.
  const RuleView* rules(Head head) const { return gate_.engine(head); }
  // Parses a rule command for the heads that it names; does not check whether it would succeed.
  Result<RuleChange> read_rule(std::string_view text) const { return gate_.read_rule(text); }
  Result<void> check_readable(const RuleChange& change) const {
    return gate_.check_readable(change);
  }
  // Whether changes would succeed: all in this order, or one by one as they are tried.
  Result<void> check_rules(std::span<const RuleChange> changes) const {
    return gate_.check_rules(changes);
  }
  Gate::RuleTrial rule_trial() const { return Gate::RuleTrial(gate_); }
  // Slots at this moment.
  std::uint32_t slots() const { return gate_.slots(); }
  // None if the number of slots is fixed.
  const SlotSearch* slot_search() const { return slot_search_ ? &*slot_search_ : nullptr; }
  const JobStats& stats() const { return stats_; }
  // None without a controller.
  const Controller* controller() const { return controller_.get(); }

 private:
  class GateShares;

  // A job that was seen in this period, and its counters at the start of it.
  struct Active {
    explicit Active(JobStats::Entry& of)
        : entry(&of),
          arrived(of.arrived),
          served(of.served()),
          surcharged(of.surcharged),
          refunded(of.refunded),
          waiting(of.waiting()) {}

    JobSample sample() const;

    JobStats::Entry* entry;
    JobStats::Count arrived;
    JobStats::Count served;
    Tokens surcharged;
    Tokens refunded;
    JobStats::Count waiting;
  };

  void advance(Instant now);
  void catch_up(Instant now);
  Decision decide(Instant now);
  void follow_policy(Instant now);
  void give_all_shares(Instant now);
  JobStats::Entry& arrive(Request& request, Head head, Instant now);
  void note_active(JobStats::Entry& entry, const Request& request, Head head, Instant now);
  void end_period(Instant now);
  void observe(Instant now);
  void begin_period();
  std::optional<std::uint64_t> weight_of(const JobId& job) const;
  void place(const JobId& job, const Attributes& attributes, Head head);
  void follow_places();
  void count_client(const Request& request, Instant now);
  void forget_clients(const JobId& job);
  void take_capacity(std::optional<Rate> capacity, Instant now);
  void set_root(Instant now);
  void set_reserve_bound();
  void scale_reserves(Instant now);
  void watch_slots(Instant now);
  void follow_slots(Instant now);
  Tokens cost_of(const Request& request) const { return options_.cost.of(request.bytes); }

  Options options_;
  Gate gate_;
  JobStats stats_;
  std::unique_ptr<GateShares> shares_;
  std::unique_ptr<Controller> controller_;
  CapacityEstimate estimate_;
  Instant watched_to_;  // until when the slots were observed
  std::optional<SlotSearch> slot_search_;
  Instant slots_since_;  // of this number
  PeriodListener listener_;
  TargetRecorder* recorder_ = nullptr;
  std::vector<Active> active_;
  absl::flat_hash_set<JobId, std::hash<JobId>> named_;  // jobs whose nodes were set
  struct NidHash {
    std::size_t operator()(const Nid& nid) const { return nid.hash(); }
  };
  using Clients = absl::flat_hash_set<Nid, NidHash>;
  // Of jobs whose nodes are not set and that stats_ keeps: removed with the job.
  absl::flat_hash_map<JobId, Clients, std::hash<JobId>> clients_;
  // Of jobs of active_ whose rules have a weight.
  absl::flat_hash_map<JobId, std::uint64_t, std::hash<JobId>> weights_;
  // In a tree of shares, of jobs of active_: the values of the levels above the job.
  absl::flat_hash_map<JobId, std::vector<JobId>, std::hash<JobId>> places_;
  // Entries of active_ are marked with it, or with one less until a request of theirs arrives.
  std::uint64_t period_ = 2;
  Instant period_end_ = kNever;
};

}  // namespace weir
