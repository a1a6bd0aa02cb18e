// SPDX-License-Identifier: Apache-2.0
//
// The Gate in front of a target: start here. Every request enters through it, and it decides what
// runs next. Three calls are all there is to its daily life:
//
//   gate.admit(request, Head::kRegular, now);     a request has come
//   Decision decision = gate.next(now);           run this | ask again then | idle
//   gate.complete(request, now);                  the device is done with it
//
// A driver asks next() until it says something else than run, arms one timer for wait_until, and
// asks again when it fires, when a request is admitted and when one is completed. Time is given; it
// may stand still, and a step back counts as standing still.
//
//   high head:     fallback + the policy in force (+ policies being drained) --+
//   regular head:  fallback + the policy in force (+ policies being drained) --+--> slots -->
//   device
//
// The high-priority head goes first, but after kHighInRowMax of its requests in a row the regular
// one is asked first, so neither starves. At most `slots` requests run at a time; `hp_slots` of
// them can be kept from the regular head, by default none, since a slot kept free is a slot that
// idles.
//
// A driver that has no memory for a request that may run defers it, and resumes it when there is
// some: meanwhile others use its slot. A request that must not wait is charged instead of admitted.
//
// Policies are exchanged while requests wait: the new one is started first, and only then the old
// one stops getting requests and is drained beside it, in turns. A switch that fails changes
// nothing.
//
// One owner, no locks: the order of calls is the order of events. Nothing here fails, blocks, or
// allocates for each request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/classify/command.h"
#include "weir/schedule/outcome.h"
#include "weir/schedule/policy.h"
#include "weir/schedule/request.h"
#include "weir/schedule/rule_engine.h"

namespace weir {

// What to do now.
class Decision {
 public:
  enum class Kind : std::uint8_t { kRun, kWait, kIdle };

  static Decision run(Request& request) { return {Kind::kRun, &request, kNever}; }
  // The same of one that was deferred.
  static Decision run_again(Request& request) { return {Kind::kRun, &request, kNever, true}; }
  static Decision wait_until(Instant until) { return {Kind::kWait, nullptr, until}; }
  // Nothing to do before the next admit or complete.
  static Decision idle() { return {Kind::kIdle, nullptr, kNever}; }

  Kind kind() const { return kind_; }
  Request& request() const { return *request_; }
  Instant until() const { return until_; }
  // Whether it has been let run before, and was deferred.
  bool is_resumed() const { return is_resumed_; }

 private:
  Decision(Kind kind, Request* request, Instant until, bool is_resumed = false)
      : kind_(kind), is_resumed_(is_resumed), request_(request), until_(until) {}
  Kind kind_;
  bool is_resumed_;
  Request* request_;
  Instant until_;
};

class Gate {
 public:
  static constexpr std::uint32_t kHighInRowMax = 10;

  struct Options {
    std::uint32_t slots = 16;
    std::uint32_t hp_slots = 0;                     // less than slots
    RuleOptions rules = {};                         // of policies that have rules
    NodemapLookup nodemaps = default_nodemap_only;  // whose names rules may use
  };

  // The rules as they are now, to try commands on one after the other: each succeeds or fails as
  // it would after those before it. Rules must not change meanwhile.
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
  // Done, and it moved the bytes it was charged for. REQUIRES: the request is running.
  void complete(Request& request, Instant now);
  // The same with another outcome. What it paid too much goes back to the buckets that paid, what
  // is missing is taken from them, and may leave a debt. A refund is lost if rules have changed
  // since it was let run, since others may be its limits now.
  void complete(Request& request, Instant now, const Outcome& outcome);
  // Its client has gone; nothing is charged: what a deferred one paid goes back, as above.
  // REQUIRES: the request is queued, deferred or resumed.
  void withdraw(Request& request, Instant now);
  // Moves a queued request from the regular to the high head; others stay where they are.
  void promote(Request& request, Instant now);
  // There is no buffer for it: it gives its slot back, and what it paid stays paid.
  // REQUIRES: the request is running, and nothing of it has begun.
  void defer(Request& request, Instant now);
  // There is one now: it is the next to get a slot, after those that were resumed before it; those
  // of the high head go first. REQUIRES: the request is deferred.
  void resume(Request& request, Instant now);
  // A request that does not wait: it pays what it would pay if it ran now, though that may leave a
  // debt, and is neither queued nor completed. REQUIRES: the request is outside; it stays there.
  void charge(Request& request, Head head, Instant now);
  // How long a request like this would wait if it came now. A lower estimate, from its limits and
  // what waits before it in its class; slots, shares that are lent and other classes are not
  // counted. O(1).
  Nanoseconds expected_wait(const Request& request, Head head, Instant now) const;

