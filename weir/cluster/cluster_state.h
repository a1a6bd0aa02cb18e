// SPDX-License-Identifier: Apache-2.0
//
// What a server of a cluster keeps on disk, so that limits of the cluster hold from its first
// client on, whether etcd is available or not: the rules, their revisions, and the number of
// servers.
//
//   weir cluster state 1
//   prefix /weir                                 which cluster of that etcd it is
//   history 9f3c07d1a2b4e586                     of that etcd, from its key; 0: it was never asked
//   generation 57                                etcd's revision at which the rules were these
//   members 3                                    servers, as a leader or etcd has counted them
//   rule ost_io/wide 12 40                       created and modified at these revisions
//   start wide jobid={*} rate=1500 by=rule scope=cluster
//   change wide rate=2000
//   sum 7a41c0de                                 CRC-32C of all lines before
//
// The file is replaced as a whole (host::StateFile). A damaged file is rejected rather than guessed
// at: without its rules a server would serve without limits.
//
// The generation decides between the file and etcd: revisions of an etcd only increase, so an etcd
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
  std::int64_t generation = 0;
  std::uint32_t members = 0;
  std::vector<SharedRule> rules = {};  // in the order they were started

  // That there are none is known too.
  bool knows_rules() const { return generation > 0; }
  // Whether rules of this generation in a history are as new as these, or newer.
  bool is_followed_by(std::uint64_t other_history, std::int64_t other_generation) const {
    return !knows_rules() || (history == other_history && generation <= other_generation);
  }
  bool operator==(const ClusterState&) const = default;
};

// EINVAL: not what print_cluster_state() writes.
Result<ClusterState> parse_cluster_state(std::string_view text);
// Rules that could not be read again are left out: no server has a service of such a name.
std::string print_cluster_state(const ClusterState& state);

// The file, for as long as the server runs. One owner, one thread at a time.
class ClusterStateFile {
 public:
  // EBUSY: another server has it; EINVAL: it is damaged, or another cluster's. The error names the
  // file and what to do. A file that is not there yet knows no rules.
  static Result<ClusterStateFile> open(const std::string& path, const std::string& prefix);

  const ClusterState& state() const { return state_; }
  const std::string& path() const { return path_; }
  // On disk before it returns, unless it is what the file holds already. On failure state() is the
  // new one all the same, and the next call writes it.
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
