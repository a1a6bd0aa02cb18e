// SPDX-License-Identifier: Apache-2.0
//
// The interface of a policy with rules, in addition to requests: rule commands, shares of jobs,
// slices of cluster-wide limits, and the preferred group of clients. A Gate's policies may have one
// (Policy::engine()); only a Target calls it.
//
// A policy that has rules on both heads may have one engine for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/command.h"
#include "weir/classify/limits.h"
#include "weir/classify/nid.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/rule_view.h"
#include "weir/schedule/slice.h"

namespace weir {

// How a target is shared between jobs.
struct Sharing {
  Cost cost;            // what a request takes from a share and from the root
  bool lending = true;  // a request that lacks only its share may run when nothing else is ready
  // The levels of a tree above the jobs, top first; none: shares of jobs alone.
  std::vector<FieldSet> levels = {};
};

struct RuleOptions {
  // Depth of a bucket of operations without burst=: the larger of a number of tokens and a time of
  // its rate.
  Tokens depth_min{3};
  Nanoseconds depth_time = std::chrono::milliseconds{10};
  Bytes byte_depth_min{65536};
  // Limits with scope=cluster are this server's slices; otherwise they are its own limits.
  bool in_cluster = false;
  std::size_t classes_max = 8192;
  std::size_t watched_queues = 0;  // number of queues whose waits are measured by cause
  std::optional<Sharing> sharing = std::nullopt;  // none: only limits apply
  std::vector<NidList> groups = {};  // groups of clients, one of which may be preferred
};

// What a job with a share did since the last report.
struct ShareReport {
  JobId job;
  Tokens borrowed;
  Tokens lent;
  // What its limits allow in the given time: over its queues with requests, the smallest limit of
  // each, where a shared bucket counts once. None if one of them has no limit.
  std::optional<Tokens> limit;
  Tokens reserved{};  // that its requests took under reservations
};

// What the jobs below a node of a tree of shares did since the last report. A path has the values
// of the levels down to the node.
struct NodeReport {
  std::vector<JobId> path;
  Tokens borrowed;
  Tokens lent;
};

// Reservations are scaled by a number of billionths: few, if clients invent many classes.
inline constexpr std::uint32_t kReserveScaleOne = 1'000'000'000;

class RuleEngine : public RuleView {
 public:
  // On all heads that it names, or on none.
  virtual Result<void> apply(const RuleCommand& command, Instant now) = 0;

  // ---- sharing; REQUIRES: RuleOptions::sharing ----

  // The share of a job from now on. A new share starts full; a new rate keeps the balance. Without
  // a rate the job is not paced, and `nodes` determines the order. REQUIRES: nodes > 0.
  virtual void set_share(const JobId& job, std::optional<Rate> rate, Tokens depth,
                         std::uint64_t nodes, Instant now) = 0;
  // The job has no share from now on.
  virtual void drop_share(const JobId& job, Instant now) = 0;
  // Whether the job's share has a bucket that is not full: replacing it would change the balance.
  virtual bool is_share_in_use(const JobId& job, Instant now) const = 0;
  // The weight of a request's job according to rules: of the lowest layer that has one (weight=).
  // None: no matching rule has a weight.
  virtual std::optional<std::uint64_t> weight_of(const Attributes& attributes, Head head) const = 0;
  // The rule of layer 0 that applies to a request.
  virtual const Rule& first_rule(const Attributes& attributes, Head head) const = 0;
  // For all jobs with a share, in no particular order.
  virtual void report_shares(Nanoseconds time, Instant now,
                             const std::function<void(const ShareReport&)>& visit) = 0;

  // ---- a tree of shares; REQUIRES: Sharing::levels ----

  // The share of all jobs below a node, as for a job. REQUIRES: at most as many values as levels.
  virtual void set_node_share(std::span<const JobId> path, std::optional<Rate> rate, Tokens depth,
                              std::uint64_t weight, Instant now) = 0;
  virtual void drop_node_share(std::span<const JobId> path, Instant now) = 0;
  // The path of the node above a job; empty if the job has no queue.
  virtual std::vector<JobId> path_of(const JobId& job) const = 0;
  // For all nodes with a share, in no particular order. The jobs' own are in report_shares().
  virtual void report_nodes(Instant now, const std::function<void(const NodeReport&)>& visit) = 0;

  // ---- reservations ----

  // The sum of the reservations, as in their rules, of all classes that could use theirs since the
  // last call: tokens in kReserveTime.
  static constexpr Nanoseconds kReserveTime = std::chrono::seconds{1000};
  virtual std::uint64_t reserves_in_use() = 0;
  // From now on all reservations are this fraction of what their rules say. REQUIRES: scale from 1
  // to kReserveScaleOne.
  virtual void set_reserve_scale(std::uint32_t scale, Instant now) = 0;

  // ---- limits of a whole cluster ----

  // From now on; the rule and its listing stay unchanged. Balances are kept as far as the new depth
  // allows. Other rules and missing classes are ignored.
  virtual void set_slices(std::span<const ClassSlice> slices, Instant now) = 0;

  // ---- groups of clients ----

  // The group that goes first on the regular head from now on, by its index in
  // RuleOptions::groups; the number of groups stands for clients without a group. None: no
  // preference. Ignored without groups.
  virtual void prefer(std::optional<std::uint32_t> group, Instant now) = 0;
};

}  // namespace weir