  // No admit follows. What is queued is handed out without waiting for limits, except for those of
  // the whole cluster, which hold to the end (RuleOptions::in_cluster).
  void shutdown(Instant now);
  bool is_shut_down() const { return shut_down_; }

  // While it is held nothing of the regular head is begun; shutdown() ends it.
  void hold_regular(bool is_held);

  std::size_t queued() const;
  std::size_t running() const { return running_[0] + running_[1]; }
  std::size_t running(Head head) const { return running_[static_cast<std::size_t>(head)]; }
  // Those that hold no slot though they were let run, and those of them that wait for one again.
  std::size_t deferred() const { return deferred_; }
  std::size_t resumed() const { return resumed_; }

  // Starts a policy on the named heads by its name (policy_kinds.h); the name of the fallback stops
  // the other. One in force with the same argument goes on as it is. ENOENT for a name there is
  // none of, EINVAL for an argument that it does not take; then nothing changes.
  Result<void> start_policy(std::string_view name, std::string_view argument, Heads heads);

  // What a head runs, for tunables and listings. The policy in force; never null.
  const Policy& policy_in_force(Head head) const;

  // Grows with every policy that is started.
  std::uint64_t switches() const { return switches_; }

  // Of the policy in force on a head; nullptr if it has no rules.
  RuleEngine* engine(Head head);
  const RuleEngine* engine(Head head) const;
  // Reads a rule command for the policies of the heads it names. EINVAL (start) or ENODEV where one
  // of them has no rules; EINVAL where they are of different types.
  Result<RuleChange> read_rule(std::string_view text) const;
  // Several; the error names the one that cannot be read.
  Result<std::vector<RuleChange>> read_rules(std::span<const std::string> texts) const;
  // The same of a change that was read elsewhere; whether it succeeds is another question.
  Result<void> check_readable(const RuleChange& change) const;
  // On all heads that it names or on none.
  Result<void> apply_rule(const RuleChange& change, Instant now);
  // Reads and applies.
  Result<void> write_rule(std::string_view text, Instant now);
  // All of them in this order, or none. The error names the change that cannot be applied.
  Result<void> apply_rules(std::span<const RuleChange> changes, Instant now);
  // Whether apply_rules() would succeed.
  Result<void> check_rules(std::span<const RuleChange> changes) const;
  // A tunable of the policy in force. ENODEV: it has none of this name. EINVAL: out of its range.
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
  // Of every policy there is, in the order they are listed.
  std::vector<PolicyStatus> policies(Head head) const;

 private:
  struct ActivePolicy;
  class Entrance;

  Entrance& entrance(Head head) { return *entrances_[static_cast<std::size_t>(head)]; }
  const Entrance& entrance(Head head) const { return *entrances_[static_cast<std::size_t>(head)]; }
  static ActivePolicy& active_of(const Request& request);
  // The type of the heads; ENODEV, EINVAL as read_rule().
  Result<FieldSet> type_for(const RuleOutline& outline) const;
  Result<RuleCommand> bind_rule(const RuleChange& change) const;
  Pick pick_from(Head head, Instant now, Urge urge);
  Request* pick_resumed();
  bool has_slot(Head head) const;
  // Time that does not step back.
  Instant forward(Instant now);

  Options options_;
  std::array<std::unique_ptr<Entrance>, 2> entrances_;
  std::array<std::size_t, 2> running_{};
  std::array<Ring<Request, &Request::policy_ring>, 2> waiting_again_;  // by head
  std::size_t deferred_ = 0;
  std::size_t resumed_ = 0;    // of deferred_
  std::size_t regular_slots_;  // 0 while the regular head is held
  std::uint32_t high_in_row_ = 0;
  bool shut_down_ = false;
  std::uint64_t policies_made_ = 0;
  std::uint64_t switches_ = 0;
  Instant now_ = Instant::min();
};

}  // namespace weir
