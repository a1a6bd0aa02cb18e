// SPDX-License-Identifier: Apache-2.0
//
// A scheduler that Weir is compared with. It takes the place of a Target and sees what a Target
// sees: arrivals with their job and cost, completions, the nodes of all jobs, the capacity and the
// number of slots; nothing of service times or of future requests.
//
//   rival.admit(request, job, now)     a request of a job has arrived
//   rival.next(now)                    run this | ask again then | idle
//   rival.complete(request, now)       the device is done with it
//
// The base class has a queue in order of arrival for each job and the count of slots; a subclass
// decides which job is next. Each is in a separate file in weir/sim/rivals, which names its source
// and every deviation. Time that steps back counts as standing still. One owner, no clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/rng.h"
#include "weir/base/time.h"
#include "weir/classify/limits.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/request.h"
#include "weir/sim/contender.h"

namespace weir::sim {

struct RivalSetup {
  std::uint32_t slots = 16;
  Rate capacity = Rate::per_second(1000);
  Cost cost;
  std::vector<std::string> names;    // of the jobs
  std::vector<std::uint64_t> nodes;  // of the jobs
  // Of the jobs, in units of cost; shorter than `nodes`: the others have none.
  std::vector<std::optional<Rate>> reserves;
  std::uint64_t seed = 1;

  std::uint64_t all_nodes() const;
  // Cost that a job may use in a second by its nodes, at least 1, times parts / whole.
  Rate share_of(std::size_t job, std::uint64_t parts = 1, std::uint64_t whole = 1) const;
};

class Rival {
 public:
  explicit Rival(RivalSetup setup);
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;
  virtual ~Rival();

  void admit(Request& request, std::uint32_t job, Instant now);
  Decision next(Instant now);
  // REQUIRES: next() returned it.
  void complete(Request& request, Instant now);
  // Removes a queued request, of any job; nullptr if there is none.
  Request* take_any();

  std::uint64_t queued() const { return queued_; }
  std::uint32_t running() const { return running_; }

 protected:
  using Job = std::uint32_t;
  static constexpr Job kNoJob = UINT32_MAX;

  // The job whose first request runs now, or the time at which to ask again.
  struct Choice {
    Job job = kNoJob;
    Instant until = kNever;
  };

  // A request was added to the queue of the job.
  virtual void arrived(Job job, const Request& request, Instant now) = 0;
  // REQUIRES: a request is queued and a slot is free.
  virtual Choice choose(Instant now) = 0;
  // The first request of the job was removed from its queue to run.
  virtual void started(Job job, Request& request, Instant now) = 0;
  virtual void finished(Job /*job*/, const Request& /*request*/, Instant /*now*/) {}

  const RivalSetup& setup() const { return setup_; }
  std::uint64_t cost_of(const Request& request) const {
    return setup_.cost.of(request.bytes).count();
  }
  bool is_empty(Job job) const { return queues_[job].requests.empty(); }
  const Request& first_of(Job job) const { return queues_[job].requests.front(); }
  std::uint32_t running_of(Job job) const { return queues_[job].running; }
  // When the request arrived, until `note_start` is called for it; then when it was dispatched.
  static Instant since(const Request& request) {
    return instant_at(static_cast<std::int64_t>(request.policy_turn));
  }
  static void note_start(Request& request, Instant now) {
    request.policy_turn = static_cast<std::uint64_t>(ns_of(now));
  }

 private:
  struct Queue {
    Ring<Request, &Request::policy_ring> requests;
    std::uint32_t running = 0;
    Job job = 0;
  };
  Instant clock(Instant now);

  RivalSetup setup_;
  std::vector<Queue> queues_;
  std::uint64_t queued_ = 0;
  std::uint32_t running_ = 0;
  Instant latest_{};
};

// One for each target of the scenario. EINVAL if the policy cannot express the scenario.
// REQUIRES: is_rival(contender).
Result<std::vector<std::unique_ptr<Rival>>> make_rivals(Contender contender,
                                                        const Scenario& scenario,
                                                        std::uint64_t seed);
// Of a rival; see contender.h.
Bounds bounds_of(Contender contender, const Scenario& scenario);

}  // namespace weir::sim
