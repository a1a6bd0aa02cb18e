// SPDX-License-Identifier: Apache-2.0
//
// The members, leader and rules of the cluster, as stored in etcd: followed by a thread that may
// block on it. All keys are below one prefix:
//
//   PREFIX/members/NAME@INCARNATION   ADDRESS                    ends with the server's lease
//   PREFIX/known/NAME                 ADDRESS                    ends with a goodbye, or forget()
//   PREFIX/leader                     TERM NAME@INCARNATION ADDRESS     the same
//   PREFIX/challenges/NAME@INCARNATION  TERM CONNECTIONS         the same
//   PREFIX/term                       the last term that was given out
//   PREFIX/history                    a number that tells this etcd from one that lost its data
//   PREFIX/rules/SERVICE/NAME         see shared_rule.h
//
// When there is no leader every member tries to write the key, in one transaction with a term that
// is one more than any it has heard of; etcd lets one of them. A leader considers itself leader
// until 2/3 of its lease have passed since it last asked for renewal, by its own clock; so it stops
// before etcd gives the key to another. In normal operation nothing is written, and leases are only
// renewed (which etcd does not write to disk).
//
// A server tries to lead only as leader_choice.h says. One that does not reach the leader writes
// how many servers it is connected with as a challenge; a leader with fewer gives its lease back
// and stands aside for the length of one.
//
// A server that is known but not registered is away: it has crashed or is isolated, and its part of
// every limit is reserved. Both keys are written in one transaction, so that a forget() of a server
// that has come back is detected.
//
// While etcd is unavailable the thread keeps trying; the last known state is used, except that the
// leader is no longer confirmed. The listener is called on this thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/cluster/etcd_client.h"
#include "weir/cluster/shared_rule.h"

namespace weir::cluster {

struct MembershipView {
  struct Member {
    std::string name;
    std::string address;
    std::uint64_t incarnation = 0;  // of those that are registered
  };
  std::uint32_t term = 0;  // of the leader; 0: there is none
  std::string leader;
  std::string leader_address;
  bool leads = false;             // this server does
  bool is_first = false;          // and nobody did before
  Instant until{};                // a leader is sure of itself until then
  std::size_t challenger = 0;     // connections of the best one in this term; 0: there is none
  std::vector<Member> members;    // that are registered
  std::vector<Member> known;      // by name; also those that are away
  std::vector<SharedRule> rules;  // in the order they were started
  std::uint64_t history = 0;      // of the etcd; 0: it has none, and
  std::int64_t generation = 0;    // its revision; see cluster_state.h
};

class Membership {
 public:
  struct Options {
    std::string name;
    std::uint64_t incarnation = 0;
    std::string address;  // that others reach this server by
    std::string prefix;
    Nanoseconds lease = std::chrono::seconds{5};
    EtcdOptions etcd;
    std::uint64_t history = 0;  // that this server knows rules of; 0: it knows none
  };
  // What this server knows of its connections.
  struct Connected {
    std::size_t now = 1;         // servers, itself included
    bool was_connected = false;  // with another, at any time since it started
    bool seeks = false;          // it does not reach the leader, or there is none
  };
  struct Listener {
    std::function<void(const MembershipView&)> heard;  // after every listing
    std::function<void(Instant until)> confirmed;      // while it leads
    std::function<void()> deposed;                     // its lease has run out
    std::function<bool()> may_lead;                    // is not refused by who leads
    std::function<Connected()> connected;              // after heard()
    std::function<bool()> is_led;                      // a leader has this server among its own
    // The rule commands that this server could carry out, before they are written.
    std::function<Result<void>(const std::string& service, const RuleChange& change)> check;
    std::function<void(std::string_view line)> say;
    std::function<void(const Error& why)> unheard;  // etcd could not be asked
  };

  using Answer = std::function<void(Result<void>)>;

  // Reads the certificates; etcd need not be there.
  static Result<std::unique_ptr<Membership>> create(const Options& options, Listener listener);
  // As stop().
  virtual ~Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // As EtcdClient has it.
  virtual Result<std::function<void()>> read_certificates() = 0;
  // There may be something to do: for every thread.
  virtual void look_again() = 0;

  // Starts its thread. Once.
  virtual void start() = 0;
  // Ends it, and gives the lease and the name back, so that others need not wait for its end.
  virtual void stop() = 0;

  // For every thread: carried out on its own, in turn. When it ends the answer is ECANCELED.
  virtual void change_rule(const std::string& service, const RuleChange& change,
                           const Answer& answer) = 0;
  // The same. EBUSY: it is registered; ENOENT: no such server is known.
  virtual void forget(const std::string& name, const Answer& answer) = 0;

  // Why etcd cannot be used; empty: it can. For every thread.
  virtual std::string trouble() const = 0;

 protected:
  Membership() = default;
};

}  // namespace weir::cluster
