// SPDX-License-Identifier: Apache-2.0
//
// Whoever is told of every call on a Target, in the order the calls were made: a trace that is
// written (trace_writer.h), or a replay that compares (weir/sim/replay.h).
//
//   target.record(&recorder);        from now on; nullptr: no longer
//
// Each function is called when its call is done, so periods that ended inside of a call come before
// it. A request is known by its number, which a recorder may give it when it is admitted. Commands
// come with whether they were carried out, because a refusal has to be repeated too. Nothing may be
// called on the Target from here.
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

// Who says what a device can do: an administrator, or the Target, which measures.
enum class CapacitySource : std::uint8_t { kGiven, kEstimated };

// Every function does nothing unless it is overridden.
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
  // It gets no number: nothing follows.
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
  // Without a source: it stays as it was.
  virtual void capacity_set(const std::optional<Rate>& /*capacity*/,
                            std::optional<CapacitySource> /*source*/, Instant /*now*/) {}
  virtual void nodes_by_clients_set(bool /*counts*/, Instant /*now*/) {}
  virtual void restored(const Controller::State& /*state*/, bool /*is_done*/, Instant /*now*/) {}
  // What the controller decided, and the capacity it took the device to have.
  virtual void period_ended(const PeriodReport& /*report*/,
                            const std::optional<Rate>& /*capacity*/) {}
};

}  // namespace weir
