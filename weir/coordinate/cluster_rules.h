// SPDX-License-Identifier: Apache-2.0
//
// Rules with scope=cluster on one server: it reports its demand with every epoch and sets the
// slices that it gets where requests are paced, in a SliceSink: a Target, or the driver of a Lustre
// server. It is an EpochUse, driven by an EpochParticipant:
//
//   sink --gauges--> SliceMember --Ready--> leader --Start--> SliceMember --set_slices--> sink
//
// A limit means the same on ten servers as on one: each class of the rule, according to its by=,
// may pass at the limit on all servers together. `jobid={a.*} rate=1000 scope=cluster` gives every
// matching job 1000 a second in the whole cluster, and with by=rule all of them together. So each
// class has its own slot among the slices, with the same name on every server:
//
//   wide/ops                 of a rule with by=rule
//   each/ops:dd.0            of the class of job dd.0 under the rule each
//   each/bytes:dd.0+500      its bytes; by=jobid+uid
//
// Classes without demand for a while release their slot. A class without a slot or without a valid
// slice runs at limit / (10 x members), also before the first epoch. Call follow() when rules or
// the number of members have changed, before anything else is scheduled, and apply() at
// next_apply(). REQUIRES of a Target: a policy with rules on the regular head, and
// RuleOptions::in_cluster; under other policies there are no rules and no demand. Time is an
// argument. One owner, no locks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/limits.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/rule_gauge.h"
#include "weir/coordinate/slice_sink.h"
#include "weir/coordinate/slices.h"
#include "weir/target/target.h"

namespace weir {

// The name of the limit of a class: "each/ops" for "each/ops:dd.0". For SliceLeader::LimitOf.
std::string_view limit_name(std::string_view slice_name);

class ClusterRules final : public EpochUse {
 public:
  // A class without demand for this time has no slot.
  static constexpr Nanoseconds kIdleTime = std::chrono::seconds{2};

  // REQUIRES: sink and slices outlive it. `prefix` precedes the names of its classes, to
  // distinguish the rules of several sinks.
  ClusterRules(SliceSink& sink, SliceMember& slices, Nanoseconds epoch, std::string prefix = {})
      : sink_(sink), slices_(slices), epoch_(epoch), prefix_(std::move(prefix)) {}
  // REQUIRES: the Target outlives it too.
  ClusterRules(Target& target, SliceMember& slices, Nanoseconds epoch, std::string prefix = {});

  EpochBytes ready(Instant now) override;
  void called(Instant now) override { apply(now); }
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;

  // Reads the rules again, and sets what each class may use now.
  void follow(Instant now);
  // Sets what each class may use now.
  void apply(Instant now);
  Instant next_apply(Instant now) const;

  // Number of classes with a slot; and how often no slot was free.
  std::size_t classes() const { return classes_.size(); }
  std::uint64_t refused() const { return refused_; }

 private:
  // A class of the cluster: a rule's name and a key by its by=.
  struct ClassId {
    std::string rule;
    Attributes key;
    bool operator==(const ClassId&) const = default;
  };
  struct ClassIdHash {
    std::size_t operator()(const ClassId& id) const {
      return id.key.hash() ^ std::hash<std::string>()(id.rule);
    }
  };
  struct Sliced {
    ClassId id;
    RuleGauge gauge;
    std::optional<SliceMember::ClassIndex> ops;
    std::optional<SliceMember::ClassIndex> bytes;
    Instant wanted_at;
    bool is_whole = false;   // the class is the whole rule
    bool is_listed = false;  // in this epoch
  };

  void follow_classes(Instant now);
  Sliced* sliced_of(const SlicedRule& rule, const SlicedLoad& load, Instant now);
  bool has_room() const;
  std::vector<SlicedLoad> loads(Instant now);
  void forget_idle(Instant now);
  Rate rate_of(SliceMember::ClassIndex index, Instant now) const;
  Rate cut_off_rate(std::int64_t limit) const;

  const std::unique_ptr<SliceSink> own_;  // of a Target
  SliceSink& sink_;
  SliceMember& slices_;
  Nanoseconds epoch_;
  std::string prefix_;
  std::vector<SlicedRule> rules_;
  std::vector<Sliced> classes_;  // in order of arrival
  absl::flat_hash_map<ClassId, std::size_t, ClassIdHash> place_of_;
  std::vector<ClassId> given_back_;  // slots released since the last apply()
  Instant measured_at_ = Instant::min();
  std::uint64_t refused_ = 0;
};

}  // namespace weir
