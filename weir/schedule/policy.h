// SPDX-License-Identifier: Apache-2.0
//
// An order in which requests are served, behind one head of a Gate. A policy is given requests one
// by one and asked for the next to run; it may answer with a time instead, when all that wait have
// to. Every head has a fifo to fall back on; another policy may run in front of it and be exchanged
// at any time. The old one then gets no more requests and is asked, with Urge::kForce, until it is
// empty: drained, never dropped.
//
// Contract: a request that was admitted leaves exactly once, by pick or by remove. Requests of one
// client and class leave in the order they came. With Urge::kForce a policy that is not empty
// always gives a request. Nothing fails, blocks or allocates for each request.
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

// Whether a command for these heads speaks of this one.
constexpr bool names(Heads heads, Head head) {
  return heads == Heads::kBoth || (heads == Heads::kRegular) == (head == Head::kRegular);
}

enum class Urge : std::uint8_t {
  kInTime,  // what limits and shares allow
  kBorrow,  // nothing is ready on any head: also what lacks only a share, or has none
  kFinish,  // the server stops: whatever is first, but limits of the whole cluster hold
  kForce,   // whatever is first, limits or not: the policy is being drained
};

// What a policy has to offer: a request, or the time at which to ask again (kNever: when another
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

  // As it is named in commands: "fifo", "crrn".
  virtual std::string_view name() const = 0;

  virtual void admit(Request& request, Instant now) = 0;
  // Takes the request it offers out of the policy.
  virtual Pick pick(Instant now, Urge urge) = 0;
  // Takes out one that is queued here, wherever it stands.
  virtual void remove(Request& request, Instant now) = 0;

  // What follows is for policies with limits; without any there is nothing to do.

  // One that was picked here moved another number of bytes than it was charged for.
  virtual void settle(const Request& /*request*/, Bytes /*moved*/, Instant /*now*/) {}
  // One that was picked here has never begun: what it paid goes back.
  virtual void refund(const Request& /*request*/, Instant /*now*/) {}
  // One that is queued nowhere pays whatever the balance is.
  virtual void charge(const Request& /*request*/, Instant /*now*/) {}
  // When one like this could run at the earliest, were it admitted now; may lie in the past.
  virtual Instant ready_at(const Request& /*request*/, Instant now) const { return now; }

  // What can be told to a policy with rules (rule_engine.h); nullptr: it has none.
  virtual RuleEngine* engine() { return nullptr; }
  virtual const RuleEngine* engine() const { return nullptr; }

  // A number that can be changed while it runs, by its name in PolicyKind::tunables; nothing if
  // there is none. Values are within their bounds.
  virtual std::optional<std::uint64_t> tunable(std::string_view /*name*/) const { return {}; }
  virtual void set_tunable(std::string_view /*name*/, std::uint64_t /*value*/) {}
};

}  // namespace weir
