// SPDX-License-Identifier: Apache-2.0
//
// An order in which requests are served, behind one head of a Gate. A policy is given requests one
// by one and asked for the next to run; if all of them have to wait, it answers with a time
// instead. Every head has a fifo as a fallback; another policy may run in front of it and be
// replaced at any time. The old one then gets no more requests and is asked, with Urge::kForce,
// until it is empty: drained, never dropped.
//
// Contract: an admitted request leaves exactly once, by pick or by remove. Requests of one client
// and class leave in order of arrival. With Urge::kForce a policy that is not empty always returns
// a request. Nothing fails, blocks or allocates per request.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/time.h"
#include "weir/classify/command.h"
#include "weir/schedule/request.h"

namespace weir {

class RuleEngine;

inline constexpr std::array kHeads = {Head::kRegular, Head::kHigh};

// Whether a command for these heads applies to this one.
constexpr bool names(Heads heads, Head head) {
  return heads == Heads::kBoth || (heads == Heads::kRegular) == (head == Head::kRegular);
}

enum class Urge : std::uint8_t {
  kInTime,  // only requests that limits and shares allow
  kBorrow,  // nothing is ready on any head: also requests that lack only a share, or have none
  kFinish,  // the server stops: the first request, but cluster-wide limits hold
  kForce,   // the first request, regardless of limits: the policy is being drained
};

// The answer of a policy: a request, or the time at which to ask again (kNever: when another
// request has been admitted).
struct Pick {
  Request* request = nullptr;
  Instant until = kNever;
};

class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;

  // Its name in commands: "fifo", "crrn".
  virtual std::string_view name() const = 0;

  virtual void admit(Request& request, Instant now) = 0;
  // Removes the request that it returns.
  virtual Pick pick(Instant now, Urge urge) = 0;
  // Removes a request that is queued here, at any position.
  virtual void remove(Request& request, Instant now) = 0;

  // The following functions are for policies with limits; others need not implement them.

  // A request that was picked here moved a different number of bytes than it was charged, or
  // amounted to several operations.
  virtual void settle(const Request& /*request*/, const Outcome& /*outcome*/, Instant /*now*/) {}
  // A request that was picked here never started: it is refunded.
  virtual void refund(const Request& /*request*/, Instant /*now*/) {}
  // Charges a request that is not queued, whatever the balance.
  virtual void charge(const Request& /*request*/, Instant /*now*/) {}
  // The earliest time at which a request like this could run if it were admitted now; may be in
  // the past.
  virtual Instant ready_at(const Request& /*request*/, Instant now) const { return now; }

  // Whether pick(), settle(), refund(), charge() and ready_at() include the rate of the whole
  // target (PolicySetup::root), except with Urge::kForce. Otherwise the Gate keeps it.
  virtual bool pays_root() const { return false; }

  // The interface of a policy with rules (rule_engine.h); nullptr: it has none.
  virtual RuleEngine* engine() { return nullptr; }
  virtual const RuleEngine* engine() const { return nullptr; }

  // A number that can be changed while it runs, by its name in PolicyKind::tunables; none if there
  // is no such tunable. Values are within their bounds.
  virtual std::optional<std::uint64_t> tunable(std::string_view /*name*/) const { return {}; }
  virtual void set_tunable(std::string_view /*name*/, std::uint64_t /*value*/) {}
};

}  // namespace weir
