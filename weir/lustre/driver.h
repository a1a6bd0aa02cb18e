// SPDX-License-Identifier: Apache-2.0
//
// Controls the rules of one Lustre server: a round reads its counters, lets the RuleController
// decide, and writes the changes. Files come from a Tree and names from Names, so the driver is the
// same for a server, a directory and a model.
//
//   Driver driver(options, tree, names, save, log);
//   every period:   driver.round(now)          at the end:   driver.remove_all()
//   between two:    driver.glance(now)         reads nrs_policies and nothing else
//
// Safe beside an administrator:
//   - changes only rules whose name and condition are in our map; never other rules, the policy or
//     its type
//   - our rules are directly before `default`, so that all other rules match first
//   - the map is saved before a name is used
//   - a rule that differs between CPTs or priorities is stopped everywhere and started again
//   - a start that fails is followed by a stop, since it may have partly succeeded
//   - when the server cannot be read for long, our rules are stopped, because their rates are old
//   - when others stop the rule of a job kStolenMax times within kStolenTime, the job is
//     left alone for kYieldFor, and said so (news())
// A failed write is repeated in the next round, from the state that the server shows then; the
// driver keeps no copy of that state. So a restart of the server or of the driver costs one round.
//
// With dry_run, nothing is written and every command is logged with its reason.
//
// Limits of a cluster (job_limits.h) are caps of the rates of jobs: the rule of a job has the lower
// of its cap and the rate at which the controller holds it. The controller sees only its own rates.
//
// The controller counts tokens, and a rule limits requests. Where the requests of a job cost more
// or less than a token (observer.h), rates are converted: a job of mkdirs at 5 tokens each that is
// due 100 tokens a second gets a rule of 20.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/adapt/rule_controller.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/rule_spec.h"
#include "weir/lustre/holds.h"
#include "weir/lustre/job_limits.h"
#include "weir/lustre/names.h"
#include "weir/lustre/observer.h"
#include "weir/lustre/server.h"
#include "weir/lustre/share_parts.h"
#include "weir/lustre/tree.h"

namespace weir::lustre {

class Driver {
 public:
  // Number of looks per period: one round, the others glances.
  static constexpr int kGlances = 4;

  static constexpr int kStolenMax = 3;
  static constexpr Nanoseconds kStolenTime = std::chrono::seconds{10};
  static constexpr Nanoseconds kYieldFor = std::chrono::minutes{10};

  struct Options {
    RuleController::Options controller;
    Nanoseconds patience = std::chrono::seconds{
        5};  // time after which our rules are removed if the server cannot be read
    bool dry_run = false;
    const Service* service = &kOstService;
    Costing costing;
  };
  struct Counters {
    std::uint64_t rounds = 0;
    std::uint64_t glances = 0;
    std::uint64_t failed_rounds = 0;  // rounds in which the server could not be read
    std::uint64_t writes = 0;         // successful commands
    std::uint64_t failed_writes = 0;
    std::uint64_t repairs = 0;   // rules that differed between heads
    std::uint64_t vanished = 0;  // active jobs whose counters vanished
    std::uint64_t unnamed = 0;   // jobs that no rule can name
    std::uint64_t stolen = 0;    // rules that others stopped
  };
  // A command that was written, or that the server refused.
  struct Written {
    std::string_view command;
    std::string_view reason;
    std::optional<std::uint32_t> before;  // the rate of the rule; none: there was no rule
    std::optional<std::uint32_t> after;
    const Error* error = nullptr;
    std::uint64_t round = 0;
  };
  // Saves the text of the map, before a name in it is used.
  using Save = std::function<Result<void>(std::string_view text)>;
  // A command and its reason.
  using Log = std::function<void(std::string_view command, std::string_view reason)>;

  // REQUIRES: tree and names outlive it. Without a controller it creates one with its options.
  Driver(const Options& options, Tree& tree, Names& names, Save save, Log log,
         std::unique_ptr<RuleController> controller = {});

  // Fails if the server could not be read, or with the first error of its writes.
  Result<void> round(Instant now);
  // The same based on the queue alone. If the server cannot be read, the next round reports it.
  Result<void> glance(Instant now);
  // With limits of a cluster: their caps may have changed since the last round.
  Result<void> apply_limits(Instant now);
  // Stops our rules. Continues after errors; returns the first.
  Result<void> remove_all(std::string_view reason = "Weir stops");

  // REQUIRES: it outlives the driver.
  void set_limits(JobLimits* limits) { limits_ = limits; }
  // A job counts on this server with the part of its nodes that it uses here. REQUIRES: it outlives
  // the driver, and no nodes were set.
  void set_parts(ShareParts* parts) { parts_ = parts; }

