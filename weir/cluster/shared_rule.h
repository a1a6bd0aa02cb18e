// SPDX-License-Identifier: Apache-2.0
//
// A rule of the whole cluster, as it is kept in etcd: under PREFIX/rules/SERVICE/NAME, one command
// a line, first the start and then what was changed since.
//
//   start dd jobid={dd.*} rate=1000 scope=cluster
//   change dd rate=2000
//
// A change replaces an earlier one that set nothing else, so the list stays short. Every server
// that has the service applies the commands; the leader reads their limits. Values only; nothing
// here reaches etcd.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/rule_spec.h"
#include "weir/cluster/cluster_leader.h"

namespace weir::cluster {

struct SharedRule {
  std::string service;
  std::string name;
  std::vector<RuleChange> changes;  // a start and what changed it since; never empty
  std::int64_t created = 0;         // revisions of etcd; order is by this
  std::int64_t modified = 0;

  // "SERVICE/NAME", the end of its key; also what stands before "/ops" in the names of its classes.
  std::string key() const { return service + "/" + name; }
  static std::pair<std::string, std::string> parts(std::string_view key);
  // Without what stands behind the last '/'.
  static std::string parent(std::string_view key);

  std::string print() const;
  bool operator==(const SharedRule&) const = default;
};

// What was found in etcd. EINVAL: its first line is no start of that name, or a later one no
// change.
Result<SharedRule> read_shared_rule(std::string_view key, std::string_view value);

// A change as an administrator gave it; a start has scope=cluster then. EINVAL: it is for one head
// only, for which there are no slices; it is written as before 2.8; its scope is another; or it is
// a start without a limit.
Result<RuleChange> shared_change(RuleChange change);

// With the change at its end. REQUIRES: it is one of this rule.
SharedRule with_change(SharedRule rule, const RuleChange& change);

// What the leader shares out: "SERVICE/NAME/ops" and ".../bytes".
void add_limits(const SharedRule& rule, SliceLimits& limits);

}  // namespace weir::cluster
