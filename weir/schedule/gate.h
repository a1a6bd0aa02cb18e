// SPDX-License-Identifier: Apache-2.0
//
// The Gate in front of a target: start here. Every request enters through it, and it decides which
// request runs next. Three calls are enough for normal operation:
//
//   gate.admit(request, Head::kRegular, now);     a request has arrived
//   Decision decision = gate.next(now);           run this | ask again then | idle
//   gate.complete(request, now);                  the device is done with it
//
// A driver calls next() until the answer is not run, arms one timer for wait_until, and calls again
// when it fires, when a request is admitted and when one is completed. Time is an argument; it may
// stand still, and a step back counts as standing still.
//
//   high head:     fallback + current policy (+ policies being drained) --+
//   regular head:  fallback + current policy (+ policies being drained) --+--> slots --> device
//
// The high-priority head is served first, but after kHighInRowMax of its requests in a row the
// regular one is tried first, so neither starves. At most `slots` requests run at a time;
// `hp_slots` of them can be reserved for the high head, by default none, since a reserved slot is
// often idle.
//
// The target may have a rate of its own (root.h), which holds for both heads together, under any
// policy and while one is drained.
//
// A driver without a buffer for a request that may run defers it, and resumes it when there is
// one: meanwhile other requests use its slot. A request that must not wait is charged instead
// of admitted.
//
// Policies are replaced while requests wait: the new one is started first, and only then the old
// one gets no more requests and is drained, in turns with the new one. A switch that fails
// changes nothing.
//
// One owner, no locks: the order of calls is the order of events. Nothing here fails, blocks, or
// allocates per request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/classify/command.h"
#include "weir/classify/reserve_bound.h"
#include "weir/schedule/outcome.h"
#include "weir/schedule/policy.h"
#include "weir/schedule/request.h"
#include "weir/schedule/root.h"
#include "weir/schedule/rule_engine.h"

namespace weir {

// The answer of next(). Two words, so that it is returned in registers.
class Decision {
 public:
  enum class Kind : std::uint8_t { kRun, kWait, kIdle };

  static Decision run(Request& request) { return {&request, kNever}; }
  // The same for a request that was deferred.
  static Decision run_again(Request& request) { return {&request, Instant::min()}; }
  // kNever: idle().
  static Decision wait_until(Instant until) { return {nullptr, until}; }
  // Nothing to do before the next admit or complete.
  static Decision idle() { return {nullptr, kNever}; }

  Kind kind() const {
    if (request_ != nullptr) return Kind::kRun;
    return until_ == kNever ? Kind::kIdle : Kind::kWait;
  }
  // REQUIRES: kRun.
  Request& request() const { return *request_; }
  // REQUIRES: not kRun. kNever if it is idle.
  Instant until() const { return until_; }
  // Whether it was dispatched before, and then deferred. REQUIRES: kRun.
  bool is_resumed() const { return until_ != kNever; }

 private:
  Decision(Request* request, Instant until) : request_(request), until_(until) {}

  Request* request_;
  Instant until_;  // of kRun: whether it is resumed
};

class Gate {
 public:
  static constexpr std::uint32_t kHighInRowMax = 10;

  struct Options {
    std::uint32_t slots = 16;
    std::uint32_t hp_slots = 0;                     // less than slots
    RuleOptions rules = {};                         // for policies with rules
    NodemapLookup nodemaps = default_nodemap_only;  // names that rules may use
  };

  // A copy of the current rules, to try commands one after the other: each succeeds or fails as it
  // would after the earlier ones. The rules must not change meanwhile.
  class RuleTrial {
   public:
    explicit RuleTrial(const Gate& gate);
    Result<void> apply(const RuleChange& change);

   private:
    const Gate& gate_;
    std::array<std::unique_ptr<RuleList>, 2> lists_;
  };

  explicit Gate(const Options& options);
  // REQUIRES: nothing is queued, running or deferred.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // REQUIRES: the request is outside; shutdown() has not been called.
  void admit(Request& request, Head head, Instant now);
  Decision next(Instant now);
  // The request is done and moved the bytes it was charged. REQUIRES: the request is running.
  void complete(Request& request, Instant now);
  // The same with another outcome. An excess is given back to the buckets that paid, a shortfall is
  // taken from them and may leave a debt. The refund is lost if rules have changed since the
  // request was dispatched, since other limits may apply to it now.
  void complete(Request& request, Instant now, const Outcome& outcome);
  // Its client disconnected; nothing is charged: a deferred request is refunded, as above.
  // REQUIRES: the request is queued, deferred or resumed.
  void withdraw(Request& request, Instant now);
  // Moves a queued request from the regular to the high head; does nothing in other states.
  void promote(Request& request, Instant now);
  // There is no buffer for it: it gives its slot back and stays paid. REQUIRES: the request is
  // running and not started on the device.
  void defer(Request& request, Instant now);
  // A buffer is available: it gets the next slot, after requests that were resumed earlier; those
  // of the high head go first. REQUIRES: the request is deferred.
  void resume(Request& request, Instant now);
  // A request that does not wait: it pays what it would pay if it ran now, even if that leaves a
  // debt, and is neither queued nor completed. REQUIRES: the request is outside; it stays there.
  void charge(Request& request, Head head, Instant now);
  // How long a request like this would wait if it arrived now. A lower bound, from its limits
  // and the requests before it in its class; slots, lent shares and other classes are not
  // counted. O(1).
  Nanoseconds expected_wait(const Request& request, Head head, Instant now) const;

