// SPDX-License-Identifier: Apache-2.0
//
// Divides one target among jobs: observes them, and decides once per period.
//
//   for each job:  controller.observe({.job = job, .arrived = ..., .waiting = ...});
//   at the end of the period:  const PeriodReport& report = controller.decide(now);
//   when a request of a job without a share arrives:  controller.first_request(job, now);
//
//   samples -> demand -> loans settled -> allocation, records -> Enforcer: set, change, drop
//
// Which jobs hold a share:
//   - every job that was active in the period, at aRC tokens per period, at least one, so that no
//     job starves; the bucket is max(8, 4 aRC) deep unless the options say otherwise;
//   - with lending, a new job from its first request to the end of the period:
//     T * n / (nodes of all jobs that hold a share + n). This is neither a loan nor remembered
//     as allotted;
//   - with lending, a job that becomes idle keeps its rate and balance, and its bucket keeps
//     filling. The share is dropped after as many idle periods as the bucket takes to fill, since
//     a new one would start full too. Tokens that overflow meanwhile belong to no job: they are
//     part of the others' allocation. So `lent` of a job that got nothing in the last period is
//     not counted;
//   - without lending, a share ends with the first period in which its job is not active.
// While the capacity is unknown, shares have no rate and only an order, and nothing is lent. While
// suspended, there are no shares, and records only decay.
//
// An unchanged share is not written again. A failed write is repeated at the end of the next
// period; records never depend on it. After a crash, restore() the last state(), or start without
// it. The first decision asks the enforcer for its shares, writes every share once and drops those
// no longer wanted, so one period after any crash all shares are as decided.
//
// In a tree of shares (options.levels), jobs have a place, which is told before they are observed;
// the nodes above them get shares too (tree_shares.h).
//
// O(jobs log jobs) a period; no clock; one owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>

#include "weir/account/ledger.h"
#include "weir/adapt/allocator.h"
#include "weir/adapt/enforcer.h"
#include "weir/adapt/options.h"
#include "weir/adapt/period.h"
#include "weir/adapt/tree_shares.h"
#include "weir/base/job_id.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir {

// What one job did in the period that is ending, in tokens. Two samples of a job add up.
struct JobSample {
  JobId job;
  Tokens arrived{};
  Tokens served{};
  Tokens waiting{};  // at the start of the period
  // The most that an administrator's limits let it use in a period; caps its demand.
  std::optional<Tokens> limit = {};
  Tokens borrowed{};  // beyond its share, while no other job could use them
  Tokens lent{};      // spilled by its share bucket while it had nothing waiting
  Tokens reserved{};  // taken under reservations: it is allotted as much, if it needs it
  std::optional<std::uint64_t> weight = {};  // instead of its nodes
};

class Controller {
 public:
  // The state that only the controller knows. Nodes of jobs are not part of it: their source (the
  // command line, the journal, Slurm) sets them again at the next start.
  struct State {
    Allocator::State allocator;  // of jobs alone
    TreeAllocator::State tree;   // or of a tree of shares
  };
  struct Counters {
    std::uint64_t periods = 0;
    std::uint64_t written = 0;   // shares set, changed or dropped
    std::uint64_t failed = 0;    // attempts of these that failed
    std::uint64_t overflow = 0;  // new jobs without a share, because jobs_max jobs have one
  };

  static constexpr std::size_t kNodesTableMax = std::size_t{1} << 20;

  // The enforcer must outlive it. REQUIRES: options are in their ranges.
  Controller(const ControllerOptions& options, Enforcer& enforcer);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Tokens per second that the target can serve; none: unknown. Takes effect with the next
  // decision.
  void set_capacity(std::optional<Rate> capacity);
  std::optional<Rate> capacity() const { return capacity_; }

