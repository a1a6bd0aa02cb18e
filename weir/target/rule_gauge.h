// SPDX-License-Identifier: Apache-2.0
//
// How much of a cluster-wide limit a server could use: measured at its scheduler, once an epoch. It
// is what was served since the last time and what waits now, per second, in thousandths of a token
// (kMilli). A server whose queue is full of requests that a small slice holds up thus says so, and
// one that lets everything pass says what passes.
//
//   served 80 in 10 ms and 20 wait:   100 in 10 ms = 10,000 a second
//
// One gauge for each rule. Time is given. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "weir/base/time.h"
#include "weir/schedule/tbf.h"

namespace weir {

class RuleGauge {
 public:
  struct Demand {
    std::int64_t ops = 0;  // in kMilli
    std::int64_t bytes = 0;
  };

  RuleGauge(std::string rule, Instant now) : rule_(std::move(rule)), last_(now) {}

  const std::string& rule() const { return rule_; }
  Demand measure(Tbf& tbf, Instant now);

 private:
  std::string rule_;
  Instant last_;
  Tbf::RuleLoad before_;
};

}  // namespace weir