  // No admit follows. Queued requests are handed out without waiting for limits, except for
  // cluster-wide limits, which hold to the end (RuleOptions::in_cluster).
  void shutdown(Instant now);
  bool is_shut_down() const { return shut_down_; }

  // The rate of the whole target; none: only free slots limit requests.
  void set_root(const std::optional<RootBucket>& root, Instant now) { root_.set(root, now); }

  // While held, no request of the regular head is started; shutdown() ends it.
  void hold_regular(bool is_held);

  // Another number of slots. Requests that run beyond it finish; none starts meanwhile. REQUIRES:
  // more than Options::hp_slots.
  void set_slots(std::uint32_t slots);
  std::uint32_t slots() const { return options_.slots; }

  std::size_t queued() const;
  std::size_t running() const { return running_[0] + running_[1]; }
  std::size_t running(Head head) const { return running_[static_cast<std::size_t>(head)]; }
  // Deferred requests, which hold no slot, and those of them that wait for a slot again.
  std::size_t deferred() const { return deferred_; }
  std::size_t resumed() const { return resumed_; }

  // Starts a policy on the named heads by its name (policy_kinds.h); the name of the fallback stops
  // the other one. A policy that already runs with the same argument continues. ENOENT for an
  // unknown name, EINVAL for an invalid argument; then nothing changes.
  Result<void> start_policy(std::string_view name, std::string_view argument, Heads heads);

  // The current policy of a head, for tunables and listings; never null.
  const Policy& policy_in_force(Head head) const;

  // Increases with every policy that is started.
  std::uint64_t switches() const { return switches_; }

  // Of the current policy of a head; nullptr if it has no rules.
  RuleEngine* engine(Head head);
  const RuleEngine* engine(Head head) const;
  // Parses a rule command for the policies of the heads it names. EINVAL (start) or ENODEV if one
  // of them has no rules; EINVAL if their types differ.
  Result<RuleChange> read_rule(std::string_view text) const;
  // The same for a change that was parsed elsewhere; does not check whether it would succeed.
  Result<void> check_readable(const RuleChange& change) const;
  // On all heads that it names, or on none.
  Result<void> apply_rule(const RuleChange& change, Instant now);
  // Parses and applies.
  Result<void> write_rule(std::string_view text, Instant now);
  // All of them in this order, or none. The error names the change that cannot be applied.
  Result<void> apply_rules(std::span<const RuleChange> changes, Instant now);
  // Whether apply_rules() would succeed.
  Result<void> check_rules(std::span<const RuleChange> changes) const;
  // Reservations that rules may make from now on; existing ones stay.
  void set_reserve_bound(const ReserveBound& bound) { reserve_bound_ = bound; }
  // A tunable of the current policy. ENODEV: it has no such tunable. EINVAL: out of range.
  Result<void> set_tunable(Head head, std::string_view name, std::uint64_t value);

  struct PolicyStatus {
    enum class State : std::uint8_t { kStopped, kStopping, kStarted };
    std::string_view name;
    std::string_view argument;
    State state = State::kStopped;
    bool is_fallback = false;
    std::size_t queued = 0;
    std::size_t running = 0;
  };
  // All policies, in the order of listings.
  std::vector<PolicyStatus> policies(Head head) const;

 private:
  struct ActivePolicy;
  class HeadPolicies;

  HeadPolicies& policies_of(Head head) { return *head_policies_[static_cast<std::size_t>(head)]; }
  const HeadPolicies& policies_of(Head head) const {
    return *head_policies_[static_cast<std::size_t>(head)];
  }
  static ActivePolicy& active_of(const Request& request);
  // The type of the heads; ENODEV, EINVAL as for read_rule().
  Result<FieldSet> type_for(const RuleOutline& outline) const;
  Result<RuleCommand> bind_rule(const RuleChange& change) const;
  Pick pick_from(Head head, Instant now, Urge urge);
  Request* pick_resumed();
  void settle(const Request& request, Instant now, const Outcome& outcome);
  void refund(const Request& request, Instant now);
  bool has_slot(Head head) const;
  // Time that does not step back.
  Instant forward(Instant now);

  Options options_;
  Root root_;  // declared before the policies, which use it
  std::array<std::unique_ptr<HeadPolicies>, 2> head_policies_;
  std::array<std::size_t, 2> running_{};
  std::array<Ring<Request, &Request::policy_ring>, 2> waiting_again_;  // by head
  std::size_t deferred_ = 0;
  std::size_t resumed_ = 0;    // of deferred_
  std::size_t regular_slots_;  // 0 while the regular head is held
  std::uint32_t high_in_row_ = 0;
  ReserveBound reserve_bound_;
  bool shut_down_ = false;
  std::uint64_t policies_made_ = 0;
  std::uint64_t switches_ = 0;
  Instant now_ = Instant::min();
};

}  // namespace weir
