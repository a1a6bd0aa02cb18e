// SPDX-License-Identifier: Apache-2.0
//
// The results of a run: for every job, for every target, and over time. Values only, created by
// World; study/ and apps/ turn them into tables, files and figures.
//
//   throughput    requests served per second of the run; for a job with a fixed amount of work that
//                 it finished, until it was done
//   wait          from arrival to dispatch            latency   from arrival to completion
//   share         of all cost served, and entitlement, of all nodes: both over the time in which
//                 every continuous job has work (`contended`); none without such a time
//   utilisation   cost served / (capacity x duration)
//   fairness      Jain's index of got / fair over the jobs with work in that time, where `fair` is
//                 the job's part of all that was served if every job gets the same for each node,
//                 but no job more than it asked for: 1 if all are in proportion, 1/n if one job got
//                 everything. None if the demand is not known, as on a server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/adapt/period.h"
#include "weir/base/time.h"
#include "weir/sim/contender.h"
#include "weir/sim/quantiles.h"

namespace weir::sim {

// Requests served in each interval of the run, `Outcome::bin` long.
struct Bin {
  std::uint64_t served = 0;
  std::uint64_t cost = 0;
};

struct JobOutcome {
  std::string name;
  std::string group;
  std::uint64_t nodes = 1;
  std::uint64_t arrived = 0;
  std::uint64_t served = 0;
  std::uint64_t cost = 0;
  double throughput = 0;
  std::optional<double> share;
  std::optional<double> entitlement;
  Quantiles wait;
  Quantiles latency;
  std::int64_t record = 0;  // at the end; of all targets
  std::vector<Bin> bins;
};

struct TargetOutcome {
  std::string name;
  std::uint64_t served = 0;
  std::uint64_t cost = 0;
  double utilisation = 0;
  std::uint32_t slots = 0;   // at the end
  Quantiles in_device = {};  // times from dispatch to completion; see RunOptions::measure_from
};

// What comparisons need of a job in addition; see measures.h.
struct JobMeasured {
  std::uint64_t windows = 0;  // in which it was backlogged beside other jobs
  double shortfall_mean = 0;  // of its entitlement in those windows, as a fraction
  double shortfall_worst = 0;
  Nanoseconds starved{0};                   // longest time without a dispatch while requests waited
  double lent = 0;                          // cost, before it became backlogged permanently
  double repaid = 0;                        // cost beyond its fair part afterwards, at most
  std::optional<Nanoseconds> repaid_after;  // half of what it lent, or what a second is worth
  // Of its reservation in the worst second, as a fraction; none without a reservation.
  std::optional<double> reserve_missed;
};

// The report of a period, and its target.
struct PeriodRow {
  std::size_t target = 0;
  PeriodReport report;
};

struct Outcome {
  Contender contender = Contender::kNone;
  std::optional<Nanoseconds> period;  // of the controller, if there is one
  Nanoseconds duration{0};            // until the last completion, or the scenario's length
  Nanoseconds bin{0};
  std::optional<Nanoseconds> contended_from;
  std::optional<Nanoseconds> contended_until;
  std::uint64_t served = 0;
  double utilisation = 0;
  std::optional<double> fairness;
  std::vector<JobOutcome> jobs;
  std::vector<TargetOutcome> targets;
  std::vector<PeriodRow> periods;
  std::uint64_t periods_left_out = 0;  // for lack of memory; see world.h
  std::vector<JobMeasured> measured;   // by job; empty unless RunOptions::measures
  // Time in calls of the schedulers, estimated from samples; only with RunOptions::stopwatch.
  std::optional<Nanoseconds> decision_time;
  // Requests of streams that were late because the window was full, and the longest delay.
  std::uint64_t held_back = 0;
  Nanoseconds held_back_longest{0};
  std::uint64_t events = 0;  // number of events taken from the heap
  std::uint64_t findings = 0;
  std::uint64_t parts_checked = 0;  // stretches of time, of all nodes of trees of shares
  std::vector<std::string> first_findings;
};

// Combines jobs that the scenario defines together: sums, and quantiles of all.
std::vector<JobOutcome> grouped(const Outcome& outcome);

// Divides `total` by nodes, but gives no job more than its demand; what one does not need goes to
// the others (weighted max-min fairness). Example: 1000 for nodes 3 and 1 with demands of 200 and
// 5000 are 200 and 800.
// REQUIRES: as many demands as nodes, all nodes above 0.
std::vector<double> fair_parts(double total, const std::vector<std::uint64_t>& nodes,
                               const std::vector<double>& demands);

// Jain's index; none for no values or only zeros.
std::optional<double> jain_index(const std::vector<double>& values);

}  // namespace weir::sim
