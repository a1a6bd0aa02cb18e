// SPDX-License-Identifier: Apache-2.0
//
// One device as the server and the simulator see it, and the one door to its scheduler: start here.
// Everything that changes what is decided is a command of the Target, and each is told to whoever
// records it, so a trace can be repeated; everything else is to look at. Its daily life:
//
//   target.admit(request, head, now);
//   Decision decision = target.next(now);       run this | ask again then | idle
//   target.complete(request, now);
//
// Inside are a Gate, the controller that shares the device out among jobs, and what both count. The
// controller's periods end by themselves inside the same calls: wait_until includes the end of the
// period while jobs are active, so one timer serves both; while none is, nothing wakes anybody, and
// periods that passed meanwhile are made up for with the next call, one minute of them at most.
//
//   admit ---> JobStats <--- complete           what jobs did, counted per job
//                 | end of the period
//   Gate's loans -+--> Controller --> shares of the policy with rules, by job id
//   busy slots ------> CapacityEstimate          if nobody said what the device can do
//
// A job's first request in a period gets it a share at once if it has none. Shares, slices and
// groups need a policy with rules on the regular head: under another one the controller is
// suspended and says so, and one that is started anew gets all shares again.
//
// Time is given. One owner, no locks.
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
    // None: limits alone decide.
    std::optional<ControllerOptions> controller = std::nullopt;
    // Tokens a second the device does; with estimate_capacity the most it may be taken for. None
    // and no estimate: shares order, but do not pace.
    std::optional<Rate> capacity = std::nullopt;
    bool estimate_capacity = false;
    Cost cost = {};  // what a request takes of the capacity
    // A job whose nodes nobody named counts as the number of its clients, by NID; off: as one.
    bool nodes_by_clients = false;
    std::size_t jobs_max = JobStats::kJobsMaxDefault;
  };
  using PeriodListener = std::function<void(const PeriodReport&)>;
  using CapacitySource = weir::CapacitySource;

  // What keeps a device with so many slots at its capacity.
  static RootBucket root_of(Rate capacity, std::uint32_t slots);

  Target(const Options& options, Instant now);
  // REQUIRES: as of the Gate's.
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // ---- requests ----

  // What they do is the Gate's (gate.h).

  void admit(Request& request, Head head, Instant now);
  Decision next(Instant now);
  // The estimate of what the device can do counts what is done, and not what failed.
  // Gives what it was counted by, for accounts of the caller's own.
  RequestRecord complete(Request& request, Instant now, const Outcome& outcome = {});
  void withdraw(Request& request, Instant now);
  void promote(Request& request, Instant now);
  void defer(Request& request, Instant now);
  void resume(Request& request, Instant now);
  // Counted as arrived, started and finished at once.
  void charge(Request& request, Head head, Instant now);
  // No admit follows; see Gate::shutdown().
  void shutdown(Instant now);

  // ---- policies and rules; what they do and refuse is the Gate's (gate.h) ----

  Result<void> set_policy(std::string_view name, std::string_view argument, Heads heads,
                          Instant now);
  Result<void> set_tunable(Head head, std::string_view name, std::uint64_t value, Instant now);
  Result<void> apply_rule(const RuleChange& change, Instant now);
  // The same from text.
  Result<void> write_rule(std::string_view text, Instant now);
  // All of them in this order, or none. The error names the command that cannot be applied.
  Result<void> apply_rules(std::span<const RuleChange> changes, Instant now);
  // What this server may use of rules with scope=cluster (rule_engine.h). Nothing happens under a
  // policy without rules.
  void set_slices(std::span<const ClassSlice> slices, Instant now);
  // Clients that go first (RuleOptions::groups). Nothing happens under a policy without rules.
  void prefer_group(std::optional<std::uint32_t> group, Instant now);
  // While it is held nothing of the regular head is begun; shutdown() ends it.
  void hold(bool is_held, Instant now);

  // ---- the device and its jobs ----

  // How many nodes a job runs on; 0: forget it, the job counts as one whose nodes nobody named.
  // EINVAL for absurd numbers.
  Result<void> set_nodes(const JobId& job, std::uint64_t nodes, Instant now);
  // When a request of the job last made use of its nodes, or they were set; none: they are not set.
  std::optional<Instant> nodes_used_at(const JobId& job) const;
  // As Options::capacity and estimate_capacity, from now on: an estimate that begins knows nothing
  // yet. Without a controller there is nothing to estimate for. EINVAL: in another unit than
  // Options::cost; then nothing has changed.
  Result<void> set_capacity(const Capacity& capacity, Instant now);
  // The same as a trace holds it: in tokens of this target's own unit. No source: as before.
  void replay_capacity(std::optional<Rate> capacity, std::optional<CapacitySource> source,
                       Instant now);
  // What jobs owe each other, as it was when the last run ended. Before the first period ends;
  // without a controller it is of no use. On failure nothing has changed.
  Result<void> restore(const Controller::State& state, Instant now);
  // As Options::nodes_by_clients: what was counted so far is forgotten.
  void set_nodes_by_clients(bool counts, Instant now);
  // What the device is taken to do; none while unknown.
  std::optional<Rate> capacity() const;
  // What a request takes of it.
  const Cost& cost() const { return options_.cost; }

  // Told at the end of every period.
  void on_period(PeriodListener listener) { listener_ = std::move(listener); }

  // Tells it every call from now on, and every period. One at most, which outlives the Target or
  // is taken back with nullptr.
  void record(TargetRecorder* recorder);

  // ---- to look at ----

  std::size_t queued() const { return gate_.queued(); }
  std::size_t running() const { return gate_.running(); }
  std::size_t running(Head head) const { return gate_.running(head); }
  std::size_t deferred() const { return gate_.deferred(); }
  bool is_shut_down() const { return gate_.is_shut_down(); }
  // How long a request like this would wait if it came now, at least (gate.h).
  Nanoseconds expected_wait(const Request& request, Head head, Instant now) const {
    return gate_.expected_wait(request, head, now);
  }
  // What a head runs.
  const Policy& policy(Head head) const { return gate_.policy_in_force(head); }
  std::vector<Gate::PolicyStatus> policies(Head head) const { return gate_.policies(head); }
  // Grows with every policy that is started.
  std::uint64_t policy_switches() const { return gate_.switches(); }
  // Rules, classes and waits of a head; nullptr if its policy has no rules.
  const RuleView* rules(Head head) const { return gate_.engine(head); }
  // A rule command as the heads that it names read it; whether it succeeds is another question.
  Result<RuleChange> read_rule(std::string_view text) const { return gate_.read_rule(text); }
  Result<std::vector<RuleChange>> read_rules(std::span<const std::string> texts) const {
    return gate_.read_rules(texts);
  }
  Result<void> check_readable(const RuleChange& change) const {
    return gate_.check_readable(change);
  }
  // Whether changes would succeed: all in this order, or one by one as they are tried.
  Result<void> check_rules(std::span<const RuleChange> changes) const {
    return gate_.check_rules(changes);
  }
  Gate::RuleTrial rule_trial() const { return Gate::RuleTrial(gate_); }
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
  Decision decide(Instant now);
  void follow_policy(Instant now);
  void give_all_shares(Instant now);
  JobStats::Entry& arrive(Request& request, Instant now);
  void note_active(JobStats::Entry& entry, Instant now);
  void end_period(Instant now);
  void observe(Instant now);
  void begin_period();
  void count_client(const Request& request, Instant now);
  void forget_clients(const JobId& job);
  void take_capacity(std::optional<Rate> capacity, Instant now);
  void set_root(Instant now);
  void watch_slots(Instant now);
  Tokens cost_of(const Request& request) const { return options_.cost.of(request.bytes); }

  Options options_;
  Gate gate_;
  JobStats stats_;
  std::unique_ptr<GateShares> shares_;
  std::unique_ptr<Controller> controller_;
  CapacityEstimate estimate_;
  Instant watched_to_;  // the slots, for the estimate
  PeriodListener listener_;
  TargetRecorder* recorder_ = nullptr;
  std::vector<Active> active_;
  absl::flat_hash_set<JobId, std::hash<JobId>> named_;  // whose nodes were set
  struct NidHash {
    std::size_t operator()(const Nid& nid) const { return nid.hash(); }
  };
  using Clients = absl::flat_hash_set<Nid, NidHash>;
  // Of jobs that nobody named and that stats_ keeps: with a job its clients are forgotten.
  absl::flat_hash_map<JobId, Clients, std::hash<JobId>> clients_;
  // Entries of active_ are marked with it, or with one less until a request of theirs comes.
  std::uint64_t period_ = 2;
  Instant period_end_ = kNever;
  std::uint64_t switches_ = 0;
};

}  // namespace weir
