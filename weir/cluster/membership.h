// SPDX-License-Identifier: Apache-2.0
//
// The members, leader and rules of the cluster, as stored in etcd and followed by a thread that may
// block on etcd. All keys are below one prefix:
//
//   PREFIX/members/NAME@INCARNATION   ADDRESS                    ends with the server's lease
//   PREFIX/known/NAME                 ADDRESS                    ends at shutdown or by forget()
//   PREFIX/leader                     TERM NAME@INCARNATION ADDRESS     ends with the lease
//   PREFIX/challenges/NAME@INCARNATION  TERM CONNECTIONS         ends with the lease
//   PREFIX/term                       the last term
//   PREFIX/history                    a number that identifies the data set of this etcd
//   PREFIX/rules/SERVICE/NAME         see shared_rule.h
//
// When there is no leader every member tries to write the key, in one transaction with a term that
// is one higher than any it has seen; etcd accepts one of them. A leader considers itself leader
// until 2/3 of its lease have passed since it last asked for renewal, by its own clock; so it stops
// before etcd gives the key to another. In normal operation nothing is written, and leases are only
// renewed (which etcd does not write to disk).
//
// leader_choice.h decides when a server tries to lead. A server that does not reach the leader
// writes the number of its connections as a challenge; a leader with fewer revokes its own lease
// and does not try to lead for the length of one.
//
// A server that is known but not registered is away: it has crashed or is isolated, and an amount
// of every limit is reserved for it. Both keys are written in one transaction, so that a forget()
// of a server that has come back is detected.
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
    std::uint64_t incarnation = 0;  // of registered servers
  };
  std::uint32_t term = 0;  // of the leader; 0: no leader
  std::string leader;
  std::string leader_address;
  bool leads = false;             // this server leads
  bool is_first = false;          // there was no earlier leader
  Instant until{};                // a leader is confirmed until then
  std::size_t challenger = 0;     // connections of the best challenger in this term; 0: none
  std::vector<Member> members;    // registered servers
  std::vector<Member> known;      // by name; includes servers that are away
  std::vector<SharedRule> rules;  // in the order they were started
  std::uint64_t history = 0;      // identifies the data set of etcd; 0: none
  std::int64_t revision = 0;      // of etcd; see cluster_state.h
};

class Membership {
 public:
  struct Options {
    std::string name;
    std::uint64_t incarnation = 0;
    std::string address;  // at which other servers reach this one
    std::string prefix;
    Nanoseconds lease = std::chrono::seconds{5};
    EtcdOptions etcd;
    std::uint64_t history = 0;  // of the rules that this server knows; 0: none
  };
  // The connections of this server.
  struct Connected {
    std::size_t now = 1;         // number of servers, including itself
    bool was_connected = false;  // with another server, at any time since the start
    bool seeks = false;          // it does not reach the leader, or there is none
  };
  struct Listener {
    std::function<void(const MembershipView&)> heard;  // after every listing
    std::function<void(Instant until)> confirmed;      // while it leads
    std::function<void()> deposed;                     // its lease has expired
    std::function<bool()> may_lead;                    // false if the leader refuses this server
    std::function<Connected()> connected;              // after heard()
    std::function<bool()> is_led;                      // a leader counts this server as a member
    // Checks whether this server could apply a rule command, before it is written.
    std::function<Result<void>(const std::string& service, const RuleChange& change)> check;
    std::function<void(std::string_view line)> say;
    std::function<void(const Error& why)> unheard;  // etcd did not answer
  };

  using Answer = std::function<void(Result<void>)>;

  // Reads the certificates; etcd need not be available.
  static Result<std::unique_ptr<Membership>> create(const Options& options, Listener listener);
  // Calls stop().
  virtual ~Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // See EtcdClient.
  virtual Result<std::function<void()>> read_certificates() = 0;
  // There may be something to do. Thread-safe.
  virtual void look_again() = 0;

  // Starts the thread. Call once.
  virtual void start() = 0;
  // Stops the thread, revokes the lease and removes the name, so that other servers do not have to
  // wait for the lease to expire.
  virtual void stop() = 0;

  // Thread-safe: executed on its own thread, in order. After stop() the answer is ECANCELED.
  virtual void change_rule(const std::string& service, const RuleChange& change,
                           const Answer& answer) = 0;
  // The same. EBUSY: the server is registered; ENOENT: the server is not known.
  virtual void forget(const std::string& name, const Answer& answer) = 0;

  // Why etcd is not available; empty if it is. Thread-safe.
  virtual std::string trouble() const = 0;

 protected:
  Membership() = default;
};

}  // namespace weir::cluster
