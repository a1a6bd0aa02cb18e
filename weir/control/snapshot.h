// SPDX-License-Identifier: Apache-2.0
//
// The state of a server at one moment, copied out of its loop as plain values, so that any number
// of readers can use it without calling the loop again. It is taken in steps, each one a command
// that visits a bounded number of classes and jobs:
//
//   auto taker = std::make_unique<SnapshotTaker>();
//   on the loop:  while (!taker->step(server)) { give way to requests }
//   elsewhere:    taker->add(port);                  a Target of another thread, in steps too
//                 Snapshot shot = taker->finish();
//
// A reader of one class names it (ClassQuery): the snapshot then contains only matching classes,
// those of other layers in which the same requests are, and the jobs with lending records, which
// takes a fraction of the time with a hundred thousand classes.
//
// The numbers of one class are consistent; those of two classes may be a few milliseconds apart,
// and new or removed classes may be missing. Counters only increase, so readers compute
// differences.
//
// A class is named RULE/KEY, where KEY is its class key: values joined with '+', names of clients
// as in printable_id(): "default/dd.500", "per_user/1000+10.0.0.7@tcp"; the overflow class is
// "RULE/(others)", the class of a whole rule "RULE/*".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "weir/account/job_stats.h"
#include "weir/account/job_times.h"
#include "weir/account/usage_history.h"
#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/control/job_stats_text.h"
#include "weir/lock/view.h"
#include "weir/schedule/rule_view.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/protocol.h"
#include "weir/serve/server.h"
#include "weir/serve/target_port.h"

namespace weir::control {

// What a class did since up to two seconds ago.
struct RecentUsage {
  UsageSums sums{};
  std::uint64_t window_ns = 0;  // 0: not known yet
};

struct ClassSnapshot {
  std::string rule;
  Attributes key;  // only the fields of `by`
  FieldSet by;
  bool is_overflow = false;
  std::uint64_t rate = 0;  // operations per second; 0: not limited
  std::uint64_t depth = 0;
  std::uint64_t level = 0;
  std::uint64_t bps = 0;  // bytes per second; 0: not limited
  std::uint64_t byte_depth = 0;
  std::uint64_t byte_level = 0;
  std::uint64_t reserve = 0;  // per second, as scaled now; 0: nothing is reserved
  bool reserves_bytes = false;
  bool is_of_cluster = false;  // the limit is this server's part of a cluster-wide one
  ClassTotals totals;
  // Both as set by ClassRates.
  RecentUsage recent = {};
  std::string_view cause = {};  // the main cause of its waits (delay_name); empty: none

  std::string name() const;
};

// Requests that the device has completed, and the sum of the times it took.
struct DeviceSums {
  std::uint64_t requests = 0;
  std::uint64_t ns = 0;
};
// Of a job since it was first seen; nothing without an entry.
DeviceSums device_of(const JobStats::Entry* job);

struct JobSnapshot {
  JobId job;
  std::uint64_t arrived = 0;  // requests
  std::uint64_t finished = 0;
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t wait_ns = 0;  // sums
  std::uint64_t latency_ns = 0;
  DeviceSums device = {};
  std::uint64_t nodes = 1;
  std::uint64_t weight = 1;                 // of its share: its nodes, unless a rule sets it
  std::optional<std::uint64_t> share = {};  // tokens per second; none: not paced
  std::int64_t record = 0;                  // above 0: it has lent
  std::uint64_t lent = 0;                   // settled instant loans since the start
  std::uint64_t borrowed = 0;
  // In a tree of shares: its node (NodeSnapshot::path), and the weights of all jobs there that hold
  // a share, of which its own is a part.
  std::string path = {};
  std::uint64_t siblings = 0;
};

// A node above the jobs in a tree of shares.
struct NodeSnapshot {
  std::string path;        // the values of the levels, with / between them
  std::string_view level;  // "project", "uid"
  std::uint64_t weight = 1;
  std::uint64_t siblings = 1;               // the weights of all children of its parent
  std::optional<std::uint64_t> share = {};  // tokens per second; none: not paced
  std::int64_t record = 0;                  // among its siblings; above 0: it has lent
  std::uint64_t lent = 0;                   // settled instant loans since the start
  std::uint64_t borrowed = 0;
  std::string name = {};  // as the file calls it; empty: it has none

  // The name, or the last value of the path.
  std::string_view shown() const {
    return name.empty() ? std::string_view(path).substr(path.rfind('/') + 1) : name;
  }
};
struct TreeSnapshot {
  std::string levels;               // "projid,uid,jobid"
  std::vector<NodeSnapshot> nodes;  // the first kNodesMax; with a query, those above its jobs
  std::size_t nodes_in_all = 0;

