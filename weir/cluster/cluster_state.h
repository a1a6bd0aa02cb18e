// SPDX-License-Identifier: Apache-2.0
//
// The state of a cluster member on disk: the rules, their revisions and the number of servers, so
// that limits of the cluster hold from the first client on, whether etcd is available or not.
//
//   weir cluster state 1
//   prefix /weir                                 the prefix of the cluster in etcd
//   history 9f3c07d1a2b4e586                     of that etcd, from its key; 0: never read
//   generation 57                                etcd's revision when these rules were read
//   members 3                                    number of servers, from a leader or etcd
//   rule ost_io/wide 12 40                       created and modified at these revisions
//   start wide jobid={*} rate=1500 by=rule scope=cluster
//   change wide rate=2000
//   sum 7a41c0de                                 CRC-32C of all lines before
//
// The file is replaced atomically (host::StateFile). A damaged file is rejected: without its rules
// a server would serve without limits.
//
// The revision decides between the file and etcd: revisions of an etcd only increase, so an etcd
// with a smaller one has lost data, and one with another id is a different etcd. Rules of such an
// etcd are not used until an administrator removes the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/cluster/shared_rule.h"
#include "weir/host/state_file.h"

namespace weir::cluster {

struct ClusterState {
  std::string prefix;
  std::uint64_t history = 0;
  std::int64_t revision = 0;  // `generation` in the file
  std::uint32_t members = 0;
  std::vector<SharedRule> rules = {};  // in the order they were started

  // Also true if it is known that there are no rules.
  bool knows_rules() const { return revision > 0; }
  // Whether rules with this revision and history are at least as new as these.
  bool is_followed_by(std::uint64_t other_history, std::int64_t other_revision) const {
    return !knows_rules() || (history == other_history && revision <= other_revision);
  }
  bool operator==(const ClusterState&) const = default;
};

// EINVAL: not written by print_cluster_state().
Result<ClusterState> parse_cluster_state(std::string_view text);
// Rules that could not be parsed again are omitted: no server has a service of such a name.
std::string print_cluster_state(const ClusterState& state);

// The file, open as long as the server runs. One owner, one thread at a time.
class ClusterStateFile {
 public:
  // EBUSY: another server uses it; EINVAL: it is damaged or belongs to another cluster. The error
  // names the file and the remedy. A missing file means that no rules are known.
  static Result<ClusterStateFile> open(const std::string& path, const std::string& prefix);

  const ClusterState& state() const { return state_; }
  const std::string& path() const { return path_; }
  // Saved on disk before it returns, unless the file already contains it. On failure state() is
  // still the new one, and the next call writes it.
  Result<void> keep(ClusterState state);

 private:
  ClusterStateFile(std::string path, host::StateFile file, ClusterState state)
      : path_(std::move(path)), file_(std::move(file)), state_(std::move(state)) {}

  std::string path_;
  host::StateFile file_;
  ClusterState state_;
  bool is_kept_ = true;  // state_ is in the file
};

}  // namespace weir::cluster
