// SPDX-License-Identifier: Apache-2.0
//
// Lustre's token bucket filter with a rule for every job, whose rate is the job's part of the
// capacity by its nodes: what an administrator can write without a driver. The filter is the model
// that the tests of weir lustre use (lustre_tbf.h), with its weaknesses; sources are given there.
// Timers are in time here; lustre_model.h has late ones. Rates are whole numbers of at least 1.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weir/sim/lustre_tbf.h"
#include "weir/sim/rival.h"

namespace weir::sim {

class LustreRules final : public Rival {
 public:
  explicit LustreRules(RivalSetup setup);

 private:
  void arrived(Job job, const Request& request, Instant now) override;
  Choice choose(Instant now) override;
  void started(Job job, Request& request, Instant now) override;

  LustreTbf filter_;
};

}  // namespace weir::sim