  static constexpr std::size_t kNodesMax = 1000;
};

struct RuleSnapshot {
  std::string name;
  std::string conditions;
  std::string limits;  // "rate=100 bps=1000000"
  std::string heads;   // "reg", "hp" or "both"
  unsigned layer = 0;
  std::uint64_t rate = 0;
  std::uint64_t bps = 0;
  std::uint64_t weight = 0;  // of the shares of its jobs; 0: their nodes count
  std::uint64_t classes = 0;
  // "active"; "temporary": does not exist, or differs, after a restart; "inactive": kept, but not
  // in effect.
  std::string state = "active";
};

struct PolicySnapshot {
  std::string head;  // "regular", "high_priority"
  std::string name;
  std::string argument;
  std::string state;
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
};

// The turns of groups of clients at a service.
struct GroupsSnapshot {
  struct Group {
    std::string name;
    std::uint64_t turns = 0;
    std::uint64_t waiting = 0;  // queues with requests
  };
  std::vector<Group> groups;
  std::string preferred;  // empty: no group is preferred
  // How turns are taken: "own", "cluster", "cut off" from the cluster, "mixed": the servers have
  // different groups, or "inactive": the policy does not support groups.
  std::string step;
  std::int64_t epoch = 0;  // 0: not shared with other servers
  std::uint64_t ragged = 0;
};

// Requests that the stores work on at a time.
struct SlotsSnapshot {
  std::uint32_t count = 0;
  bool is_auto = false;
  bool is_settled = false;
  std::optional<std::uint64_t> latency_ns;  // mean time in the store, if it is measured
  std::optional<std::uint64_t> latency_target_ns;
};

// A tunable of a policy that runs on a head.
struct TunableSnapshot {
  std::string policy;
  std::string name;
  std::string head;  // as in PolicySnapshot
  std::uint64_t value = 0;
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  std::string help;
};

// The names of the rules that a request matches in each layer; empty: none.
using LayerRules = std::array<std::string, kLayers>;

// The weights of all jobs that hold a share, of which entitlements are fractions.
struct ShareWeights {
  std::uint64_t sum = 0;
  std::size_t jobs = 0;
};

struct ServiceSnapshot {
  std::string name;
  Instant now{};  // of the clock of its Target
  std::vector<PolicySnapshot> policies;
  bool has_rules = false;  // the policy of the regular head
  std::vector<TunableSnapshot> tunables;
  std::vector<std::string> notes;   // notes_of()
  std::vector<RuleSnapshot> rules;  // the first kRulesMax
  std::size_t rules_in_all = 0;
  std::vector<ClassSnapshot> classes;
  std::vector<JobSnapshot> jobs;
  std::vector<WaitView> waits;
  // Of each wait.
  std::vector<LayerRules> wait_rules;
  std::vector<DeviceSums> wait_devices;  // of its job
  // With a query only; none: more than kWeighedJobsMax jobs are active.
  std::optional<ShareWeights> share_weights = ShareWeights{};
  std::optional<std::uint64_t> capacity;  // in the unit, per second
  std::string_view capacity_unit;         // "operations", "bytes" or "tokens"
  std::string adaptive;                   // "off", "on", or the reason why it is suspended
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
  SlotsSnapshot slots;
  std::uint32_t reserve_scale = kReserveScaleOne;  // of all reservations
  std::uint64_t overflowed = 0;
  std::optional<GroupsSnapshot> groups;
  std::optional<TreeSnapshot> tree;  // none: shares of jobs alone
  // Of all requests, and of the kTimedJobsMax most delayed jobs. Parts are read at different
  // moments, so that a job that got its histogram meanwhile may be missing in the sum.
  JobTimes times;
  std::vector<std::pair<JobId, JobTimes>> job_times;

