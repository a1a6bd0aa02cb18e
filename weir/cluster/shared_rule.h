// SPDX-License-Identifier: Apache-2.0
//
// A rule of the whole cluster as stored in etcd: under PREFIX/rules/SERVICE/NAME, one command per
// line, first the start and then the changes since.
//
//   start dd jobid={dd.*} rate=1000 scope=cluster
//   change dd rate=2000
//
// A change replaces an earlier one that set nothing else, so the list stays short. Every server
// that has the service applies the commands; the leader reads their limits. Values only; nothing
// here accesses etcd.
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
  std::vector<RuleChange> changes;  // a start and the changes since; never empty
  std::int64_t created = 0;         // revisions of etcd; rules are ordered by it
  std::int64_t modified = 0;

  // "SERVICE/NAME", the end of its key; also the prefix of "/ops" in the names of its classes.
  std::string key() const { return service + "/" + name; }
  static std::pair<std::string, std::string> parts(std::string_view key);
  // Without the last '/' and what follows.
  static std::string parent(std::string_view key);

  std::string print() const;
  bool operator==(const SharedRule&) const = default;
};

// A value from etcd. EINVAL: its first line is not a start of that name, or a later line is not
// a change.
Result<SharedRule> read_shared_rule(std::string_view key, std::string_view value);

// A change from an administrator; adds scope=cluster to a start. EINVAL: for one priority only, for
// which there are no slices; written in the form before 2.8; another scope; or a start without a
// limit.
Result<RuleChange> shared_change(RuleChange change);

// The rule with the change appended. REQUIRES: the change is for this rule.
SharedRule with_change(SharedRule rule, const RuleChange& change);

// The limits that the leader divides: "SERVICE/NAME/ops" and ".../bytes".
void add_limits(const SharedRule& rule, SliceLimits& limits);

}  // namespace weir::cluster
