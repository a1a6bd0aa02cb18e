// SPDX-License-Identifier: Apache-2.0
//
// The token bucket filter of one head of a Lustre server, with its weaknesses, as a model: a driver
// is tested against it before it runs on a real server. Weir's own tbf (weir/schedule) differs on
// purpose; nothing of it is used here.
//
//   class     one for each job; a queue, ntoken (at most depth), check_time, deadline
//   dequeue   the class with the smallest deadline: n = floor((now - check_time) * rate) + ntoken,
//             capped at depth. n > 0: one request, ntoken = n - 1, check_time = now (the fraction
//             is lost), deadline = now + 1/rate. n = 0: the whole head is throttled until a timer
//   lazy      a class checks its rule only when a new request of it arrives. Another rule or a
//             newer rate resets it: ntoken = depth, whatever it had, and neither the deadline nor
//             the timer is recomputed
//   realtime  no cap, and the deadline stays until tokens run out
//
// Only `start` increases the sequence that makes classes match again; `stop` is seen by a flag of
// the rule, a change of rate by its generation, a change of rank by new classes only. The owner
// fires timers: how late they are depends on the server (lustre_model.h).
//
// No clock, no randomness; one owner. Dequeue visits every class that has requests.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/command.h"
#include "weir/classify/conditions.h"

namespace weir::sim {

// A request to a Lustre server.
struct Rpc {
  JobId job;
  std::uint64_t tag = 0;  // for the owner
  std::uint32_t cpt = 0;
  std::uint32_t ost = 0;
  std::uint64_t bytes = 4096;
  bool is_read = true;
  std::string_view operation = {};  // of an MDS, such as "mkdir"; outlives it
  bool is_high = false;             // high priority
  Instant released{};               // when its process had it to send; for the owner
  Instant arrived{};
};

class LustreTbf {
 public:
  struct Rule {
    std::string name;
    std::string conds;  // as written
    Conditions conditions;
    std::uint32_t rate = 0;
    std::uint32_t depth = 3;
    std::uint64_t generation = 0;
    bool realtime = false;
    bool stopping = false;
    std::uint32_t refs = 0;  // classes that use it
  };

  LustreTbf(FieldSet type, std::uint32_t rate, std::uint32_t depth);

  FieldSet type() const { return type_; }
  std::uint64_t queued() const { return queued_; }

  // EEXIST, ENOENT and EPERM as on a server; a change whose rank does not exist has still changed
  // the rate.
  Result<void> apply(const RuleCommand& command);
  // "NAME CONDS RATE, ref N" lines, first match first.
  std::string listing() const;

  void enqueue(const Rpc& rpc, Instant now);
  // None while nothing may run; then wake() returns until when, unless nothing is queued. With
  // `force`, which drains a policy that is being stopped, tokens are ignored.
  std::optional<Rpc> dequeue(Instant now, bool force);

  // The time of the armed timer; none if it is not armed.
  std::optional<Instant> wake() const { return armed_; }
  // 1 / rate of the class that armed it.
  Nanoseconds armed_interval() const { return armed_interval_; }
  void fire() { armed_.reset(); }

 private:
  struct Class {
    std::shared_ptr<Rule> rule;
    std::uint64_t generation = 0;
    std::uint64_t sequence = 0;
    std::uint64_t rate = 1;
    std::uint64_t nsecs = 0;
    std::uint64_t depth = 0;
    std::uint64_t tokens = 0;
    std::uint64_t residual = 0;
    Instant check_time{};
    Instant deadline{};
    std::deque<Rpc> queue;
  };

  std::shared_ptr<Rule> match(const Attributes& attributes) const;
  void attach(Class& owner, std::shared_ptr<Rule> rule, Instant now);
  void look_again(Class& owner, const Attributes& attributes, Instant now);
  Class* first() const;
  std::optional<Rpc> try_class(Class& owner, Instant now, bool force);
  std::vector<std::shared_ptr<Rule>>::iterator find(std::string_view name);
  Result<void> start(const RuleCommand& command);
  Result<void> change(const RuleCommand& command);
  Result<void> stop(const RuleCommand& command);
  void arm(Class& owner);

  FieldSet type_;
  std::uint32_t default_rate_;
  std::uint32_t default_depth_;
  std::vector<std::shared_ptr<Rule>> rules_;
  std::shared_ptr<Rule> default_;
  std::map<JobId, std::unique_ptr<Class>> classes_;
  std::vector<Class*> ready_;  // those with requests, in no particular order
  std::uint64_t sequence_ = 0;
  std::uint64_t queued_ = 0;
  std::optional<Instant> armed_;
  Nanoseconds armed_interval_{0};
};

}  // namespace weir::sim