  static constexpr std::size_t kRulesMax = 1000;
  static constexpr std::size_t kTimedJobsMax = 20;
  static constexpr std::size_t kWeighedJobsMax = 4096;
};

// What an export serves.
struct StoreSnapshot {
  std::string name;
  std::string service;
  std::string store;        // "file PATH", "memory"
  std::uint64_t bytes = 0;  // 0: not known
  bool is_read_only = false;
};
// "file /srv/a.img", "device /dev/sdb", "memory", "another server", each with ", slowed down"
std::string store_words(const serve::StoreOptions& options);

// An export whose store hangs (store_watch.h).
struct HungExportSnapshot {
  std::string name;
  std::string service;
  std::uint64_t unfinished = 0;  // requests given to the store
  std::uint64_t kept = 0;        // requests that wait until it continues
  std::uint64_t silent_ns = 0;   // since it last completed one
};

struct Snapshot {
  Moment moment;
  serve::Counters counters;
  std::string_view io;  // "io_uring" or "epoll"
  std::vector<serve::Server::LoopStatus> loops;
  std::uint32_t connections = 0;
  std::uint64_t memory_used = 0;     // bytes that connections hold
  std::uint64_t memory_kept = 0;     // of free buffers
  std::uint64_t memory_history = 0;  // of the usage of the last two hours
  std::uint64_t memory_limit = 0;
  std::uint64_t log_dropped = 0;  // lines that could not be written
  std::vector<serve::ProtocolCount> protocols;
  std::vector<ServiceSnapshot> services;
  std::vector<std::string> exports;
  std::vector<StoreSnapshot> stores;  // of each export
  std::vector<HungExportSnapshot> hung;
  std::vector<lock::NamespaceView> locks;       // of the lock service, if there is one
  std::optional<serve::ClusterStatus> cluster;  // as known by this server
};

// The object of a query: a class "RULE/KEY", a key, a job, or a rule. "job=", "uid=", "gid=",
// "client=", "export=" and "rule=" in front of a name are allowed; only "rule=" restricts what is
// found.
class ClassQuery {
 public:
  explicit ClassQuery(std::string name);

  const std::string& name() const { return name_; }
  // Whether this may be its name.
  bool may_be(const ClassView& view) const;
  // Whether requests with this key, under rules as in LayerRules, may be in it.
  bool concerns(const Attributes& key, const std::array<const Rule*, kLayers>& rules) const;
  bool is_job(const JobId& job) const { return job == whole_ || job == rest_; }
  // Jobs of this name.
  std::vector<JobId> jobs() const;

 private:
  bool is_named(const Rule& rule, const Attributes& key, bool is_overflow) const;

  std::string name_;
  bool is_rule_ = false;
  std::optional<JobId> whole_;  // the text as a job id
  std::optional<JobId> rest_;   // the text after the rule as a job id
};

class SnapshotTaker {
 public:
  // Classes or jobs visited in one step; more if hardly any are copied.
  static constexpr std::size_t kStep = 1024;
  static constexpr std::size_t kSeekStep = 4096;
  // Jobs with the largest records of each sign, with a query.
  static constexpr std::size_t kRecordsMax = 16;
  // Histograms added up in one step.
  static constexpr std::size_t kTimesStep = 128;

  SnapshotTaker() = default;
  explicit SnapshotTaker(ClassQuery sought) : query_(std::move(sought)) {}

  // REQUIRES: on the loop. True when the snapshot is complete.
  bool step(serve::Server& server);
  // Adds another service, after those of the server; ignored if the thread of its Target has ended.
  // REQUIRES: on another thread than that one.
  void add(serve::TargetPort& port);
  Snapshot finish() { return std::move(shot_); }

 private:
  void begin(serve::Server& server);
  // `service` has the information that a Target does not have; nullptr: none.
  bool step_target(const Target& target, const serve::Service* service, ServiceSnapshot& shot,
                   Instant now);
  void add_wait_rules(const Target& target, ServiceSnapshot& shot);
  bool step_classes(const Target& target, ServiceSnapshot& shot, Instant now);
  bool step_jobs(const Target& target, ServiceSnapshot& shot);
  // Of jobs, only the sought ones and those with the largest records.
  void add_sought_jobs(const Target& target, const serve::Service* service,
                       ServiceSnapshot& shot) const;
  bool step_weights(const Target& target, ServiceSnapshot& shot, Instant now);
  bool step_times(const JobStats& stats, ServiceSnapshot& shot);

  std::optional<ClassQuery> query_;
  Snapshot shot_;
  bool has_begun_ = false;
  std::size_t service_ = 0;
  enum class Part : std::uint8_t { kHead, kClasses, kJobs, kTimes, kWeights } part_ = Part::kHead;
  std::size_t at_ = 0;
  JobId from_;  // whose share is next
  // By rule: the keys of classes in which the requests of the sought one are too.
  std::map<std::string, std::unordered_set<Attributes>, std::less<>> companions_;
  // Of the jobs with histograms: the sum of their waits, and the index.
  std::vector<std::pair<Nanoseconds, std::size_t>> delayed_;
};

// The current time on both clocks. `now` is the loop's.
Moment moment_at(Instant now);

// What an administrator may not expect of a service: a limit that was not configured, and rules and
// groups without an effect. One sentence each; for status, the page and the log at the start.
std::vector<std::string> notes_of(const Target& target, const serve::Service* service);

// "default/dd.500"
std::string class_name(std::string_view rule, const Attributes& key, FieldSet by, bool is_overflow);
// "dd.500", "1000+10.0.0.7@tcp", "*"
std::string key_name(const Attributes& key, FieldSet fields);

}  // namespace weir::control
