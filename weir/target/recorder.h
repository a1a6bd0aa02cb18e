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

#include "weir/adapt/period.h"
#include "weir/base/job_id.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"
#include "weir/schedule/gate.h"
#include "weir/schedule/request.h"

namespace weir {

// Who says what a device can do: an administrator, or the Target, which measures.
enum class CapacitySource : std::uint8_t { kGiven, kEstimated };

class TargetRecorder : public CommandListener {
 public:
  virtual void admitted(Request& request, Head head, Instant now) = 0;
  virtual void decided(const Decision& decision, Instant now) = 0;
  virtual void completed(const Request& request, Instant now) = 0;
  virtual void withdrawn(const Request& request, Instant now) = 0;
  virtual void promoted(const Request& request, Instant now) = 0;
  virtual void shut_down(Instant now) = 0;
  virtual void nodes_set(const JobId& job, std::uint64_t nodes, bool is_done, Instant now) = 0;
  // Without a source: it stays as it was.
  virtual void capacity_set(const std::optional<Rate>& capacity,
                            std::optional<CapacitySource> source, Instant now) = 0;
  virtual void nodes_by_clients_set(bool counts) = 0;
  // What the controller decided, and the capacity it took the device to have.
  virtual void period_ended(const PeriodReport& report, const std::optional<Rate>& capacity) = 0;
};

}  // namespace weir
