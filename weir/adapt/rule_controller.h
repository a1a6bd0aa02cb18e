// SPDX-License-Identifier: Apache-2.0
//
// Decides on rules for a server that has only rates (a Lustre server, driven by weir/lustre), from
// the server's counters. The allocation is that of the Controller. This is the pure part; the
// driver only reads and writes:
//
//   counts -> CensoredDemand -> Controller (AdapTBF, records) -> which jobs are held, at which rate
//
// Which jobs are limited: a backlogged job while others are backlogged, unless its share is among
// the largest, in requests. Jobs with the largest shares are never limited: such a server serves
// higher rates first, and these jobs use what the others leave without a rule. So no rule leaves
// the server idle, and their demand is seen in full. A job running alone has no rule. A returning
// job has none either, so its burst starts at once, and the others are limited more for a moment.
// Where completions come in clumps, the shorter of several bursts is served first (burst_order.h).
// A job whose share is most of the server has no rule. Counters show a new job when its first
// request completes; a queue that grows suddenly shows it at once, and is trusted for a moment.
//
// Between two rounds there may be glances, which see only how many requests wait and how many are
// in service: enough to notice at once that a new job is active, or that requests wait while the
// server is idle, which is the effect of an outdated rule.
//
// The rate that is written:
//   share x gain / yield     gain rises while requests wait and the server does less than it can;
//                            yield is what the job was served for each token of its rule: more than
//                            1 where it reaches several CPTs, less where timers are late
//   at least a step away     from the current rate, and not while the free tokens of the last
//                            change (depth on each CPT that it reaches) are more than a fifth of
//                            what the rate has given since; nor so low that they are more than a
//                            fifth of what it gives in the time that jobs have competed
//   1 ... 999999             the range that a server accepts
//
// Mode kPaper is the published algorithm to the letter (facts in docs/design/adaptive.md), for
// comparison: served counts, a rule for every active job, written in every period, the largest job
// first. It needs a capacity: the paper does not measure one.
//
// Whatever a round says (counters of 2^64, a rate of 0, an hour since the last one), decide()
// answers; times are never negative.
//
// Integers only, no clock; one owner.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>

#include "weir/adapt/burst_order.h"
#include "weir/adapt/capacity.h"
#include "weir/adapt/censored_demand.h"
#include "weir/adapt/controller.h"
#include "weir/adapt/enforcer.h"
#include "weir/adapt/options.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir {

// What one job was served since the last round.
struct JobCount {
  static constexpr std::uint64_t kToken = 1024;

  JobId job;
  Tokens served{};
  bool known = true;            // false: it had counters and has none now
  bool can_hold = true;         // false: no rule can name it
  std::uint64_t cost = kToken;  // of one of its requests, in 1/kToken of a token; not 0
};

// A rule of the driver that is in effect.
struct RuleSeen {
  JobId job;
  std::uint32_t rate = 1;
  std::uint32_t reach = 1;  // CPTs on which requests of the job have matched it
};

struct RuleRound {
  Instant at;
  std::vector<JobCount> jobs;        // in the order of their ids
  std::optional<Tokens> served_all;  // by the server as a whole
  std::uint64_t queued = 0;
  std::uint64_t busy = 0;       // requests in service
  std::vector<RuleSeen> rules;  // in the order of their jobs
};

// The same for a glance: sums over all jobs.
struct RuleGlance {
  Instant at;
  std::uint64_t queued = 0;
  std::uint64_t busy = 0;  // requests in service
};

struct JobRateChange {
  JobId job;
  std::optional<std::uint32_t> rate;  // none: stop its rule
  std::string reason;
};

// The rules in effect after a change, in the order of jobs.
void apply_to(std::vector<RuleSeen>& rules, const JobRateChange& change);

class RuleController {
 public:
  enum class Mode : std::uint8_t { kWeir, kPaper };

  static constexpr std::uint32_t kRateMax = 999'999;

  struct Options {
    Mode mode = Mode::kWeir;
    Nanoseconds period = std::chrono::milliseconds{20};
    std::optional<Rate> capacity;  // none: measured while no rule is in effect
    std::uint32_t cpts = 1;
    std::uint32_t depth = 3;          // free tokens of a change on one CPT
    std::uint32_t step_percent = 10;  // a smaller change is not written
    std::size_t jobs_max = 8192;

    static Options paper() {
      Options options;
      options.mode = Mode::kPaper;
      options.period = ControllerOptions::paper().period;
      return options;
    }
  };

