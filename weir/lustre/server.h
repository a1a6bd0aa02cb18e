// SPDX-License-Identifier: Apache-2.0
//
// The state of a Lustre server: everything the driver needs, read from a Tree.
//
//   Result<View> view = look(tree);
//
//   what ost_io runs       policy, type, how many wait, the rules of every CPT and both heads
//   what jobs were served  the sum over the server's OSTs, entries and totals
//
// look() fails where the driver could not work: no OST, no debugfs, no permission, tbf not running,
// a type without jobid, heads that disagree. The error names the cause and what to do; it remains
// until an administrator acts. OSTs that come and go between two reads are left out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/lustre/text.h"
#include "weir/lustre/tree.h"

namespace weir::lustre {

inline constexpr const char* kPoliciesPath = "/sys/kernel/debug/lustre/ost/OSS/ost_io/nrs_policies";
inline constexpr const char* kRulesPath = "/sys/kernel/debug/lustre/ost/OSS/ost_io/nrs_tbf_rule";
inline constexpr const char* kPartitionsPath = "/sys/kernel/debug/lnet/cpu_partition_table";
inline constexpr const char* kDepthPath = "/sys/module/ptlrpc/parameters/tbf_depth";

// Of one OST.
struct TargetView {
  std::string name;
  std::vector<JobCounters> jobs;
  std::optional<std::uint64_t> rpcs;  // of all; none if stats could not be read
  bool is_cut = false;
};

struct View {
  Policies policies;
  std::string type;  // of tbf; empty: generic
  RuleTable rules;
  std::vector<TargetView> targets;
};

// Number of CPTs; 1 where the table cannot be read.
std::uint32_t partitions_of(Tree& tree);
// Tokens that a bucket holds, and a change gives away; 3 where it cannot be read.
std::uint32_t depth_of(Tree& tree);

// The parts of a look, each with its own cure.
Result<std::vector<std::string>> targets_of(Tree& tree);
Result<Policies> policies_of(Tree& tree);
Result<std::string> type_of(const Policies& policies);
Result<RuleTable> rules_of(Tree& tree);
Result<TargetView> target_view(Tree& tree, const std::string& name);

Result<View> look(Tree& tree);

// Makes ost_io run `tbf jobid`, by way of fifo, waiting for what waits: other rules are lost.
// `wait` is called between two looks; false ends it.
Result<void> set_policy(Tree& tree, bool (*wait)());

}  // namespace weir::lustre
