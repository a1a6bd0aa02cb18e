// SPDX-License-Identifier: Apache-2.0
//
// Samples of what services and classes have done, for the history (weir/account/usage_history.h).
// Like a snapshot it is taken in steps on the loop, but it copies only sums, and the owner uses the
// result of a step before it asks for the next one: its memory does not grow with the classes.
//
//   auto sampler = std::make_shared<UsageSampler>();
//   on the loop:  bool is_whole = sampler->step(server);
//   elsewhere:    sampler->hand_over(history);            after each step
//
// The sums of a service are those of all jobs, so they are complete under every policy and never
// decrease. Not thread-safe: one of both at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weir/account/usage_history.h"
#include "weir/classify/attributes.h"
#include "weir/serve/server.h"
#include "weir/serve/target_port.h"

namespace weir::control {

class UsageSampler {
 public:
  static constexpr std::size_t kStep = 2048;  // classes or jobs

  // True when all services were visited. REQUIRES: on the loop.
  bool step(serve::Server& server);
  // A Target of another thread, after those of the server. Hands over after each step.
  void add(serve::TargetPort& port, UsageHistory& history);
  void hand_over(UsageHistory& history);
  // Of all services, so far.
  std::size_t classes() const { return classes_; }

 private:
  struct ClassSums {
    std::size_t rule = 0;  // place in rule_names_
    Attributes key;
    FieldSet by;
    bool is_overflow = false;
    UsageSums sums;
  };

  bool step_target(const Target& target, Instant now);
  void step_classes(const Target& target, Instant now);
  bool step_jobs(const Target& target);

  std::size_t service_ = 0;
  bool is_in_jobs_ = false;
  std::size_t at_ = 0;
  std::size_t classes_ = 0;
  std::string name_;                     // of the service of this step
  std::vector<std::string> rule_names_;  // names, of this step
  std::vector<ClassSums> sums_;
  UsageSums total_;
  bool is_total_whole_ = false;
};

}  // namespace weir::control
