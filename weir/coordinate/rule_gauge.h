// SPDX-License-Identifier: Apache-2.0
//
// Measures how much of a cluster-wide limit a server could use, at its scheduler, once per epoch:
// what was served since the last measurement plus what waits now, per second, in thousandths of a
// token (kMilli). So a server whose queue is full because of a small slice reports its backlog, and
// one without a backlog reports what it serves.
//
//   served 80 in 10 ms and 20 wait:   100 in 10 ms = 10,000 a second
//
// Tokens are those of the rule: with cost=bytes a request of 4096 bytes counts 4096. One gauge for
// each class, or for all of a rule. Time is an argument. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "weir/base/time.h"
#include "weir/schedule/rule_view.h"

namespace weir {

class RuleGauge {
 public:
  struct Demand {
    std::int64_t ops = 0;  // in kMilli
    std::int64_t bytes = 0;
  };

  RuleGauge(std::string rule, Instant now) : rule_(std::move(rule)), last_(now) {}
  // For a class that already exists: requests served before do not count.
  RuleGauge(const ClassLoad& load, Instant now)
      : rule_(load.rule), last_(now), served_(load.served), served_bytes_(load.served_bytes) {}

  const std::string& rule() const { return rule_; }
  // The demand of all classes of the rule together.
  Demand measure(const RuleView& rules, Instant now);
  // The demand of the class with this load.
  Demand measure(const ClassLoad& load, Instant now);

 private:
  Nanoseconds time_to(Instant now) const;

  std::string rule_;
  Instant last_;
  std::uint64_t served_ = 0;
  std::uint64_t served_bytes_ = 0;
};

}  // namespace weir