  // Number of nodes of a job; 1 if it was never set. Takes effect with the next decision. `now` is
  // used by nodes_used_at() only.
  Result<void> set_nodes(const JobId& job, std::uint64_t nodes, Instant now = {});
  void forget_nodes(const JobId& job) { nodes_.erase(job); }
  std::uint64_t nodes_of(const JobId& job) const;
  // When the nodes were set or the job was last active, so that those of ended jobs can be removed;
  // none if they are not set.
  std::optional<Instant> nodes_used_at(const JobId& job) const;

  void observe(const JobSample& sample);
  // Ends the period. The report is valid until the next call.
  const PeriodReport& decide(Instant now);
  // Call when a request of a job without a share arrives; does nothing if the job has a share.
  // `weight`: as in JobSample.
  void first_request(const JobId& job, Instant now,
                     std::optional<std::uint64_t> weight = std::nullopt);

  // Removes all shares and pauses, for a reason that is shown to users. Observations are ignored
  // meanwhile.
  void suspend(std::string reason, Instant now);
  void resume() { suspended_.reset(); }
  const std::optional<std::string>& suspended() const { return suspended_; }

  // Of jobs alone; empty in a tree, which has one for each parent.
  const Ledger& ledger() const { return allocator_.ledger(); }
  // What a job has lent and borrowed; nullptr if it has no account.
  const Ledger::Account* account_of(const JobId& job) const;
  // The tree of shares; nullptr: jobs alone.
  TreeShares* tree() { return tree_.get(); }
  const TreeShares* tree() const { return tree_.get(); }
  const Counters& counters() const { return counters_; }
  // The last error of the enforcer; none if it never failed.
  const std::optional<Error>& last_error() const { return last_error_; }
  // The share of a job as last enforced; none if it has none or its state is uncertain.
  std::optional<Share> share_of(const JobId& job) const;
  // Visits shares as last enforced in the order of jobs, from one on, `count` of them; returns the
  // job to continue from; none at the end.
  std::optional<JobId> visit_shares(
      const JobId& from, std::size_t count,
      const std::function<void(const JobId&, const Share&)>& visit) const;
  // Records of jobs that have one, at the end of the last period.
  const std::vector<JobRecord>& records() const { return report_.records; }

  State state() const;
  // Call before the first decision; nodes that were set stay. The state of a tree has no effect on
  // jobs alone, and the reverse. On failure nothing changes.
  Result<void> restore(const State& state);

 private:
  struct Holder {
    Share wanted;
    std::optional<Share> enforced = {};  // none: not known whether or how it is enforced
    std::uint64_t idle = 0;              // periods since its job was active
  };
  using Holders = absl::btree_map<JobId, Holder>;

  void adopt();
  void gather(Instant now);
  std::uint64_t use_nodes_of(const JobId& job, Instant now);
  void allocate();
  void note_loans();
  void list_active();
  void list_records();
  Share share_for(const JobPeriod& job) const;
  void enforce(Instant now);
  void let_idle(Holders::iterator& holder, Instant now);
  void write(const JobId& job, Holder& holder, Instant now);
  bool drop(const JobId& job, Holder& holder, Instant now);
  void note_failure(const Error& error);
  Holders::iterator hold(Holders::iterator at, const JobId& job, const Share& wanted);
  void erase(Holders::iterator& holder);

  ControllerOptions options_;
  Enforcer& enforcer_;
  Allocator allocator_;
  std::unique_ptr<TreeShares> tree_;
  std::optional<Rate> capacity_;
  struct Nodes {
    std::uint64_t count = 0;
    Instant used_at{};
  };
  absl::btree_map<JobId, Nodes> nodes_;
  Holders holders_;
  std::uint64_t nodes_held_ = 0;  // by all holders
  bool adopted_ = false;          // whether shares found in the enforcer at the start were adopted
  std::optional<std::string> suspended_;
  std::optional<Error> last_error_;
  Counters counters_;
  std::vector<JobSample> samples_;
  std::vector<Allocator::Demand> demands_;
  std::vector<Tokens> reserved_;  // of each demand; empty if all are 0
  std::vector<Ledger::Loan> loans_;
  PeriodReport report_;
};

}  // namespace weir
