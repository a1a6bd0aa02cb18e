// SPDX-License-Identifier: Apache-2.0
//
// The state of a server at one moment, copied out of its loop as plain values, so that any number
// of readers can use it without asking the loop again. It is taken in steps, each one command that
// looks at a bounded number of classes and jobs:
//
//   auto taker = std::make_unique<SnapshotTaker>();
//   on the loop:  while (!taker->step(server)) { give way to requests }
//   elsewhere:    Snapshot shot = taker->finish();
//
// A reader of one class names it (Sought): the walk keeps only matching classes and the jobs with
// lending records, and takes a fraction of the time with a hundred thousand classes.
//
// The numbers of one class are consistent; two classes may be a few milliseconds apart, and new or
// removed ones may be missing. Counters only increase, so readers compute differences.
//
// A class is called RULE/KEY, the key being its fields joined with '+', names of clients as
// printable_id() shows them: "default/dd.500", "per_user/1000+10.0.0.7@tcp"; the class of those
// beyond the bound is "RULE/(others)", that of a whole rule "RULE/*".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/control/job_stats_text.h"
#include "weir/lock/view.h"
#include "weir/schedule/rule_view.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/server.h"

namespace weir::control {

struct ClassShot {
  std::string rule;
  Attributes key;  // only the fields of `by`
  FieldSet by;
  bool is_overflow = false;
  std::uint64_t rate = 0;  // operations a second; 0: not limited
  std::uint64_t depth = 0;
  std::uint64_t level = 0;
  std::uint64_t bps = 0;  // bytes a second; 0: not limited
  std::uint64_t byte_depth = 0;
  std::uint64_t byte_level = 0;
  ClassTotals totals;

  std::string name() const;
};

struct JobShot {
  JobId job;
  std::uint64_t arrived = 0;  // requests
  std::uint64_t finished = 0;
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t wait_ns = 0;  // sums
  std::uint64_t latency_ns = 0;
  std::uint64_t nodes = 1;
  std::optional<std::uint64_t> share = {};  // tokens a second; none: not paced
  std::int64_t record = 0;                  // above 0: it has lent
  std::uint64_t lent = 0;                   // instant loans of all time, settled
  std::uint64_t borrowed = 0;
};

struct RuleShot {
  std::string name;
  std::string conditions;
  std::string limits;  // "rate=100 bps=1000000"
  std::string heads;   // "reg", "hp" or "both"
  unsigned layer = 0;
  std::uint64_t rate = 0;
  std::uint64_t bps = 0;
  std::uint64_t classes = 0;
  // "active"; "temporary": not, or not so, after a restart; "inactive": kept, but not in force now.
  std::string state = "active";
};

struct PolicyShot {
  std::string head;  // "regular", "high_priority"
  std::string name;
  std::string argument;
  std::string state;
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
};

// The turns that groups of clients take at a service.
struct GroupsShot {
  struct Group {
    std::string name;
    std::uint64_t turns = 0;
    std::uint64_t waiting = 0;  // queues with requests
  };
  std::vector<Group> groups;
  std::string preferred;  // empty: nobody is
  // With whom turns are taken: "own", "cluster", "cut off" from it, or "mixed": the servers have
  // different groups.
  std::string step;
  std::int64_t epoch = 0;  // 0: none that others know
  std::uint64_t ragged = 0;
};

struct ServiceShot {
  std::string name;
  std::vector<PolicyShot> policies;
  std::vector<RuleShot> rules;  // the first kRulesMax
  std::size_t rules_in_all = 0;
  std::vector<ClassShot> classes;
  std::vector<JobShot> jobs;
  std::vector<WaitView> waits;
  std::optional<std::uint64_t> capacity;  // of the unit, a second
  std::string_view capacity_unit;         // "operations", "bytes" or "tokens"
  std::string adaptive;                   // "off", "on", or why it is suspended
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
  std::uint64_t overflowed = 0;
  std::optional<GroupsShot> groups;

  static constexpr std::size_t kRulesMax = 1000;
};

// An export whose store hangs (store_watch.h).
struct HungExportShot {
  std::string name;
  std::string service;
  std::uint64_t unfinished = 0;  // requests that the store was given
  std::uint64_t kept = 0;        // requests that wait until it goes on
  std::uint64_t silent_ns = 0;   // since it last finished one
};

struct Snapshot {
  Moment moment;
  serve::Counters counters;
  std::string_view io;  // "io_uring" or "epoll"
  std::uint32_t connections = 0;
  std::uint64_t memory_used = 0;  // bytes that connections hold
  std::uint64_t memory_kept = 0;  // of buffers that nobody holds
  std::uint64_t memory_limit = 0;
  std::uint64_t log_dropped = 0;  // texts that could not be written
  std::vector<ServiceShot> services;
  std::vector<std::string> exports;
  std::vector<HungExportShot> hung;
  std::vector<lock::NamespaceView> locks;       // of the lock service, if there is one
  std::optional<serve::ClusterStatus> cluster;  // what this server itself knows of it
};

// What is asked about: a class "RULE/KEY", a key, or a job.
class Sought {
 public:
  explicit Sought(std::string name);

  const std::string& name() const { return name_; }
  // Whether it is called so.
  bool may_be(const ClassView& view) const;
  bool is_job(const JobId& job) const { return job == whole_ || job == rest_; }

 private:
  std::string name_;
  std::optional<JobId> whole_;  // it as a job
  std::optional<JobId> rest_;   // what is after the rule as one
};

class SnapshotTaker {
 public:
  // Classes or jobs looked at in one step; more where nearly none is copied.
  static constexpr std::size_t kStep = 1024;
  static constexpr std::size_t kSeekStep = 4096;

  SnapshotTaker() = default;
  explicit SnapshotTaker(Sought sought) : sought_(std::move(sought)) {}

  // REQUIRES: on the loop. True when all has been seen.
  bool step(serve::Server& server);
  Snapshot finish() { return std::move(shot_); }

 private:
  void begin(serve::Server& server);
  bool step_service(serve::Service& service, ServiceShot& shot, Instant now);

  std::optional<Sought> sought_;
  Snapshot shot_;
  bool has_begun_ = false;
  std::size_t service_ = 0;
  enum class Part : std::uint8_t { kHead, kClasses, kJobs } part_ = Part::kHead;
  std::size_t at_ = 0;
};

// Now, on both clocks. `now` is the loop's.
Moment moment_at(Instant now);

// "dd.500", "1000+10.0.0.7@tcp", "*"
std::string key_name(const Attributes& key, FieldSet fields);

}  // namespace weir::control
