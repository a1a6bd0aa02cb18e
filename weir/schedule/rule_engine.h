// SPDX-License-Identifier: Apache-2.0
//
// What a policy can be told besides requests, if it has rules: commands for rules, shares of jobs,
// slices of limits that are a whole cluster's, and which group of clients goes first. A Gate's
// policies may have one (Policy::engine()); a Target is the only one who tells it anything.
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

namespace weir {

// How a target is shared out among jobs.
struct Sharing {
  Cost cost;            // what a request takes of a share and of the root
  bool lending = true;  // who lacks only its share may run when nothing else is ready
};

struct RuleOptions {
  // Depth of a bucket of operations without burst=: the larger of a number and a time of its rate.
  Tokens depth_min{3};
  Nanoseconds depth_time = std::chrono::milliseconds{10};
  Bytes byte_depth_min{65536};
  // Limits with scope=cluster are this server's slices of them; otherwise they are its own.
  bool in_cluster = false;
  std::size_t classes_max = 8192;
  std::size_t watched_queues = 0;                 // queues whose waiting is told apart by cause
  std::optional<Sharing> sharing = std::nullopt;  // none: limits alone decide
  std::vector<NidList> groups = {};               // of clients, of which one may be preferred
};

// The bucket of the whole target, of one rate and two depths.
struct RootBucket {
  BucketShape rested;  // after a time in which nobody waited for the device
  BucketShape busy;    // while somebody does; at least as deep
};

// What a job with a share did since it was last reported.
struct ShareReport {
  JobId job;
  Tokens borrowed;
  Tokens lent;
  // What its limits let through in the time that is asked for: over its queues with requests the
  // smallest limit of each, a bucket of several counted once. None if one of them has no limit.
  std::optional<Tokens> limit;
};

// What this server may use of a rule with scope=cluster.
struct Slice {
  std::optional<Rate> ops;  // none: as the rule says, or the least rate in a cluster
  std::optional<Rate> bytes;
  bool operator==(const Slice&) const = default;
};
struct ClassSlice {
  std::string_view rule;
  std::optional<Attributes> key;  // of the class; none: of all classes that were given none
  Slice slice;
};

class RuleEngine : public RuleView {
 public:
  // Wholly, on all heads it names, or not at all.
  virtual Result<void> apply(const RuleCommand& command, Instant now) = 0;

  // ---- sharing; REQUIRES: RuleOptions::sharing ----

  // A job's share from now on. One that is new starts full; another rate keeps the balance. Without
  // a rate the job is not paced, and `nodes` orders. REQUIRES: nodes > 0.
  virtual void set_share(const JobId& job, std::optional<Rate> rate, Tokens depth,
                         std::uint64_t nodes, Instant now) = 0;
  // The job has no share any more.
  virtual void drop_share(const JobId& job, Instant now) = 0;
  // Whether the job's share has a bucket that is not full: somebody would lose or win by a new one.
  virtual bool is_share_in_use(const JobId& job, Instant now) const = 0;
  // None: a free slot alone decides.
  virtual void set_root(const std::optional<RootBucket>& root, Instant now) = 0;
  // Of all jobs with a share, in no order.
  virtual void report_shares(Nanoseconds time, Instant now,
                             const std::function<void(const ShareReport&)>& visit) = 0;

  // ---- limits of a whole cluster ----

  // From now on; the rule and its listing stay as they are. Balances stay, as far as the new depth
  // allows. Nothing happens for other rules, nor for classes that are not there.
  virtual void set_slices(std::span<const ClassSlice> slices, Instant now) = 0;

  // ---- groups of clients ----

  // Who goes first on the regular head from now on, by its place in RuleOptions::groups; their
  // number stands for clients of no group. None: all are alike. Nothing happens without groups.
  virtual void prefer(std::optional<std::uint32_t> group, Instant now) = 0;
};

}  // namespace weir
