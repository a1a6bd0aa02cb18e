// SPDX-License-Identifier: Apache-2.0
//
// The interface through which the control of a server uses its cluster: control/ calls it, cluster/
// implements it, and neither depends on the other.
//
//   port.status([](Result<ClusterStatus> status) { ... });
//   port.change_rule("ost_io", *parse_rule(text), [](Result<void> done) { ... });
//
// Answers are delivered on a thread of the cluster, once each; with ECANCELED when the cluster
// stops. Thread-safe.
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

// The status of a cluster, one struct for each kind of object: the leader fills them in,
// epoch_wire.h sends them (weir/cluster/epoch_wire.h), cluster_json() prints them.

struct SliceStatus {
  std::string of;          // "SERVICE/RULE/ops" or "SERVICE/RULE/bytes"
  std::int64_t milli = 0;  // thousandths of a token per second
  bool is_leased = true;   // false: the amount of a server that is cut off
};

struct MemberStatus {
  std::string name;
  std::string address = {};
  bool is_registered = false;  // in etcd; neither registered nor joined: away
  bool is_joined = false;      // takes part in the current epoch
  // How long it has been away, if this server saw it before.
  std::optional<Nanoseconds> away = std::nullopt;
  std::vector<SliceStatus> slices = {};  // slices that it may use now, according to the leader
};

// Epochs in which groups of clients take turns at a service.
struct CourseStatus {
  std::string service;
  std::int64_t epoch = 0;
  std::uint64_t rounds = 0;
  std::uint64_t evictions = 0;
  std::uint64_t members = 0;
};

// Information that only a leader has.
struct LeaderStatus {
  std::uint32_t term = 0;
  std::int64_t epoch = 0;
  std::uint64_t rounds = 0;
  std::uint64_t evictions = 0;
  std::uint64_t refused = 0;
  std::uint64_t garbage = 0;
  Nanoseconds round_median{0};  // of the last rounds
  Nanoseconds round_p99{0};
  // Slices without an end: what members have not reported to this leader cannot be divided.
  bool waits_for_reports = false;
  std::uint64_t bundles = 0;               // messages of relays
  std::vector<MemberStatus> members = {};  // without the information from etcd
  std::vector<CourseStatus> courses = {};  // all except that of slices
};

struct ClusterStatus {
  std::string name;    // of the server that answers
  std::string state;   // "joined": in an epoch; otherwise "joining", or "alone" without etcd
  std::string why;     // why it is not joined, or why etcd is not available; empty: no problem
  std::string leader;  // empty: unknown
  std::uint32_t term = 0;
  std::int64_t epoch = 0;     // current epoch of this server; 0: none
  std::uint64_t epochs = 0;   // number of epochs it took part in
  std::uint64_t errors = 0;   // calls without an epoch
  std::uint32_t counted = 0;  // members that share the limits, as last reported; 0: never reported
  std::string partition = "safe";   // or "last", see ClusterOptions
  std::vector<SliceStatus> slices;  // slices that it uses
  std::vector<MemberStatus> members;
  std::vector<std::string> rule_errors;  // rules of the cluster that cannot be applied here
  // None while the leader cannot be reached.
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
  // Start, change or stop; scope=cluster is implied. Answered when it is in etcd and in effect
  // here. EEXIST, ENOENT, EINVAL; EHOSTUNREACH and ETIMEDOUT: etcd is not available.
  virtual void change_rule(std::string service, RuleChange change, Answer<void> answer) = 0;
  // A server that is away will not come back: nothing is reserved for it any more. Answered when it
  // is in etcd. EBUSY: it is not away; ENOENT: it is not known; other errors as above.
  virtual void forget(std::string name, Answer<void> answer) = 0;
};

}  // namespace weir::serve
