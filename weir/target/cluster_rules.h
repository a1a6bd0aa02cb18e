// SPDX-License-Identifier: Apache-2.0
//
// Rules with scope=cluster, on one server: what it could use of them goes out with every epoch, and
// the slices that come back are set at the scheduler. It is an EpochUse, to be driven by an
// EpochParticipant:
//
//   Tbf --gauges--> SliceMember --Ready--> leader --Start--> SliceMember --set_slice--> Tbf
//
// A rule is one class of the cluster for its rate and one for its bytes, whatever its by= is: all
// classes of the rule on this server have the same slice. For one limit for all of a job's servers
// give each job its rule, or by=rule.
//
// Without a slice under lease a rule runs at limit / (10 x members), and at the least rate until
// the first grant. apply() is to be called when next_apply() has come. REQUIRES: the Gate's tbf on
// the regular head; under other policies there are no rules, and nothing is asked for. Time is
// given. One owner, no locks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/slices.h"
#include "weir/schedule/gate.h"
#include "weir/target/rule_gauge.h"

namespace weir {

class ClusterRules final : public EpochUse {
 public:
  // Gate and slices outlive it. `prefix` stands before the names of its classes, to tell the rules
  // of several Gates apart.
  ClusterRules(Gate& gate, SliceMember& slices, Nanoseconds epoch, std::string prefix = {})
      : gate_(gate), slices_(slices), epoch_(epoch), prefix_(std::move(prefix)) {}

  EpochBytes ready(Instant now) override;
  void called(Instant now) override { apply(now); }
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;

  // Sets what each rule may use now.
  void apply(Instant now);
  Instant next_apply(Instant now) const;

 private:
  struct Ruled {
    RuleGauge gauge;
    std::optional<SliceMember::ClassIndex> ops;
    std::optional<SliceMember::ClassIndex> bytes;
    bool is_listed = true;
  };

  void follow_rules(Instant now);
  std::optional<Rate> rate_of(std::optional<SliceMember::ClassIndex> index, Instant now) const;

  Gate& gate_;
  SliceMember& slices_;
  Nanoseconds epoch_;
  std::string prefix_;
  std::vector<Ruled> rules_;
};

}  // namespace weir