  explicit RuleController(const Options& options);
  RuleController(const RuleController&) = delete;
  RuleController& operator=(const RuleController&) = delete;
  virtual ~RuleController();

  Result<void> set_nodes(const JobId& job, std::uint64_t nodes);
  void forget_nodes(const JobId& job);

  // The changes to make. In the first round, which has nothing to compare with, and whenever no job
  // needs to be limited: stop every rule. Valid until the next call.
  const std::vector<JobRateChange>& decide(const RuleRound& round);
  // The changes to make before the next round, based on a glance. Valid until the next call.
  const std::vector<JobRateChange>& glance(const RuleGlance& seen);

  const Options& options() const { return options_; }
  // Requests per second that the server can do, as given or measured.
  std::optional<Rate> capacity() const { return capacity_; }
  // As of the last round, in the order of job ids.
  const std::vector<JobDemand>& demands() const { return demands_; }
  // nullptr if there is none.
  const JobDemand* demand_of(const JobId& job) const;
  // Requests per second that the job is entitled to while jobs compete; 0 otherwise.
  std::uint64_t entitlement_of(const JobId& job) const;
  std::uint64_t nodes_of(const JobId& job) const { return controller_.nodes_of(job); }
  const Ledger& ledger() const { return controller_.ledger(); }
  // Whether there is any state for the job.
  bool is_known(const JobId& job) const { return demand_.is_known(job); }
  const PeriodReport& report() const { return report_; }

 protected:
  // Measures against the behaviour of real servers (docs/design/lustre.md). A subclass can leave
  // one out, to measure its effect.
  enum class Lesson : std::uint8_t {
    kVanished,  // a job that vanishes from the counters is unknown, not idle
    kIdling,    // requests that wait while the server is idle wait for a rule: rates are too low
    kLone,      // a job that is alone, or has the largest entitlement, has no rule
    kYield,     // a rule gives less than its rate, and more on several CPTs
    kRefill,    // every change gives free tokens
    kReturn,    // a job that returns finds free capacity at once
    kBacklog,   // a job at its rate wants more
  };
  virtual bool heeds(Lesson /*lesson*/) const { return true; }

 private:
  // With this percentage of the usual number in service the server is full.
  static constexpr std::uint64_t kBusyPercent = 90;

  struct Shares;
  struct Held {
    std::uint64_t served = 0;   // since the last change
    std::uint64_t allowed = 0;  // by the rate as written, in 1/1024
    Nanoseconds time{0};        // since the last change
    Nanoseconds content{0};     // since it was backlogged
  };

  // What a job got beside its share while jobs compete.
  struct Account {
    std::int64_t balance = 0;     // due less served, in 1/1024 of a request
    std::uint64_t yield = 0;      // of its last rule, in 1/1024; 0: not known
    bool is_owed = false;         // more than a rule can give it
    std::uint64_t unpriced = 0;   // served while the capacity was unknown
    Nanoseconds unpriced_for{0};  // and how long that was
  };
  // A change that can wait.
  struct Adjustment {
    JobId job;
    std::uint32_t rate = 0;
    std::uint64_t off = 0;  // by how much of the current rate, in 1/1024
  };

