// SPDX-License-Identifier: Apache-2.0
//
// The interface through which the control of a server uses its cluster: control/ calls it, cluster/
// implements it, and neither depends on the other.
//
//   port.status([](Result<ClusterStatus> status) { ... });
//   port.change_rule("ost_io", *parse_rule(text), [](Result<void> done) { ... });
//
// Answers come on a thread of the cluster, once each; when the cluster ends, with ECANCELED. May be
// called from every thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/rule_spec.h"

namespace weir::serve {

// What is told of a cluster, one struct for each thing: the leader fills them in, the wire carries
// them (weir/cluster/epoch_wire.h), cluster_json() prints them.

struct SliceStatus {
  std::string of;          // "SERVICE/RULE/ops" or "SERVICE/RULE/bytes"
  std::int64_t milli = 0;  // thousandths of a token a second
  bool is_leased = true;   // false: what is left to a server that is cut off
};

struct MemberStatus {
  std::string name;
  std::string address = {};
  bool is_registered = false;  // in etcd; neither of the two: it is away
  bool is_joined = false;      // takes part in the current epoch
  // For how long, if this server saw it before.
  std::optional<Nanoseconds> away = std::nullopt;
  std::vector<SliceStatus> slices = {};  // that it may use now, as the leader counts
};

// Epochs in which groups of clients take turns at a service.
struct CourseStatus {
  std::string service;
  std::int64_t epoch = 0;
  std::uint64_t rounds = 0;
  std::uint64_t evictions = 0;
  std::uint64_t members = 0;
};

// What only a leader knows.
struct LeaderStatus {
  std::uint32_t term = 0;
  std::int64_t epoch = 0;
  std::uint64_t rounds = 0;
  std::uint64_t evictions = 0;
  std::uint64_t refused = 0;
  std::uint64_t garbage = 0;
  Nanoseconds round_median{0};  // of the last rounds
  Nanoseconds round_p99{0};
  std::vector<MemberStatus> members = {};  // without what is known of them in etcd
  std::vector<CourseStatus> courses = {};  // but that of slices
};

struct ClusterStatus {
  std::string name;    // of the server that answers
  std::string state;   // "joined": in an epoch; else "joining", or "alone" without etcd
  std::string why;     // it is not joined, or why etcd cannot be used; empty: all is well
  std::string leader;  // empty: none is known
  std::uint32_t term = 0;
  std::int64_t epoch = 0;     // this server is in; 0: in none
  std::uint64_t epochs = 0;   // it was called back for
  std::uint64_t errors = 0;   // calls without an epoch
  std::uint32_t counted = 0;  // members that limits are shared among, as it was told; 0: never
  std::vector<SliceStatus> slices;  // it uses
  std::vector<MemberStatus> members;
  std::vector<std::string> rule_errors;  // rules of the cluster that do not fit here
  // Nothing while it cannot be asked.
  std::optional<LeaderStatus> at_leader;
};

struct ClusterRule {
  std::string service;
  std::string rule;
  std::vector<RuleChange> changes;  // the start, then changes
};

class ClusterPort {
 public:
  template <class T>
  using Answer = std::function<void(Result<T>)>;

  ClusterPort() = default;
  ClusterPort(const ClusterPort&) = delete;
  ClusterPort& operator=(const ClusterPort&) = delete;
  virtual ~ClusterPort() = default;

  virtual void status(Answer<ClusterStatus> answer) = 0;
  virtual void rules(Answer<std::vector<ClusterRule>> answer) = 0;
  // Start, change or stop; scope=cluster is understood. Answered when it is in etcd and in force
  // here. EEXIST, ENOENT, EINVAL; EHOSTUNREACH and ETIMEDOUT: etcd is away.
  virtual void change_rule(std::string service, RuleChange change, Answer<void> answer) = 0;
  // A server that is away will not come back: nothing is left free for it any more. Answered when
  // it is in etcd. EBUSY: it is not away; ENOENT: it is not known; and as above.
  virtual void forget(std::string name, Answer<void> answer) = 0;
};

}  // namespace weir::serve
