// SPDX-License-Identifier: Apache-2.0
//
// Receives every call to a Target, in order: to write a trace (trace_writer.h), or to compare it in
// a replay (weir/sim/replay.h).
//
//   target.record(&recorder);        from now on; nullptr: stop
//
// Each function is called when its call is done, so periods that ended inside a call are reported
// before it. A request is identified by its number, which a recorder may assign when it is
// admitted. Commands are reported with their success, because a refusal has to be repeated too. The
// recorder must not call the Target.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "weir/adapt/controller.h"
#include "weir/adapt/period.h"
#include "weir/base/job_id.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/request.h"

namespace weir {

// The source of a capacity: an administrator, or the estimate of the Target.
enum class CapacitySource : std::uint8_t { kGiven, kEstimated };

// The default implementations do nothing.
class TargetRecorder {
 public:
  TargetRecorder() = default;
  TargetRecorder(const TargetRecorder&) = delete;
  TargetRecorder& operator=(const TargetRecorder&) = delete;
  virtual ~TargetRecorder() = default;

  virtual void admitted(Request& /*request*/, Head /*head*/, Instant /*now*/) {}
  virtual void decided(const Decision& /*decision*/, Instant /*now*/) {}
  virtual void completed(const Request& /*request*/, const Outcome& /*outcome*/, Instant /*now*/) {}
  virtual void deferred(const Request& /*request*/, Instant /*now*/) {}
  virtual void resumed(const Request& /*request*/, Instant /*now*/) {}
  // It gets no number, because no later call refers to it.
  virtual void charged(const Request& /*request*/, Head /*head*/, Instant /*now*/) {}
  virtual void withdrawn(const Request& /*request*/, Instant /*now*/) {}
  virtual void promoted(const Request& /*request*/, Instant /*now*/) {}
  virtual void shut_down(Instant /*now*/) {}
  virtual void policy_set(std::string_view /*name*/, std::string_view /*argument*/, Heads /*heads*/,
                          bool /*is_done*/, Instant /*now*/) {}
  virtual void tunable_set(Head /*head*/, std::string_view /*name*/, std::uint64_t /*value*/,
                           bool /*is_done*/, Instant /*now*/) {}
  virtual void rule_applied(const RuleChange& /*change*/, bool /*is_done*/, Instant /*now*/) {}
  virtual void slices_set(std::span<const ClassSlice> /*slices*/, Instant /*now*/) {}
  virtual void group_preferred(std::optional<std::uint32_t> /*group*/, Instant /*now*/) {}
  virtual void held(bool /*is_held*/, Instant /*now*/) {}
  virtual void nodes_set(const JobId& /*job*/, std::uint64_t /*nodes*/, bool /*is_done*/,
                         Instant /*now*/) {}
  // Of a node of the tree of shares.
  virtual void node_weight_set(std::string_view /*path*/, std::uint64_t /*weight*/,
                               bool /*is_done*/, Instant /*now*/) {}
  // Without a source: unchanged.
  virtual void capacity_set(const std::optional<Rate>& /*capacity*/,
                            std::optional<CapacitySource> /*source*/, Instant /*now*/) {}
  virtual void nodes_by_clients_set(bool /*counts*/, Instant /*now*/) {}
  virtual void restored(const Controller::State& /*state*/, bool /*is_done*/, Instant /*now*/) {}
  // The decisions of the controller, and the capacity that it assumed.
  virtual void period_ended(const PeriodReport& /*report*/,
                            const std::optional<Rate>& /*capacity*/) {}
};

}  // namespace weir