  static std::uint64_t served_in(const RuleRound& round);
  void measure(const RuleRound& round, Nanoseconds elapsed);
  void measure_use(std::uint64_t served, Nanoseconds elapsed);
  bool is_full(const RuleRound& round) const;
  Rate expected_of(const RuleSeen& seen) const;
  void estimate(const RuleRound& round, Nanoseconds elapsed);
  void learn(Nanoseconds elapsed);
  void suspect(const RuleRound& round, Nanoseconds elapsed);
  void hold_for_newcomer();
  void look_for_newcomer(std::uint64_t outstanding);
  void look_for_idling(const RuleGlance& seen);
  void look_for_others(const RuleGlance& seen);
  void release(const char* reason, Nanoseconds time);
  void settle_release(Nanoseconds elapsed);
  bool can_fill(std::uint64_t outstanding) const;
  void see_backlog(std::uint64_t outstanding);
  std::uint64_t first_rate() const;
  Nanoseconds service_time() const;
  void account(Nanoseconds elapsed);
  bool is_free(const JobDemand& demand, std::uint64_t largest, std::uint64_t most_nodes,
               std::string& reason) const;
  void adjust(Nanoseconds elapsed);
  void set_rate(const JobId& job, Held& held, std::uint32_t rate);
  bool is_paid(const Held& held, std::uint64_t reach) const;
  bool is_busy(std::uint64_t busy) const { return busy * 100 >= most_busy_ * kBusyPercent; }
  void note_changes();
  std::uint64_t backlogged_count() const;
  void allocate(const RuleRound& round, Nanoseconds elapsed);
  void choose();
  std::optional<JobId> first_burst(std::uint64_t most_nodes) const;
  bool comes_in_clumps() const;
  bool follows(const JobDemand& demand, const JobId& first) const;
  void give_way(const JobId& job, const RuleSeen* seen, const JobId& first);
  void decide_paper(const RuleRound& round, Nanoseconds elapsed);
  bool may_hold(const JobDemand& demand) const;
  std::uint64_t cost_of(const JobId& job) const;
  std::uint64_t in_requests(std::uint64_t tokens, const JobId& job) const;
  void smooth(bool anew);
  std::uint64_t share_of(const JobId& job) const;
  std::uint64_t wanted_rate(const JobId& job) const;
  std::uint64_t corrected_share(const JobId& job) const;
  std::uint64_t yield_of(const JobId& job) const;
  std::uint64_t lowest() const;
  std::optional<std::uint32_t> next_rate(const JobId& job, Held& held, const RuleSeen* seen) const;
  const RuleSeen* seen_of(const JobId& job) const;
  Tokens own_part(const JobId& job, Nanoseconds elapsed) const;
  void stop_all(const std::string& reason);
  void change(const JobId& job, std::optional<std::uint32_t> rate, std::string reason);

  Options options_;
  std::unique_ptr<Shares> shares_;
  Controller controller_;
  CensoredDemand demand_;
  CapacityEstimate estimate_;
  std::optional<Rate> capacity_;
  std::optional<Instant> last_;
  absl::btree_map<JobId, Held> held_;
  absl::btree_map<JobId, bool> cannot_hold_;
  absl::btree_map<JobId, std::uint64_t> costs_;   // of a request, if it is not a token
  absl::btree_map<JobId, std::uint64_t> smooth_;  // shares, in 1/kOne of one a second
  std::vector<JobDemand> demands_;
  std::vector<RuleSeen> rules_;  // in force, as far as we know
  std::vector<JobRateChange> changes_;
  PeriodReport report_;
  Nanoseconds contended_{0};   // several jobs are active, without a break
  std::uint64_t gain_ = 1024;  // in 1/1024
  std::uint64_t use_ = 1024;   // of the capacity, lately
  // Requests at the server, waiting and in service, as of the last looks while one job was alone.
  std::array<std::uint64_t, 4> outstanding_{};
  std::size_t looks_ = 0;
  // Outstanding requests of a job that had the server to itself when another one came.
  struct Kept {
    JobId job;
    std::uint64_t outstanding = 0;
  };
  std::optional<Kept> kept_;
  // A sign that was a false alarm is ignored for a time that doubles.
  struct Caution {
    static constexpr Nanoseconds kMin = std::chrono::seconds{1};
    static constexpr Nanoseconds kMax = std::chrono::minutes{1};

    Nanoseconds left{0};
    Nanoseconds next = kMin;

    bool is_on() const { return left > Nanoseconds{0}; }
    void pass(Nanoseconds elapsed) { left = std::max(left - elapsed, Nanoseconds{0}); }
    void was_right() { next = kMin; }
    void was_wrong() {
      left = next;
      next = std::min(next * 2, kMax);
    }
  };
  Nanoseconds suspected_{0};  // remaining time for which a new job is suspected
  Caution newcomer_;
  Nanoseconds released_{0};  // remaining time for which no job is limited
  Caution release_;
  bool was_full_ = false;      // requests waited for the server, not for a rule
  bool has_idled_ = false;     // as of the glances since the last round
  bool is_counting_ = false;   // full since a round with completions
  std::uint64_t counted_ = 0;  // served since then
  Nanoseconds counted_for_{0};
  Nanoseconds last_elapsed_{0};
  std::uint64_t unused_ = 0;  // served since the last update of use_
  Nanoseconds unused_for_{0};
  absl::btree_map<JobId, Account> accounts_;
  std::vector<Adjustment> adjustments_;
  BurstOrder bursts_;
  Nanoseconds since_adjusted_{0};
  std::uint64_t most_busy_ = 0;  // requests in service while others waited
  std::uint32_t idling_ = 0;     // consecutive glances that saw it idle
  std::uint64_t active_nodes_ = 0;
  std::uint64_t active_count_ = 0;
  std::uint64_t active_cost_ = 0;  // of a request of each
};

}  // namespace weir
