// SPDX-License-Identifier: Apache-2.0
//
// Limits of a cluster on a Lustre server: the driver gives it what each job was served, it gives
// the driver the rate of each job's rule. It is the SliceSink of the server (slice_sink.h):
//
//   job_stats --count()--> JobLimits --loads()--> demand ... slices --set_slices()--> JobLimits
//                              '-------- caps() --> rules of the driver, one for each job
//
// A rule of a Lustre server limits each class on each CPT and each head, and counts requests. So
// the limits here are never written to the server as they are. Jobs that match a limit are grouped
// into its classes, by its by= (a job, a user, the whole rule), from what their ids tell
// (job_facts.h); a class has an account:
//
//   balance = slice x time - served        exact: what was served is counted by the server
//   wanted  = slice + balance / 0.4 s      is divided between the jobs of the class
//   cap     = wanted / yield               the rate of the rule; yield is what a job is served for
//                                          each token: up to the number of CPTs, less where timers
//                                          are late
//
// So late rounds, free tokens of changes, several CPTs and a device that takes requests in clumps
// add up to nothing. Bytes are the same with the mean size of the job's requests.
//
// A class whose jobs use all that their caps allow is backlogged: it asks for more than it has. One
// that does not asks for what it uses. A job that starts where its class is not backlogged has a
// generous cap until the slices have followed; what it exceeds its slice by is paid back, by the
// same job or, when it has gone to another server, by a slice that nobody uses here.
//
// Bounded: kJobsMax jobs with a cap; others that match a limit are counted in unlimited(). Integers
// only, no clock; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/rule_list.h"
#include "weir/coordinate/slice_sink.h"
#include "weir/lustre/job_facts.h"
#include "weir/lustre/observer.h"
#include "weir/schedule/slice.h"

namespace weir::lustre {

class JobLimits final : public SliceSink {
 public:
  // Fewer than a server's names for rules, of which held jobs need some.
  static constexpr std::size_t kJobsMax = 384;
  // A job without requests for this time has no cap.
  static constexpr Nanoseconds kIdleMax = std::chrono::seconds{30};

  struct Options {
    std::uint32_t cpts = 1;
    std::uint32_t depth = 3;  // free tokens of a change on one CPT
    JobFacts facts = {};
  };
  struct Cap {
    std::uint32_t rate = 1;  // of its rule, on each CPT
    std::uint64_t per_second = 0;
    std::string rule;  // the limit that allows the least
    bool is_bytes = false;
  };

  explicit JobLimits(const Options& options);

  // What jobs were served since the last call. Call in every round, before caps().
  void count(std::span<const ServedByJob> served, Instant now);
  // What was served is unknown since the last count, as after a gap: it is not counted.
  void skip(Instant now);
  // The caps in force, which change in count() and set_slices().
  const std::map<JobId, Cap>& caps() const { return caps_; }
  // Jobs that match a limit and have no cap, because kJobsMax others have one or no rule can name
  // them.
  std::uint64_t unlimited() const { return unlimited_; }
  bool is_empty() const { return rules_.size() == 1; }
  // The number of servers that share the limits; 0: not known yet.
  void set_members(std::uint32_t members) { members_ = members; }

  // ---- SliceSink ----

  bool has_rules() const override { return true; }
  std::vector<SlicedRule> sliced_rules() const override;
  std::vector<SlicedLoad> loads(Nanoseconds time) const override;
  void set_slices(std::span<const ClassSlice> slices, Instant now) override;
  bool has_rule(std::string_view name) const override;
  Result<void> check_rules(std::span<const RuleChange> changes) const override;
  Result<void> apply_rules(std::span<const RuleChange> changes, Instant now) override;
  std::uint64_t restarts() const override { return 0; }

 private:
  // Of a class, in operations or bytes; thousandths of tokens.
  struct Account {
    std::int64_t slice = 0;  // a second
    std::int64_t balance = 0;
    std::int64_t rest = 0;   // of a thousandth, in nanoseconds x slice
    std::int64_t level = 0;  // what each job of the class may use, a second
  };
  struct ClassId {
    std::string rule;
    Attributes key;
    bool operator<(const ClassId& other) const;
  };
  struct Class {
    Account ops;
    Account bytes;
    bool is_backlogged = false;
    std::vector<JobId> jobs;  // with a cap
  };
  struct Job {
    std::vector<ClassId> classes;
    Instant active_at{};
    // Since it was last judged.
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    std::uint64_t allowed = 0;  // by its cap, in thousandths
    Nanoseconds time{0};
    Nanoseconds silence{0};    // since its last completions
    Nanoseconds spacing{0};    // between completions
    bool has_changed = false;  // the cap, meanwhile
    Nanoseconds following{0};  // until the server follows it
    bool is_backlogged = false;
    std::int64_t rate = 0;        // served lately, thousandths a second
    std::uint64_t mean_size = 0;  // of requests; 0: not known
    std::uint64_t yield = 0;      // in 1/1024, of one CPT's rate; 0: not known
    Instant capped_at{};
  };
  struct RestSlice {
    std::int64_t ops = 0;
    std::int64_t bytes = 0;
  };
  struct Wish {
    JobId job;
    Cap cap;
    std::uint64_t off = 0;  // by how much of the present rate, in 1/1024
  };

  Result<RuleCommand> command_of(const RuleChange& change) const;
  Job* job_of(const JobId& id, Instant now);
  std::vector<ClassId> classes_of(const JobId& id) const;
  Class& class_of(const ClassId& id);
  void classify_again();
  void accrue(Instant now);
  void judge(Job& job, const Cap* cap);
  static void judge_anew(Job& job);
  bool has_stopped(const Job& job, const Cap& cap) const;
  void drop_idle(Instant now);
  void set_levels();
  void forget_unused();
  void set_level(const Class& one, Account& account, bool is_bytes, std::int64_t welcome);
  std::int64_t use_of(const Job& job, bool is_bytes) const;
  enum class Change : std::uint8_t { kNone, kWhenDue, kNow };
  Change change_of(const Job& job, std::uint64_t is, std::uint64_t next, Instant now) const;
  void set_caps(Instant now);
  std::optional<Cap> wanted_cap(const Job& job) const;
  void set_cap(const JobId& id, Job& job, Cap cap, Instant now);
  std::uint64_t yield_of(const Job& job) const;
  std::uint64_t size_of(const Job& job) const;
  std::int64_t asked_by(const Job& job, const Class& one, std::int64_t limit, bool is_bytes) const;
  SlicedLoad::Demand demand_of(const Class& one, const Rule& rule) const;

  Options options_;
  RuleList rules_;
  std::uint64_t generation_ = 0;                        // of the rules, when jobs were classified
  std::map<std::string, RestSlice, std::less<>> rest_;  // of classes without their own, by rule
  std::map<ClassId, Class> classes_;
  std::map<JobId, Job> jobs_;
  std::map<JobId, Cap> caps_;
  std::optional<Instant> counted_;
  std::optional<Instant> accrued_;
  Instant adjusted_at_{};
  std::uint32_t members_ = 0;
  std::uint64_t unlimited_ = 0;
};

}  // namespace weir::lustre
