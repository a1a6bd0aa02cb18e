// SPDX-License-Identifier: Apache-2.0
//
// Replays a trace: creates the Targets again, makes the same calls with the same times, and
// compares every decision and the checksum of every period. Traces of servers and of simulations
// are treated the same. It stops at the first difference, since everything after it differs too.
//
//   const ReplayReport report = replay(source);
//   report.is_identical()       no difference, as far as the trace goes
//   report.is_whole()           the trace is complete
//
// Memory: outstanding requests, and a block of the trace.
#pragma once

#include <cstdint>
#include <string>

#include "weir/adapt/period.h"
#include "weir/base/time.h"
#include "weir/schedule/request.h"
#include "weir/target/trace.h"
#include "weir/target/trace_reader.h"

namespace weir::sim {

struct ReplayReport {
  TraceHead head;
  std::uint64_t targets = 0;
  std::uint64_t calls = 0;  // of every kind, including that of the first difference
  std::uint64_t admitted = 0;
  std::uint64_t decisions = 0;
  std::uint64_t run = 0;  // decisions to run a request
  std::uint64_t completed = 0;
  std::uint64_t withdrawn = 0;
  std::uint64_t deferred = 0;
  std::uint64_t charged = 0;
  std::uint64_t commands = 0;  // rules, policies, nodes, capacities
  std::uint64_t periods = 0;
  Nanoseconds length{0};  // from the first call to the last

  std::string difference;  // the first, or empty
  TraceReader::Ending ending = TraceReader::Ending::kNotYet;
  std::string complaint;  // reason of an ending other than kWhole
  std::uint64_t good_bytes = 0;

  bool is_identical() const { return difference.empty(); }
  bool is_whole() const { return ending == TraceReader::Ending::kWhole; }
};

// Notified of the events of a replay, at the times of the trace.
class ReplayObserver {
 public:
  ReplayObserver() = default;
  ReplayObserver(const ReplayObserver&) = delete;
  ReplayObserver& operator=(const ReplayObserver&) = delete;
  virtual ~ReplayObserver() = default;

  virtual void admitted(const Request& request, Instant now) = 0;
  virtual void started(const Request& request, Instant now) = 0;
  virtual void completed(const Request& request, Instant now) = 0;
  virtual void period_ended(const PeriodReport& report) = 0;
};

ReplayReport replay(TraceReader::Source source, ReplayObserver* observer = nullptr);

}  // namespace weir::sim
