// SPDX-License-Identifier: Apache-2.0
//
// The state of a Lustre server: everything the driver needs, read from a Tree.
//
//   Result<View> view = look(tree);
//
//   the service            policy, type, number of waiting requests, rules of all CPTs and heads
//   jobs                   requests served by each OST or MDT of the server, entries and totals
//
// look() fails where the driver could not work: no target, no debugfs, no permission, tbf not
// running, a type without jobid, heads that differ. The error names the cause and the remedy, which
// needs an administrator. Targets that are mounted or unmounted between two reads are ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/lustre/text.h"
#include "weir/lustre/tree.h"

namespace weir::lustre {

inline constexpr const char* kPoliciesPath = "/sys/kernel/debug/lustre/ost/OSS/ost_io/nrs_policies";
inline constexpr const char* kRulesPath = "/sys/kernel/debug/lustre/ost/OSS/ost_io/nrs_tbf_rule";

// A service of a node whose rules are adjusted.
struct Service {
  std::string_view name;
  std::string_view parameter;  // of lctl, before ".nrs_policies"
  const char* policies;        // paths
  const char* rules;
  const char* targets;
  const char* debug_targets;  // where some releases have the totals of a target
  const char* totals;         // the name of their file
  std::string_view target;    // what its targets are called
  Counted counted = Counted::kBulk;
  std::uint32_t operations = 0;  // of an MDT: those that this service serves, bits as kOperations
};
inline constexpr Service kOstService{.name = "ost_io",
                                     .parameter = "ost.OSS.ost_io",
                                     .policies = kPoliciesPath,
                                     .rules = kRulesPath,
                                     .targets = "/proc/fs/lustre/obdfilter",
                                     .debug_targets = "/sys/kernel/debug/lustre/obdfilter",
                                     .totals = "stats",
                                     .target = "OST"};

constexpr std::uint32_t operations_of(std::initializer_list<std::string_view> names) {
  std::uint32_t bits = 0;
  for (const std::string_view name : names) bits |= 1U << operation_of(name);
  return bits;
}
constexpr Service mdt_service(std::string_view name, std::string_view parameter,
                              const char* policies, const char* rules, std::uint32_t operations) {
  return {.name = name,
          .parameter = parameter,
          .policies = policies,
          .rules = rules,
          .targets = "/proc/fs/lustre/mdt",
          .debug_targets = "/sys/kernel/debug/lustre/mdt",
          .totals = "md_stats",
          .target = "MDT",
          .counted = Counted::kOperations,
          .operations = operations};
}
// The services of an MDS through which jobs come. Clients send close and readdir to mdt_readpage,
// whose threads take no locks, and data of files that are on the MDT to mdt_io.
inline constexpr Service kMdtService = mdt_service(
    "mdt", "mds.MDS.mdt", "/sys/kernel/debug/lustre/mds/MDS/mdt/nrs_policies",
    "/sys/kernel/debug/lustre/mds/MDS/mdt/nrs_tbf_rule",
    operations_of({"open", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getattr",
                   "setattr", "getxattr", "setxattr", "statfs", "sync", "migrate"}));
inline constexpr Service kReadpageService =
    mdt_service("mdt_readpage", "mds.MDS.mdt_readpage",
                "/sys/kernel/debug/lustre/mds/MDS/mdt_readpage/nrs_policies",
                "/sys/kernel/debug/lustre/mds/MDS/mdt_readpage/nrs_tbf_rule",
                operations_of({"close", "readpage"}));
inline constexpr Service kMdtIoService =
    mdt_service("mdt_io", "mds.MDS.mdt_io", "/sys/kernel/debug/lustre/mds/MDS/mdt_io/nrs_policies",
                "/sys/kernel/debug/lustre/mds/MDS/mdt_io/nrs_tbf_rule",
                operations_of({"read", "write", "punch", "fallocate"}));
inline constexpr const char* kPartitionsPath = "/sys/kernel/debug/lnet/cpu_partition_table";
inline constexpr const char* kDepthPath = "/sys/module/ptlrpc/parameters/tbf_depth";

// Of one OST or MDT.
struct TargetView {
  std::string name;
  std::vector<JobCounters> jobs;
  std::vector<RequestTotal> totals;  // of all jobs; empty if they could not be read
  bool is_cut = false;
};

struct View {
  Policies policies;
  std::string type;  // of tbf; empty: generic
  RuleTable rules;
  std::vector<TargetView> targets;
};

// Number of CPTs; 1 if the table cannot be read.
std::uint32_t partitions_of(Tree& tree);
// Depth of a bucket, which a change gives away; 3 if it cannot be read.
std::uint32_t depth_of(Tree& tree);

// The steps of look(), each with its own remedy.
Result<std::vector<std::string>> targets_of(Tree& tree, const Service& service = kOstService);
Result<Policies> policies_of(Tree& tree, const Service& service = kOstService);
Result<std::string> type_of(const Policies& policies, const Service& service = kOstService);
Result<RuleTable> rules_of(Tree& tree, const Service& service = kOstService);
Result<TargetView> target_view(Tree& tree, const std::string& name,
                               const Service& service = kOstService);

Result<View> look(Tree& tree, const Service& service = kOstService);
// The same where any policy may run: without tbf there are no rules.
Result<View> look_only(Tree& tree, const Service& service = kOstService);

// Makes the service run `tbf jobid`, via fifo, and waits for queued requests; other rules are lost.
// `wait` is called between two reads; false aborts.
Result<void> set_policy(Tree& tree, const std::function<bool()>& wait,
                        const Service& service = kOstService);

}  // namespace weir::lustre
