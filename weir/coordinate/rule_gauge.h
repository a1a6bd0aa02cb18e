// SPDX-License-Identifier: Apache-2.0
//
// Measures how much of a cluster-wide limit a server could use, at its scheduler, once per epoch:
// what was served since the last measurement plus what waits now, per second, in thousandths of a
// token (kMilli). So a server whose queue is full because of a small slice reports its backlog, and
// one without a backlog reports what it serves. A long queue that shrinks is subtracted once more:
// it was served and will not come again, so that a load that has ended is seen an epoch earlier. A
// few requests come and go by chance.
//
//   served 80 in 10 ms and 20 wait, 20 before:   100 in 10 ms = 10,000 a second
//   served 80 in 10 ms and none wait, 80 before: nothing came, so 0
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
      : rule_(load.rule), last_(now), ops_{load.served, 0}, bytes_{load.served_bytes, 0} {}

  const std::string& rule() const { return rule_; }
  // The demand of all classes of the rule together.
  Demand measure(const RuleView& rules, Instant now);
  // The demand of the class with this load.
  Demand measure(const ClassLoad& load, Instant now);

 private:
  // At the last measurement.
  struct Count {
    std::uint64_t served = 0;
    std::uint64_t waiting = 0;
  };

  Nanoseconds time_to(Instant now) const;
  static std::uint64_t needed(Count& last, const Count& now, bool was_long);

  std::string rule_;
  Instant last_;
  Count ops_;
  Count bytes_;
};

}  // namespace weir