  Result<void> set_nodes(const JobId& job, std::uint64_t nodes);
  void forget_nodes(const JobId& job);
  // As set, without regard to parts.
  std::uint64_t nodes_of(const JobId& job) const;

  // Called after each command; not in a dry run.
  void on_written(std::function<void(const Written&)> written) { written_ = std::move(written); }

  const Counters& counters() const { return counters_; }
  const RuleController& controller() const { return *controller_; }
  const Options& options() const { return options_; }
  // The limit that holds a job now; nullptr: none does.
  const JobLimits::Cap* limit_of(const JobId& job) const;
  // Jobs that match a limit and have no rule (job_limits.h).
  std::uint64_t unlimited() const { return limits_ == nullptr ? 0 : limits_->unlimited(); }
  // Which jobs are held; in a dry run: would be.
  const Holds& holds() const { return holds_; }
  // Of the requests of a job lately, in 1/RequestCosts::kOne of a token.
  std::uint64_t cost_of(const JobId& job) const { return observer_.cost_of(job); }
  // The last round: counts and load.
  const RuleRound& last_round() const { return round_; }
  // What an administrator should know, each once.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }
  // Our rules in effect, as of the last round and later writes; rates in tokens.
  const std::vector<RuleSeen>& rules() const { return round_.rules; }

 private:
  struct Own {
    JobId job;
    std::uint32_t rate = 0;
    std::uint32_t heads = 0;  // number of heads that have it
    std::uint32_t reach = 0;
    bool agrees = true;
  };

  void go_blind(Instant now);
  std::map<std::string, Own> own_rules(const RuleTable& table);
  void see_rules(const RuleTable& table);
  enum class Missing : std::uint8_t { kStolen, kExpected };
  void miss_rules(Instant now, Missing missing);
  bool is_yielding(const JobId& job) const;
  std::uint32_t rule_rate(const JobId& job, std::uint32_t tokens) const;
  std::uint32_t token_rate(const JobId& job, std::uint32_t rate) const;
  void carry_out(const std::vector<JobRateChange>& changes, Instant now);
  void write_changes(const std::vector<JobRateChange>& changes, Instant now);
  void write_all(const std::vector<JobRateChange>& changes);
  bool is_in_force(const JobId& job, const std::optional<std::string>& name) const;
  bool is_capped(const JobId& job) const;
  void count_limits(Nanoseconds away, Instant now);
  void write_limits(Instant now);
  void write_limit(const JobId& job, Instant now);
  void count_parts();
  Result<void> start(const JobRateChange& change);
  Result<void> write(const RuleChange& change, std::string_view reason);
  void note(const Result<void>& done);
  void note(const JobId& job, const Result<void>& done);
  bool is_named(const JobId& job);
  std::optional<std::uint32_t> rate_of(const JobId& job, const std::string& name) const;

  Options options_;
  Tree& tree_;
  Names& names_;
  Save save_;
  Log log_;
  const std::unique_ptr<RuleController> controller_;
  Observer observer_;
  RuleRound round_;
  std::map<JobId, std::uint32_t> pretended_;    // with dry_run: rates that would be in effect
  std::set<std::string> foreign_;               // names of others
  std::set<std::string> used_;                  // names of ours
  std::map<std::string, std::uint32_t> rates_;  // of our rules in effect, by name
  std::set<JobId> repaired_;                    // whose rules differed in this round
  std::set<JobId> unwritten_;                   // whose last change was not made
  std::optional<Instant> seen_at_;              // when the server was last read
  bool is_blind_ = false;                       // the server could not be read since then
  std::optional<Error> first_error_;
  Counters counters_;
  // Rules of a job that others stopped.
  struct Stolen {
    int times = 0;
    Instant since{};
    std::optional<Instant> until;  // the job is left alone
  };
  std::map<JobId, Stolen> stolen_;
  Holds holds_;
  JobLimits* limits_ = nullptr;
  std::set<JobId> capped_;                 // jobs with a rule or cap of a limit, lately
  std::map<JobId, JobRateChange> wished_;  // by the controller, for jobs with a cap
  ShareParts* parts_ = nullptr;
  std::map<JobId, std::uint64_t> nodes_;    // with parts: as set
  std::map<JobId, std::uint64_t> weights_;  // with parts: as the controller has them
  std::vector<std::string> news_;
  std::function<void(const Written&)> written_;
};

}  // namespace weir::lustre
